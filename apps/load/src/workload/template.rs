//! Template of READ calls of one file, whose octets differ only in the offset.

use super::maker::Maker;
use stag_engine::Cx;
use stag_protocol::{
    nfs::v3::{self, Procedure, ReadArgs},
    rpc::{Auth, CallHeader, Credential, ReplyHeader},
    rpcrdma::Xid,
    xdr::{Codec, Writer},
};
use stag_rpc::Buf;

/// Octets of the longest message: a UNIX user of ours, and the longest handle.
const LEN_MAX: usize = 256;
/// Octets of the arguments from the offset on.
const OFFSET_AND_COUNT: usize = 12;

/// The message of a READ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadTemplate {
    octets: [u8; LEN_MAX],
    len: usize,
    /// Octets of the longest reply without its item.
    pub reply_max: usize,
}

impl ReadTemplate {
    /// The READs of the maker's file; `None` when it has none.
    pub fn new(maker: &Maker) -> Option<Self> {
        let (file, count) = (maker.files?.file, u32::try_from(maker.len).ok()?);
        let args = ReadArgs { file, offset: 0, count };
        let results_max = Maker::results_max(&v3::Call::Read(args));
        let header = CallHeader {
            xid: Xid(0), // The shard chooses one.
            program: v3::PROGRAM,
            version: v3::VERSION,
            procedure: Procedure::Read.number(),
            credential: Credential::Sys(maker.user),
            verifier: Auth::NONE,
        };
        let mut octets = [0; LEN_MAX];
        let mut writer = Writer::new(&mut octets);
        header.emit(&mut writer).and_then(|()| args.emit(&mut writer)).ok()?;
        let len = writer.len();
        let reply_max = (ReplyHeader::LEN + results_max).max(ReplyHeader::REFUSAL_LEN_MAX);
        Some(Self { octets, len, reply_max })
    }

    /// A READ from `offset` on. None when our memory for it is short.
    #[inline]
    pub fn message(&self, cx: &Cx<'_>, offset: u64) -> Option<Buf> {
        let mut message = cx.message(self.len)?;
        message.append(self.octets.get(..self.len)?).ok()?;
        let at = self.len.checked_sub(OFFSET_AND_COUNT)?;
        *message.get_mut(at..)?.first_chunk_mut()? = offset.to_be_bytes();
        Some(message)
    }
}
