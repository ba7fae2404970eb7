//! The table of targets: each with its check and the maker of its inputs.

use crate::{
    make,
    mutate::InputShape::{self, Parts, Words},
    random::FuzzRandom,
    targets::{
        InputVerdict, connection, gss, iwarp, kerberos, message, nfs, nfs4, nfs4_state, rpc,
        rpcrdma, shard, shm, stages, stream, tcp, xdr,
    },
};
use std::fmt;

/// Something that octets of a peer reach, and what has to hold there.
pub struct FuzzTarget {
    /// Its name: that of its corpus, too.
    pub name: &'static str,
    /// Shape of the target's inputs.
    pub shape: InputShape,
    /// True if one input takes a system call or a whole connection: then sweeps are coarser.
    pub is_slow: bool,
    /// Takes an input; panics when a property does not hold.
    pub check: fn(&[u8]) -> InputVerdict,
    /// Makes an input that is valid, or nearly so.
    pub make: fn(&mut FuzzRandom) -> Vec<u8>,
}

impl fmt::Debug for FuzzTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn fast(
    name: &'static str,
    shape: InputShape,
    check: fn(&[u8]) -> InputVerdict,
    make: fn(&mut FuzzRandom) -> Vec<u8>,
) -> FuzzTarget {
    FuzzTarget { name, shape, is_slow: false, check, make }
}

const fn slow(
    name: &'static str,
    shape: InputShape,
    check: fn(&[u8]) -> InputVerdict,
    make: fn(&mut FuzzRandom) -> Vec<u8>,
) -> FuzzTarget {
    FuzzTarget { name, shape, is_slow: true, check, make }
}

/// All targets.
pub static TARGETS: [FuzzTarget; 40] = [
    fast("xdr", Words, xdr::cursor, make::words),
    fast("types", Words, xdr::types, make::typed),
    fast("rpc_call", Words, rpc::call, make::rpc_call),
    fast("rpc_reply", Words, rpc::reply, make::rpc_reply),
    fast("rpc_auth", Words, rpc::auth, make::rpc_auth),
    fast("rpc_record", Words, rpc::record, make::record_stream),
    fast("gss_credential", Words, gss::credential, make::gss_credential),
    fast("gss_init", Words, gss::init, make::gss_init),
    fast("gss_body", Words, gss::body, make::gss_body),
    fast("gss_token", Words, gss::token, make::gss_token),
    fast("cm_private", Words, rpcrdma::cm_private, make::private_data),
    fast("rpcrdma_v1", Words, rpcrdma::v1_header, make::v1_message),
    fast("rpcrdma_v2", Words, rpcrdma::v2_header, make::v2_message),
    fast("rpcrdma_plan_call", Words, rpcrdma::plan_call, make::words),
    fast("rpcrdma_responder", Words, rpcrdma::responder, make::responder),
    fast("rpcrdma_requester", Parts, rpcrdma::requester, make::exchange),
    fast("rpcrdma_message", Parts, message::message, make::exchange),
    fast("rpcrdma_connection", Parts, connection::connection, make::connection),
    fast("mpa", Words, iwarp::mpa, make::mpa),
    fast("fpdu", Words, iwarp::fpdu, make::fpdus),
    fast("ddp", Words, iwarp::ddp, make::ulpdu),
    fast("rdmap", Words, iwarp::rdmap, make::terminate),
    fast("iwarp_connection", Parts, stream::connection, make::iwarp_connection),
    fast("mount", Words, nfs::mount, make::mount),
    fast("nfs3_call", Words, nfs::call, make::nfs3_call),
    fast("nfs3_reply", Words, nfs::reply, make::nfs3_reply),
    fast("nfs4_compound", Words, nfs4::compound, make::nfs4_compound),
    fast("nfs4_reply", Words, nfs4::reply, make::nfs4_reply),
    fast("nfs4_callback", Words, nfs4::callback, make::nfs4_callback),
    fast("nfs4_attributes", Words, nfs4::attributes, make::nfs4_attributes),
    slow("nfs4_state", Words, nfs4_state::state, make::nfs4_state),
    fast("file_handle", Words, nfs::file_handle, make::file_handle),
    fast("keytab", Words, kerberos::keytab, make::keytab),
    fast("krb_token", Words, kerberos::token, make::krb_token),
    slow("stages", Words, stages::answer, make::stages),
    slow("shard", Parts, shard::gateway, make::shard),
    slow("compound", Parts, shard::compound, make::compound),
    slow("shard_requester", Parts, shard::requester, make::replies),
    slow("shard_tcp", Words, tcp::gateway, make::tcp),
    slow("shm_link", Parts, shm::link, make::shm),
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|target| target.name == name)
}
