//! Session of a client, and its slots (RFC 8881 §2.10.6).

use stag_protocol::nfs::v4::{
    Array, CallbackSecurity, ChannelAttributes, ClientOwner, CreateSessionArgs, ExchangeIdArgs,
    SequenceArgs, SessionId, StateProtection, Text, Verifier4, exchange_flag,
};
use stag_rpc::Token;
use std::time::{SystemTime, UNIX_EPOCH};

/// Requests at a time, as requested for the session.
pub(super) const REQUESTS_MAX: u32 = 64;
/// Octets of the longest request and reply: the largest READ or WRITE and the rest of its message.
pub(super) const MESSAGE_MAX: u32 = (1 << 20) + 8_192;

/// The first incarnation of a client, and a later one.
pub(super) const FIRST: Verifier4 = [0; 8];
pub(super) const NEXT: Verifier4 = [1; 8];

/// A session.
#[derive(Debug)]
pub(crate) struct Session4 {
    /// The minor version.
    pub(crate) minor: u32,
    /// The client ID.
    pub(crate) client: u64,
    /// The session ID.
    pub(crate) id: SessionId,
    /// The client's name.
    pub(super) owner: Vec<u8>,
    slots: Vec<ClientSlot>,
    /// The server has reported that it does not know the session (any more).
    pub(super) is_lost: bool,
    /// It has carried out a call in it.
    pub(super) has_served: bool,
    /// The session has a back channel over the connection.
    pub(super) is_called: bool,
}

/// A slot, as its requester has it.
#[derive(Clone, Copy, Debug, Default)]
struct ClientSlot {
    /// Sequence ID of the last request.
    sequence: u32,
    /// The call that is outstanding.
    token: Option<Token>,
}

impl Session4 {
    /// A session that takes `requests` requests at a time.
    pub(crate) fn new(minor: u32, client: u64, id: SessionId, requests: u32) -> Self {
        let slots = vec![ClientSlot::default(); requests.clamp(1, REQUESTS_MAX) as usize];
        Self {
            minor,
            client,
            id,
            owner: Vec::new(),
            slots,
            is_lost: false,
            has_served: false,
            is_called: false,
        }
    }

    /// Returns true if a call is one of this session's that are outstanding.
    pub(super) fn has(&self, token: Token) -> bool {
        self.slots.iter().any(|slot| slot.token == Some(token))
    }

    /// The slot and the SEQUENCE of a new request; none while all are busy.
    pub(crate) fn next_request(&self) -> Option<(usize, SequenceArgs)> {
        let (number, slot) =
            self.slots.iter().enumerate().find(|(_, slot)| slot.token.is_none())?;
        let used = self.slots.iter().rposition(|slot| slot.token.is_some()).unwrap_or(0);
        let sequence = SequenceArgs {
            session: self.id,
            sequence: slot.sequence.wrapping_add(1),
            slot: number as u32,
            highest_slot: used.max(number) as u32,
            cache_this: false,
        };
        Some((number, sequence))
    }

    /// A request goes out in a slot.
    pub(crate) fn begin(&mut self, slot: usize, token: Token) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = ClientSlot { sequence: slot.sequence.wrapping_add(1), token: Some(token) };
        }
    }

    /// The call of a slot is over.
    pub(crate) fn finish(&mut self, token: Token) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.token == Some(token)) {
            slot.token = None;
        }
    }
}

/// A unique name: of this process, at this time.
pub(super) fn owner() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("stag {} {}", std::process::id(), now.as_nanos()).into_bytes()
}

/// Arguments of EXCHANGE_ID (RFC 8881 §18.35), for a client without pNFS and without protection of
/// its state. `owner` is its unique name, of up to 1,024 octets.
pub fn exchange_id(owner: &[u8]) -> ExchangeIdArgs<'_> {
    ExchangeIdArgs {
        client: ClientOwner { verifier: FIRST, owner: Text(owner) },
        flags: exchange_flag::USE_NON_PNFS,
        protection: StateProtection::None,
        implementation: None,
    }
}

/// Arguments of CREATE_SESSION (RFC 8881 §18.36), without callbacks. `client_id` and `sequence`
/// come from EXCHANGE_ID; `message_max` is the octets of the longest request and the longest reply;
/// `requests_max` is the number of requests the session takes at a time.
pub fn create_session(
    client_id: u64,
    sequence: u32,
    message_max: u32,
    requests_max: u32,
) -> CreateSessionArgs<'static> {
    let fore = ChannelAttributes {
        header_pad: 0,
        request_max: message_max,
        response_max: message_max,
        response_cached_max: 2_048,
        operations_max: 16,
        requests_max,
        rdma_ird: None,
    };
    // Sizes that servers accept for a back channel that is not used.
    let back = ChannelAttributes {
        request_max: 4_096,
        response_max: 4_096,
        response_cached_max: 0,
        operations_max: 2,
        requests_max: 1,
        ..fore
    };
    CreateSessionArgs {
        client_id,
        sequence,
        flags: 0,
        fore,
        back,
        program: super::callbacks::PROGRAM,
        security: Array::of(&[CallbackSecurity::None]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_one_request_at_a_time_and_its_sequence_ids_rise() {
        let mut session = Session4::new(2, 1, [7; 16], 2);
        for round in 1..4 {
            for slot in 0..2 {
                let (number, args) = session.next_request().unwrap();
                assert_eq!((number, args.slot, args.sequence), (slot, slot as u32, round));
                session.begin(number, Token(slot as u64));
            }
            assert_eq!(session.next_request(), None, "both are busy");
            session.finish(Token(1));
            let (number, args) = session.next_request().unwrap();
            assert_eq!((number, args.highest_slot), (1, 1));
            session.finish(Token(0));
        }
    }
}
