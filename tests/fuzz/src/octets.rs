//! Messages as octets, for makers of inputs and for checks of the outcomes.

use stag_protocol::{
    nfs::{mount, v3},
    rpc::{Auth, CallHeader, Credential},
    rpcrdma::{ChunkLists, Header, Xid, v1},
    xdr::Writer,
};

/// The procedure that a call is for.
#[derive(Clone, Copy)]
pub(crate) struct Called {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
}

impl Called {
    pub(crate) fn nfs3(procedure: v3::Procedure) -> Self {
        Self { program: v3::PROGRAM, version: v3::VERSION, procedure: procedure.number() }
    }

    pub(crate) fn mount(procedure: mount::Procedure) -> Self {
        Self { program: mount::PROGRAM, version: mount::VERSION, procedure: procedure.number() }
    }

    pub(crate) fn header<'a>(
        self,
        xid: u32,
        credential: Credential<'a>,
        verifier: Auth<'a>,
    ) -> CallHeader<'a> {
        let Self { program, version, procedure } = self;
        CallHeader { xid: Xid(xid), program, version, procedure, credential, verifier }
    }
}

/// Returns the octets that `emit` writes; at most 32 KiB.
pub(crate) fn written(
    emit: impl FnOnce(&mut Writer<'_>) -> Result<(), stag_protocol::xdr::NoRoom>,
) -> Vec<u8> {
    let mut out = vec![0; 32 << 10];
    let mut writer = Writer::new(&mut out);
    emit(&mut writer).expect("32 KiB are enough");
    let len = writer.len();
    out.truncate(len);
    out
}

/// A header as octets.
pub fn emitted(header: &Header, lists: &ChunkLists) -> Vec<u8> {
    let mut out = vec![0; v1::header_len(lists).max(v1::ERROR_LEN_MAX)];
    let len = v1::emit(header, lists, &mut out).expect("it is as long as it says");
    out.truncate(len);
    out
}
