//! Protection of the results of a reply, whole or in steps (RFC 2203 §5.3.3.2).

use super::ProtectedCall;
use crate::call::{Answer, AnswerItem};
use stag_gss::{CONFOUNDER, MicState, MicToken, Protecting};
use stag_pools::Buf;
use stag_protocol::{
    rpc::{ReplyHeader, gss::GssService},
    xdr::{pad, padded},
};

/// The reply cannot be protected: it is not one that an app may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unprotectable;

/// A reply and the call that it answers, which its protection is made for.
#[derive(Debug)]
pub(crate) struct ProtectedReply {
    pub(crate) protected: ProtectedCall,
    pub(crate) answer: Answer,
}

/// The protection of the results of a reply, which goes on until all of them are done.
pub(crate) enum ReplyStep {
    /// The items stay outside the message. The number of octets that are signed.
    Sign(MicState, usize),
    /// All results are in the message.
    Seal(Protecting),
}

impl ReplyStep {
    /// Begins to sign results, items included, where they are.
    pub(crate) fn begin_sign(
        protected: &ProtectedCall,
        answer: &mut Answer,
    ) -> Result<Self, Unprotectable> {
        let keys = protected.known.context.acceptor.keys();
        let body = body_at(protected);
        let len: usize = signed_parts(protected, answer).map(<[u8]>::len).sum();
        let len = u32::try_from(len).map_err(|_| Unprotectable)?;
        // RFC 2203 §5.3.2.2 [2203-16]: the signed octets and the checksum are two opaque items
        put_word(&mut answer.message, body, len)?;
        put_word(&mut answer.message, body + 4, protected.call.sequence())?;
        Ok(Self::Sign(keys.begin_sign(), 0))
    }

    /// Begins to encrypt results, which are all in the message.
    pub(crate) fn begin_seal(
        protected: &ProtectedCall,
        message: &mut Buf,
        confounder: &[u8; CONFOUNDER],
    ) -> Result<Self, Unprotectable> {
        let keys = protected.known.context.acceptor.keys();
        let protection = protected.call.protection(protected.call.sequence().into());
        let body = sealed_body(protected, message)?;
        let begun = keys.begin_protect(&protection, body, confounder);
        begun.map(Self::Seal).map_err(|_| Unprotectable)
    }

    /// Goes on by `max` octets; returns true when the reply is whole.
    pub(crate) fn advance(
        &mut self,
        protected: &ProtectedCall,
        answer: &mut Answer,
        max: usize,
    ) -> Result<bool, Unprotectable> {
        let keys = protected.known.context.acceptor.keys();
        match self {
            Self::Sign(mic, signed) => {
                let (is_whole, end) = sign_some(signed_parts(protected, answer), mic, *signed, max);
                *signed = end;
                if is_whole {
                    let token = keys.finish_sign(mic.clone(), u64::from(protected.call.sequence()));
                    put_token(answer, protected, &token)?;
                }
                Ok(is_whole)
            }
            Self::Seal(protecting) => {
                let body = sealed_body(protected, &mut answer.message)?;
                protecting.advance(keys, body, max).map_err(|_| Unprotectable)
            }
        }
    }
}

/// Octets of a reply in front of the body that its service makes.
fn body_at(protected: &ProtectedCall) -> usize {
    ReplyHeader::LEN + padded(protected.known.context.acceptor.keys().mic_len())
}

/// The token of sealed results and the length in front of it, at the end of a message.
fn sealed_body<'a>(
    protected: &ProtectedCall,
    message: &'a mut Buf,
) -> Result<&'a mut [u8], Unprotectable> {
    let keys = protected.known.context.acceptor.keys();
    let back = keys.room(GssService::Privacy).back;
    let end = message.len().checked_sub(pad(back)).ok_or(Unprotectable)?;
    message.get_mut(end..).unwrap_or_default().fill(0);
    message.get_mut(body_at(protected)..end).ok_or(Unprotectable)
}

/// End of the signed octets of a message.
fn signed_end(protected: &ProtectedCall, message: &Buf) -> usize {
    let keys = protected.known.context.acceptor.keys();
    message.len().saturating_sub(padded(keys.room(GssService::Integrity).back))
}

/// The signed octets of a reply, in order, with its items at their positions.
fn signed_parts<'a>(
    protected: &ProtectedCall,
    answer: &'a Answer,
) -> impl Iterator<Item = &'a [u8]> {
    const PADDING: &[u8] = &[0; 3];
    let Answer { message, item } = answer;
    let (from, end) = (body_at(protected) + 4, signed_end(protected, message));
    let last = item.iter().flat_map(AnswerItem::iter).last().map_or(from, |(position, _)| position);
    let mut at = from;
    let items = item.iter().flat_map(AnswerItem::iter).flat_map(move |(position, octets)| {
        let before = message.get(at..position).unwrap_or_default();
        at = position;
        let padding = PADDING.get(..pad(octets.len())).unwrap_or_default();
        let parts = octets.iter().map(|part| &part[..]);
        std::iter::once(before).chain(parts).chain(std::iter::once(padding))
    });
    items.chain(std::iter::once(message.get(last..end).unwrap_or_default()))
}

/// Signs `max` octets of `parts` after the first `signed` ones. Returns true if these are all, and
/// the number of octets that are signed then.
fn sign_some<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    mic: &mut MicState,
    signed: usize,
    max: usize,
) -> (bool, usize) {
    let (mut begin, limit) = (0, signed.saturating_add(max));
    for part in parts {
        let from = signed.saturating_sub(begin).min(part.len());
        let to = (limit - begin).min(part.len());
        mic.update(part.get(from..to).unwrap_or_default());
        if to < part.len() {
            return (false, limit);
        }
        begin += part.len();
    }
    (true, begin)
}

/// Writes the checksum of signed results after them.
fn put_token(
    answer: &mut Answer,
    protected: &ProtectedCall,
    token: &MicToken,
) -> Result<(), Unprotectable> {
    let end = signed_end(protected, &answer.message);
    put_word(&mut answer.message, end, token.len() as u32)?;
    let room = answer.message.get_mut(end + 4..).and_then(|room| room.get_mut(..token.len()));
    room.ok_or(Unprotectable)?.copy_from_slice(token);
    Ok(())
}

fn put_word(message: &mut Buf, at: usize, word: u32) -> Result<(), Unprotectable> {
    let room = message.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>);
    *room.ok_or(Unprotectable)? = word.to_be_bytes();
    Ok(())
}
