//! The operations: each is a function that parses its arguments, executes them, and appends its
//! results to the reply (RFC 8881 §18).

mod access;
mod backchannel_ctl;
mod bind_connection;
mod close;
mod create;
mod create_session;
mod delegreturn;
mod destroy;
mod exchange_id;
mod getattr;
mod handles;
mod lock;
mod lookup;
mod names;
mod open;
mod ranges;
mod read;
mod readdir;
mod readlink;
mod reclaim_complete;
mod secinfo;
mod setattr;
mod stateids;
mod verify;
mod write;
mod xattrs;

pub(super) use getattr::HELD;
use stag_protocol::nfs::v4::{Request, Status4};

use super::context::{Done, Turn};
use stag_nfs_store::Store;

/// Executes an operation.
pub(super) fn carry_out<S: Store>(turn: &mut Turn<'_, '_, S>, request: &Request<'_>) -> Done {
    match request {
        Request::Access(args) => access::access(turn, args),
        Request::Close(args) => close::close(turn, args),
        Request::Commit(args) => write::commit(turn, args),
        Request::Create(args) => create::create(turn, args),
        Request::GetAttr(asked) => getattr::getattr(turn, asked),
        Request::GetFh(()) => handles::getfh(turn),
        Request::Link(name) => names::link(turn, name.0),
        Request::Lock(args) => lock::lock(turn, args),
        Request::LockT(args) => lock::lockt(turn, args),
        Request::LockU(args) => lock::locku(turn, args),
        Request::Lookup(name) => lookup::lookup(turn, name.0),
        Request::LookupP(()) => lookup::lookupp(turn),
        Request::NVerify(values) => verify::nverify(turn, values),
        Request::Open(args) => open::open(turn, args),
        Request::OpenDowngrade(args) => close::open_downgrade(turn, args),
        Request::PutFh(handle) => handles::putfh(turn, handle),
        Request::PutPubFh(()) => handles::putpubfh(turn),
        Request::PutRootFh(()) => handles::putrootfh(turn),
        Request::Read(args) => read::read(turn, args),
        Request::ReadDir(args) => readdir::readdir(turn, args),
        Request::ReadLink(()) => readlink::readlink(turn),
        Request::Remove(name) => names::remove(turn, name.0),
        Request::Rename(args) => names::rename(turn, args),
        Request::RestoreFh(()) => handles::restorefh(turn),
        Request::SaveFh(()) => handles::savefh(turn),
        Request::SecInfo(name) => secinfo::secinfo(turn, name.0),
        Request::SecInfoNoName(style) => secinfo::secinfo_no_name(turn, *style),
        Request::SetAttr(args) => setattr::setattr(turn, args),
        Request::Verify(values) => verify::verify(turn, values),
        Request::Write(args) => write::write(turn, args),
        Request::FreeStateid(stateid) => stateids::free_stateid(turn, stateid),
        Request::TestStateid(stateids) => stateids::test_stateid(turn, stateids),
        Request::BackchannelCtl(args) => backchannel_ctl::backchannel_ctl(turn, args),
        Request::DelegReturn(stateid) => delegreturn::delegreturn(turn, stateid),
        Request::BindConnToSession(args) => bind_connection::bind_connection(turn, args),
        Request::ExchangeId(args) => exchange_id::exchange_id(turn, args),
        Request::CreateSession(args) => create_session::create_session(turn, args),
        Request::DestroySession(id) => destroy::destroy_session(turn, id),
        Request::DestroyClientid(id) => destroy::destroy_clientid(turn, *id),
        Request::ReclaimComplete(one_fs) => reclaim_complete::reclaim_complete(turn, *one_fs),
        Request::Allocate(args) => ranges::allocate(turn, args),
        Request::Copy(args) => ranges::copy(turn, args),
        Request::Deallocate(args) => ranges::deallocate(turn, args),
        Request::IoAdvise(args) => ranges::io_advise(turn, args),
        Request::Seek(args) => ranges::seek(turn, args),
        Request::Clone(args) => ranges::clone(turn, args),
        Request::GetXattr(name) => xattrs::get_xattr(turn, name.0),
        Request::SetXattr(args) => xattrs::set_xattr(turn, args),
        Request::ListXattrs(args) => xattrs::list_xattrs(turn, args),
        Request::RemoveXattr(name) => xattrs::remove_xattr(turn, name.0),
        // The interpreter executes it itself, as the first operation.
        Request::Sequence(_) => Err(Status4::SequencePos.into()),
    }
}
