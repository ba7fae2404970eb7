//! Arguments of protected calls, verified and opened.

use crate::{
    app::{App, PeerId},
    gss::{ArrivedCall, ProtectedCall},
    item::Pulled,
    shard::Shard,
    state::Sender,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::xdr::Reader;
use stag_verbs::Provider;

/// Arguments without protection.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub(super) arguments: Reader<'a>,
    pub(super) pulled: Pulled<'a>,
}

/// Arguments whose protection does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpeningFault;

/// The rest of a message, if it is in one piece: nothing of a protected call is reduced.
fn body_of<'a>(arguments: &Reader<'a>) -> Option<&'a [u8]> {
    let mut pieces = arguments.pieces().map(|piece| piece.octets()).filter(|it| !it.is_empty());
    let body = pieces.next().unwrap_or_default();
    pieces.next().is_none().then_some(body)
}

/// Verifies arguments with integrity where they are.
pub(super) fn open_integrity<'a>(
    protected: &ProtectedCall,
    arrived: &ArrivedCall<'a>,
) -> Result<Opened<'a>, OpeningFault> {
    let body = body_of(&arrived.arguments).ok_or(OpeningFault)?;
    let acceptor = &protected.known.context.acceptor;
    let range = acceptor.verify_arguments(&protected.call, body).map_err(|_| OpeningFault)?;
    let arguments = Reader::new(body.get(range).ok_or(OpeningFault)?);
    Ok(Opened { arguments, pulled: arrived.pulled })
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Serves a call with privacy: its arguments are opened in a buffer of their own, because the
    /// message may be in memory that others read.
    pub(super) fn serve_private(
        &mut self,
        key: Key,
        sender: Sender,
        arrived: &ArrivedCall<'_>,
        protected: ProtectedCall,
    ) {
        let body = body_of(&arrived.arguments).unwrap_or_default();
        // It had no effect, and a call must not stay open.
        let Some(mut copy) = self.copy_of(sender.peer, body) else {
            return self.disconnect(sender.peer);
        };
        let acceptor = &protected.known.context.acceptor;
        let range = acceptor.open_arguments(&protected.call, &mut copy);
        let copy = [Some(copy.freeze())];
        let [octets] = &copy;
        let octets = octets.as_deref().unwrap_or_default();
        let arguments = range.ok().and_then(|range| octets.get(range)).map(Reader::new);
        let opened = arguments.map(|arguments| Opened { arguments, pulled: Pulled(&copy) });
        self.serve_opened(key, sender, &arrived.header, protected, opened.ok_or(OpeningFault));
    }

    fn copy_of(&mut self, peer: PeerId, octets: &[u8]) -> Option<Buf> {
        let memory = &self.core.memory;
        // The call was admitted with its message alone: the copy may be of the reserved part.
        let lent = memory.lend(octets.len(), self.core.lane(peer));
        let mut copy = lent.or_else(|| memory.take(octets.len()))?;
        copy.reset(0);
        copy.append(octets).ok()?;
        Some(copy)
    }
}
