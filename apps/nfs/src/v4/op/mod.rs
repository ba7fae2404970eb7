//! The operations: each is a function that parses its arguments, executes them, and appends its
//! results to the reply (RFC 8881 §18).

pub(in crate::v4) mod access;
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
pub(in crate::v4) mod lookup;
mod names;
mod open;
mod opened_file;
mod ranges;
pub(in crate::v4) mod read;
mod readdir;
mod readlink;
mod reclaim_complete;
mod secinfo;
mod setattr;
mod stateids;
mod verify;
mod write;
mod xattrs;

pub(super) use getattr::HOLDER_KNOWS;
use stag_protocol::nfs::v4::{Request, Status4};

use super::context::{CompoundContext, OpResult};
use stag_nfs_store::Store;

/// Executes an operation.
pub(super) fn carry_out<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    request: &Request<'_>,
) -> OpResult {
    match request {
        Request::Access(args) => access::access(context, args),
        Request::Close(args) => close::close(context, args),
        Request::Commit(args) => write::commit(context, args),
        Request::Create(args) => create::create(context, args),
        Request::GetAttr(asked) => getattr::getattr(context, asked),
        Request::GetFh(()) => handles::getfh(context),
        Request::Link(name) => names::link(context, name.0),
        Request::Lock(args) => lock::lock(context, args),
        Request::LockT(args) => lock::lockt(context, args),
        Request::LockU(args) => lock::locku(context, args),
        Request::Lookup(name) => lookup::lookup(context, name.0),
        Request::LookupP(()) => lookup::lookupp(context),
        Request::NVerify(values) => verify::nverify(context, values),
        Request::Open(args) => open::open(context, args),
        Request::OpenDowngrade(args) => close::open_downgrade(context, args),
        Request::PutFh(handle) => handles::putfh(context, handle),
        Request::PutPubFh(()) => handles::putpubfh(context),
        Request::PutRootFh(()) => handles::putrootfh(context),
        Request::Read(args) => read::read(context, args),
        Request::ReadDir(args) => readdir::readdir(context, args),
        Request::ReadLink(()) => readlink::readlink(context),
        Request::Remove(name) => names::remove(context, name.0),
        Request::Rename(args) => names::rename(context, args),
        Request::RestoreFh(()) => handles::restorefh(context),
        Request::SaveFh(()) => handles::savefh(context),
        Request::SecInfo(name) => secinfo::secinfo(context, name.0),
        Request::SecInfoNoName(style) => secinfo::secinfo_no_name(context, *style),
        Request::SetAttr(args) => setattr::setattr(context, args),
        Request::Verify(values) => verify::verify(context, values),
        Request::Write(args) => write::write(context, args),
        Request::FreeStateid(stateid) => stateids::free_stateid(context, stateid),
        Request::TestStateid(stateids) => stateids::test_stateid(context, stateids),
        Request::BackchannelCtl(args) => backchannel_ctl::backchannel_ctl(context, args),
        Request::DelegReturn(stateid) => delegreturn::delegreturn(context, stateid),
        Request::BindConnToSession(args) => bind_connection::bind_connection(context, args),
        Request::ExchangeId(args) => exchange_id::exchange_id(context, args),
        Request::CreateSession(args) => create_session::create_session(context, args),
        Request::DestroySession(id) => destroy::destroy_session(context, id),
        Request::DestroyClientid(id) => destroy::destroy_clientid(context, *id),
        Request::ReclaimComplete(one_fs) => reclaim_complete::reclaim_complete(context, *one_fs),
        Request::Allocate(args) => ranges::allocate(context, args),
        Request::Copy(args) => ranges::copy(context, args),
        Request::Deallocate(args) => ranges::deallocate(context, args),
        Request::IoAdvise(args) => ranges::io_advise(context, args),
        Request::Seek(args) => ranges::seek(context, args),
        Request::Clone(args) => ranges::clone(context, args),
        Request::GetXattr(name) => xattrs::get_xattr(context, name.0),
        Request::SetXattr(args) => xattrs::set_xattr(context, args),
        Request::ListXattrs(args) => xattrs::list_xattrs(context, args),
        Request::RemoveXattr(name) => xattrs::remove_xattr(context, name.0),
        // The interpreter executes it itself, as the first operation.
        Request::Sequence(_) => Err(Status4::SequencePos.into()),
    }
}
