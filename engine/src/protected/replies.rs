//! Verifiers and protection of replies (RFC 2203 §5.3.3.2).

use crate::{
    app::{Answer, AnswerItem, App, CallId},
    core::Core,
    gss::ProtectedCall,
    shard::Shard,
    state::inbound::InboundState,
};
use stag_gss::{CONFOUNDER, MicToken, ProtectedRoom};
use stag_pools::Buf;
use stag_protocol::{
    rpc::{ReplyHeader, flavor, gss::GssService},
    xdr::{pad, padded},
};
use stag_verbs::Provider;

/// Octets of an accepted reply in front of its verifier.
const VERIFIER_AT: usize = 12;
/// Octets of it in front of its status, if the verifier is AUTH_NONE, as apps write it.
const STATUS_AT: usize = ReplyHeader::LEN - 4;

/// The reply cannot be protected: there is no memory for it, or it is longer than any buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unprotectable;

/// The kind of a reply that an app made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyKind {
    Denied,
    /// It has no results under protection.
    Refused,
    Success,
}

impl ReplyKind {
    fn of(message: &[u8]) -> Self {
        let word = |at: usize| message.get(at..).and_then(<[u8]>::first_chunk::<4>);
        match (word(8), word(STATUS_AT)) {
            (Some([0, 0, 0, 0]), Some([0, 0, 0, 0])) => Self::Success,
            (Some([0, 0, 0, 0]), _) => Self::Refused,
            _ => Self::Denied,
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Protects the reply to a protected call, as its call was, and lets it go on. None: it was
    /// not possible, and the connection ends.
    #[inline(never)]
    pub(crate) fn protect(&mut self, id: CallId, answer: Answer) -> Option<Answer> {
        let call = self.core.responder.calls.get_mut(id.0)?;
        call.state = InboundState::AwaitAnswer;
        let peer = call.peer;
        let protected = self.core.gss.as_mut().and_then(|gss| gss.take(id.0));
        debug_assert!(protected.is_some(), "a protected call is kept until its reply");
        let protected = protected.ok_or(Unprotectable);
        match protected.and_then(|protected| self.core.protect_reply(&protected, answer)) {
            Ok(answer) => Some(answer),
            // RFC 2203 §5.3.3.4.4 [2203-30]: results that cannot be protected are not sent
            Err(Unprotectable) => {
                self.core.counters.stats.gss.unprotectable += 1;
                self.disconnect(peer);
                None
            }
        }
    }
}

impl Core {
    fn protect_reply(
        &mut self,
        protected: &ProtectedCall,
        mut answer: Answer,
    ) -> Result<Answer, Unprotectable> {
        let kind = ReplyKind::of(&answer.message);
        if kind == ReplyKind::Denied {
            return Ok(answer);
        }
        let acceptor = &protected.known.context.acceptor;
        let token = u64::from(protected.call.sequence());
        let mic = acceptor.sign_reply(&protected.call, token);
        let service = match kind {
            ReplyKind::Success if protected.has_body => protected.call.service(),
            _ => GssService::None,
        };
        let room = acceptor.keys().room(service);
        let items = match service {
            // RFC 8166 §8.2.2.3 [8166-79]: a reply under protection travels whole
            GssService::Privacy => answer.item.take(),
            // RFC 8166 §8.2.2.2 [8166-78]: authentication leaves items where they are
            GssService::None | GssService::Integrity => None,
        };
        let moved = Widened { verifier: padded(mic.len()), room, items: items.as_ref() };
        answer.message = moved.apply(self, answer.message)?;
        put_verifier(&mut answer.message, &mic);
        let shift = moved.verifier + room.front;
        shift_items(&mut answer, shift);
        match service {
            GssService::None => {}
            GssService::Integrity => sign(protected, &mut answer, moved.verifier)?,
            GssService::Privacy => {
                let confounder = self.gss.as_mut().map(|gss| gss.confounder());
                seal(protected, &mut answer.message, &confounder.ok_or(Unprotectable)?)?;
            }
        }
        Ok(answer)
    }
}

/// Room to be made in a reply.
struct Widened<'a> {
    /// Octets of the verifier's body.
    verifier: usize,
    /// Octets around the results.
    room: ProtectedRoom,
    /// Items to copy into the message.
    items: Option<&'a AnswerItem>,
}

impl Widened<'_> {
    /// Octets of the items in the message, each padded.
    fn items_len(&self) -> usize {
        let items = self.items.into_iter().flat_map(AnswerItem::iter);
        items.map(|(_, octets)| padded(octets.len())).sum()
    }

    /// Makes room in front of the status and around the results, in a longer buffer if needed.
    fn apply(&self, core: &Core, mut message: Buf) -> Result<Buf, Unprotectable> {
        let Self { verifier, room: ProtectedRoom { front, back }, .. } = *self;
        let (items, old) = (self.items_len(), message.len());
        let more = verifier + front + items + padded(back);
        if items == 0 && message.spare_len() >= more {
            message.extend(more);
            let shift = verifier + front;
            message.copy_within(ReplyHeader::LEN..old, ReplyHeader::LEN + shift);
            message.copy_within(STATUS_AT..ReplyHeader::LEN, STATUS_AT + verifier);
            return Ok(message);
        }
        let mut longer = core.message_for_app(old + more).ok_or(Unprotectable)?;
        let put =
            |longer: &mut Buf, octets: &[u8]| longer.append(octets).map_err(|_| Unprotectable);
        let (head, results) = message.split_at_checked(ReplyHeader::LEN).ok_or(Unprotectable)?;
        let (head, status) = head.split_at_checked(STATUS_AT).ok_or(Unprotectable)?;
        put(&mut longer, head)?;
        longer.extend(verifier);
        put(&mut longer, status)?;
        longer.extend(front);
        let mut at = 0;
        for (position, octets) in self.items.into_iter().flat_map(AnswerItem::iter) {
            let position = position.checked_sub(ReplyHeader::LEN).ok_or(Unprotectable)?;
            put(&mut longer, results.get(at..position).ok_or(Unprotectable)?)?;
            octets.iter().try_for_each(|part| put(&mut longer, part))?;
            put(&mut longer, [0; 3].get(..pad(octets.len())).unwrap_or_default())?;
            at = position;
        }
        put(&mut longer, results.get(at..).ok_or(Unprotectable)?)?;
        longer.extend(padded(back));
        Ok(longer)
    }
}

/// Writes the verifier in front of the status, where room was made.
fn put_verifier(message: &mut Buf, mic: &MicToken) {
    let mut words = [0; 8];
    let (number, len) = words.split_at_mut(4);
    number.copy_from_slice(&flavor::GSS.to_be_bytes());
    len.copy_from_slice(&(mic.len() as u32).to_be_bytes());
    let octets = words.iter().chain(mic.iter()).chain(&[0; 3]);
    let room = message.get_mut(VERIFIER_AT..).unwrap_or_default();
    room.iter_mut().zip(octets.take(8 + padded(mic.len()))).for_each(|(to, octet)| *to = *octet);
}

/// Moves the positions of items that stay outside the message.
fn shift_items(answer: &mut Answer, by: usize) {
    if let Some(item) = &mut answer.item {
        item.position += by;
        item.more.iter_mut().for_each(|item| item.position += by);
    }
}

/// Signs the results of a reply, items included, where they are.
fn sign(
    protected: &ProtectedCall,
    answer: &mut Answer,
    verifier: usize,
) -> Result<(), Unprotectable> {
    let keys = protected.known.context.acceptor.keys();
    let ProtectedRoom { front, back } = keys.room(GssService::Integrity);
    let sequence = protected.call.sequence();
    let body = ReplyHeader::LEN + verifier;
    let end = answer.message.len().checked_sub(padded(back)).ok_or(Unprotectable)?;
    let items = answer.item.as_ref();
    let items_len: usize =
        items.map_or(0, |item| item.iter().map(|(_, octets)| padded(octets.len())).sum());
    // RFC 2203 §5.3.2.2 [2203-16]: the signed octets and the checksum are two opaque items
    let signed = (end + items_len).checked_sub(body + front - 4).ok_or(Unprotectable)?;
    let signed = u32::try_from(signed).map_err(|_| Unprotectable)?;
    put_word(&mut answer.message, body, signed)?;
    put_word(&mut answer.message, body + 4, sequence)?;
    let mut mic = keys.begin_sign();
    let mut at = body + 4;
    for (position, octets) in answer.item.iter().flat_map(AnswerItem::iter) {
        mic.update(answer.message.get(at..position).ok_or(Unprotectable)?);
        octets.iter().for_each(|part| mic.update(part));
        mic.update([0; 3].get(..pad(octets.len())).unwrap_or_default());
        at = position;
    }
    mic.update(answer.message.get(at..end).ok_or(Unprotectable)?);
    let token = keys.finish_sign(mic, u64::from(sequence));
    put_word(&mut answer.message, end, token.len() as u32)?;
    let room = answer.message.get_mut(end + 4..).and_then(|room| room.get_mut(..token.len()));
    room.ok_or(Unprotectable)?.copy_from_slice(&token);
    Ok(())
}

/// Encrypts the results of a reply, which are all in its message.
fn seal(
    protected: &ProtectedCall,
    message: &mut Buf,
    confounder: &[u8; CONFOUNDER],
) -> Result<(), Unprotectable> {
    let acceptor = &protected.known.context.acceptor;
    let back = acceptor.keys().room(GssService::Privacy).back;
    let verifier = padded(acceptor.keys().mic_len());
    let end = message.len().checked_sub(pad(back)).ok_or(Unprotectable)?;
    let body = message.get_mut(ReplyHeader::LEN + verifier..end).ok_or(Unprotectable)?;
    let sequence = u64::from(protected.call.sequence());
    acceptor
        .protect_results(&protected.call, sequence, body, confounder)
        .map_err(|_| Unprotectable)?;
    message.get_mut(end..).unwrap_or_default().fill(0);
    Ok(())
}

fn put_word(message: &mut Buf, at: usize, word: u32) -> Result<(), Unprotectable> {
    let room = message.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>);
    *room.ok_or(Unprotectable)? = word.to_be_bytes();
    Ok(())
}
