//! `rpcrdma::Connection`: messages and actions in, their meaning out; a model checks both credit
//! counts and the option.

use std::mem::discriminant;

use stag_protocol::rpcrdma::{
    Body, ChunkLists, Connection, Credits, ErrorBody, Incoming, InlineSize, MessageType, NoCredit,
    PeerFault, PrivateData, Setup, Side, Version, Version2, Versions, Xid,
    option::{Exchange, Message, NoOption, OptionName, health},
};

use super::InputVerdict;
use crate::mutate::parts;

const ASK: Message = Message::Health(Exchange::Request(health::Request));

/// State of our own requests for the peer's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    Never,
    /// The first one holds a credit.
    First(Xid),
    Known,
    Again(Xid),
    Refused,
}

/// State of the peer's requests for our health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionState {
    Never,
    /// The first one counts as a call.
    First(Xid),
    Idle,
    Again(Xid),
}

/// Model of the rules that a connection has to keep (RFC 8166 §3.3, §4.5; draft 000 §3, §5).
struct Model {
    end: Connection,
    side: Side,
    versions: Versions,
    calls_max: u32,
    in_flight: u32,
    /// The last grant that the peer gave.
    limit: u32,
    /// The largest number of calls that the peer may think it has.
    allowed: u32,
    grant: u32,
    outstanding: u32,
    serves: bool,
    asks: CallState,
    asked: OptionState,
    /// A client whose version is settled by a call of its server, while its own first message is
    /// not answered.
    awaits_grant: bool,
}

/// The configuration that an octet selects.
fn versions(octet: u8) -> Versions {
    match octet % 5 {
        0 => Versions::One,
        1 => Versions::Both(Version2::Directed),
        2 => Versions::Two(Version2::Directed),
        3 => Versions::Both(Version2::Undirected),
        _ => Versions::Two(Version2::Undirected),
    }
}

impl Model {
    fn new(setup: Setup, versions: Versions) -> Self {
        Self {
            end: Connection::speaking(setup, versions),
            side: setup.side,
            versions,
            calls_max: setup.calls_max,
            in_flight: 0,
            limit: u32::from(setup.calls_max > 0),
            allowed: setup.grant,
            grant: setup.grant,
            outstanding: 0,
            serves: setup.grant > 0,
            awaits_grant: false,
            asks: CallState::Never,
            asked: OptionState::Never,
        }
    }

    fn check(&self) {
        if let Some(calls) = self.end.calls() {
            assert_eq!((calls.in_flight(), calls.limit()), (self.in_flight, self.limit));
            assert!((1..=self.calls_max).contains(&calls.limit()), "a grant is clamped");
            assert_eq!(calls.available(), self.limit.saturating_sub(self.in_flight));
            assert_eq!(calls.requested(), Credits(self.calls_max));
        }
        if let Some(serves) = self.end.serves() {
            assert_eq!(
                (serves.outstanding(), serves.granted()),
                (self.outstanding, Credits(self.grant))
            );
            assert!(
                self.outstanding <= self.allowed && self.allowed >= self.grant && self.grant > 0
            );
            assert_eq!(serves.reserved(), self.allowed);
        }
        assert_eq!(self.end.reply_header(Xid(3), Body::Msg).credits, Credits(self.grant));
        let is_spoken = match self.end.version() {
            Some(Version::One) => !matches!(self.versions, Versions::Two(_)),
            Some(Version::Two(dialect)) => {
                matches!(self.versions, Versions::Two(own) | Versions::Both(own) if own == dialect)
            }
            None => self.versions != Versions::One,
        };
        assert!(is_spoken, "{:?} with {:?}", self.end.version(), self.versions);
        let replies = matches!(self.asks, CallState::Known | CallState::Again(_));
        let requests = self.asked != OptionState::Never;
        assert_eq!(self.end.option_receives(), u32::from(replies) + u32::from(requests));
    }

    fn act(&mut self, action: &[u8]) {
        let value = action.get(1).copied().unwrap_or(0);
        match action.first().map(|action| action % 6) {
            Some(0) => {
                let is_early = self.side == Side::Server && self.end.version().is_none();
                let expected =
                    if !is_early && self.in_flight < self.limit { Ok(()) } else { Err(NoCredit) };
                assert_eq!(self.end.take_credit(), expected);
                if expected.is_ok() {
                    self.in_flight += 1;
                    let header = self.end.call_header(Xid(u32::from(value)), Body::Msg);
                    assert_eq!(header.credits, Credits(self.calls_max));
                }
            }
            // The option's credit is its own.
            Some(1) if self.in_flight > u32::from(matches!(self.asks, CallState::First(_))) => {
                self.end.give_credit();
                self.in_flight -= 1;
            }
            Some(2)
                if self.outstanding > u32::from(matches!(self.asked, OptionState::First(_))) =>
            {
                self.end.handle_replied();
                self.replied();
            }
            Some(3) if self.serves => {
                self.end.serves_mut().unwrap().set_grant(u32::from(value));
                self.grant = u32::from(value).max(1);
                self.allowed = self.allowed.max(self.grant);
            }
            Some(4) => self.answer(value),
            Some(5) => self.ask(Xid(u32::from(value))),
            _ => {}
        }
    }

    fn replied(&mut self) {
        self.outstanding -= 1;
        self.allowed = (self.allowed - 1).max(self.grant);
    }

    /// Answers what the peer asked of our health, or refuses.
    fn answer(&mut self, value: u8) {
        let (OptionState::First(xid) | OptionState::Again(xid)) = self.asked else { return };
        let refuses = value & 1 == 1;
        if matches!(self.asked, OptionState::First(_)) {
            self.replied();
        }
        if refuses {
            assert_eq!(self.end.refuse_option(xid, OptionName::Health).error, ErrorBody::Option);
            self.asked = OptionState::Never;
        } else {
            let Message::Health(Exchange::Reply(reply)) = self.end.answer_option(&ASK) else {
                panic!()
            };
            assert_eq!(
                (reply.credits_granted, reply.credits_in_use),
                (self.grant, self.outstanding)
            );
            self.asked = OptionState::Idle;
        }
    }

    /// Asks for the peer's health.
    fn ask(&mut self, xid: Xid) {
        let expected = match self.asks {
            _ if !matches!(self.end.version(), Some(Version::Two(_))) => Err(NoOption::Version),
            CallState::Never if self.in_flight < self.limit => Ok(CallState::First(xid)),
            CallState::Never => Err(NoOption::Credit),
            CallState::Known => Ok(CallState::Again(xid)),
            CallState::First(_) | CallState::Again(_) => Err(NoOption::Busy),
            CallState::Refused => Err(NoOption::Refused),
        };
        let asked = self.end.ask_option(xid, &ASK);
        assert_eq!(asked, expected.map(drop));
        if let Ok(asks) = expected {
            self.asks = asks;
            self.in_flight += u32::from(matches!(asks, CallState::First(_)));
            let mut out = [0; 64];
            let len = self.end.emit_option(xid, &ASK, &mut out).expect("a request is short");
            assert!(self.end.emit_option(xid, &ASK, &mut out[..len - 1]).is_err());
        }
    }

    /// An answer to what we asked, or a refusal.
    fn answered(&mut self, xid: Xid, asks: CallState) {
        match self.asks {
            CallState::First(asked) if asked == xid => self.in_flight -= 1,
            CallState::Again(asked) if asked == xid => {}
            other => panic!("nobody asked: {other:?}"),
        }
        self.asks = asks;
    }

    /// A call with the version `number`.
    fn called(&mut self, number: u32, was_settled: bool, lists: &ChunkLists) {
        assert!(self.serves && self.outstanding < self.allowed);
        let may_have_chunks = self.side == Side::Server || lists.intent().is_some();
        assert!(may_have_chunks || lists.is_empty(), "RFC 8167 §5.3");
        // A client may be called before its first call is answered.
        let version = self.end.version().map(Version::number);
        assert!(version == Some(number) || version.is_none() && self.side == Side::Client);
        self.awaits_grant |= self.side == Side::Client && !was_settled && version.is_some();
        self.outstanding += 1;
        if let Some(handle) = self.end.invalidates(lists) {
            assert!(self.side == Side::Server || lists.intent().is_some());
            let mut named = lists.segments().iter().filter(|segment| segment.handle == handle);
            assert!(
                named.any(|segment| segment.length > 0 || lists.intent().is_some()),
                "a key of this call"
            );
        }
    }

    /// The peer asks for our health.
    fn was_asked(&mut self, xid: Xid) {
        self.asked = match self.asked {
            OptionState::Never => {
                assert!(self.serves && self.outstanding < self.allowed);
                self.outstanding += 1;
                OptionState::First(xid)
            }
            OptionState::Idle => OptionState::Again(xid),
            other => panic!("one at a time: {other:?}"),
        };
    }

    fn receive(&mut self, message: &[u8], lists: &mut ChunkLists) -> Incoming {
        let was_settled = self.end.version().is_some();
        let awaited_grant = self.awaits_grant;
        let incoming = self.end.handle_message(message, lists);
        let word = |index: usize| u32::from_be_bytes(*message[index * 4..].first_chunk().unwrap());
        match incoming {
            Incoming::Call { header, direction, payload_at } => {
                assert_eq!((direction, header.xid), (self.side.serves(), Xid(word(0))));
                assert!(payload_at < message.len() || header.body == Body::NoMsg);
                self.called(word(1), was_settled, lists);
            }
            Incoming::Reply { header, direction, payload_at } => {
                assert_eq!((direction, header.xid), (self.side.calls(), Xid(word(0))));
                assert!(self.calls_max > 0 && payload_at <= message.len());
                // A reply that settles the version counts, a stray one before does not.
                self.awaits_grant = false;
                if self.end.version().is_some() {
                    self.limit = header.credits.0.clamp(1, self.calls_max);
                }
            }
            Incoming::Error { xid, direction, .. } => {
                assert_eq!((direction, xid), (self.side.calls(), Xid(word(0))));
                assert!(self.calls_max > 0);
                // Before the first message is answered there is one credit.
                if was_settled && !awaited_grant {
                    self.limit = word(2).clamp(1, self.calls_max);
                }
            }
            Incoming::Again { xid } => {
                assert_eq!((self.side, xid, was_settled), (Side::Client, Xid(word(0)), false));
                assert!(matches!(self.versions, Versions::Both(_)));
                let header = self.end.call_header(xid, Body::Msg);
                let mut out = [0; 64];
                self.end.emit(&header, &ChunkLists::new(), &mut out).expect("no chunks");
                assert_eq!(out[4..8], [0, 0, 0, 1], "as version 1");
            }
            Incoming::Option { xid, message: Message::Health(Exchange::Request(_)) } => {
                self.was_asked(xid);
            }
            Incoming::Option { xid, message: Message::Health(Exchange::Reply(_)) } => {
                self.answered(xid, CallState::Known);
            }
            Incoming::OptionRefused { xid, option: OptionName::Health } => {
                self.answered(xid, CallState::Refused)
            }
            Incoming::Answer(reply, fault) => {
                assert_eq!((reply.xid, reply.version), (Xid(word(0)), word(1)));
                assert_eq!(reply.credits, Credits(self.grant.max(1)), "no grant is zero");
                assert!(
                    self.side == Side::Server || is_of_a_call(&fault, lists),
                    "a client answers calls only"
                );
            }
            Incoming::Discard(_) => {}
            Incoming::Close(fault) => {
                assert_eq!(fault, PeerFault::CreditsExceeded);
                let asks_twice =
                    matches!(self.asked, OptionState::First(_) | OptionState::Again(_));
                assert!(self.outstanding == self.allowed || asks_twice);
            }
        }
        incoming
    }
}

/// Returns true if what is wrong is in a call.
fn is_of_a_call(fault: &PeerFault, lists: &ChunkLists) -> bool {
    matches!(
        fault,
        PeerFault::ReverseChunks
            | PeerFault::XidMismatch
            | PeerFault::UnknownOption(_)
            | PeerFault::BadOption(_)
    ) || lists.intent().is_some_and(|intent| intent.message_type == MessageType::Call)
}

/// The first part sets both ends up. Then shorter ones are actions, longer ones messages.
pub fn connection(input: &[u8]) -> InputVerdict {
    let mut parts = parts(input);
    let Some([side, calls_max, grant, own, peer, spoken, ..]) =
        parts.next().and_then(|set_up| set_up.first_chunk::<8>())
    else {
        return InputVerdict::Refused(0);
    };
    let versions = versions(*spoken);
    let offer = |octet: u8, least: u32| PrivateData {
        remote_invalidation: octet & 1 == 1,
        send: InlineSize::at_most(u32::from(octet) * 64),
        receive: InlineSize::at_most((u32::from(octet) * 128).max(least)),
    };
    let setup = Setup {
        side: if side & 1 == 0 { Side::Server } else { Side::Client },
        own: offer(*own, if versions.include_two() { 4096 } else { 0 }),
        peer: offer(*peer, 0),
        calls_max: u32::from(*calls_max),
        grant: u32::from(*grant),
    };
    let mut model = Model::new(setup, versions);
    let mut lists = ChunkLists::new();
    let mut outcomes = [0_u8; 9];
    let mut faults = 0;
    model.check();
    for part in parts {
        if part.len() < 4 {
            model.act(part);
        } else if part.len() < 8 {
            // Shorter than its version word.
            assert!(matches!(model.end.handle_message(part, &mut lists), Incoming::Discard(_)));
        } else {
            let (index, fault) = match model.receive(part, &mut lists) {
                Incoming::Call { .. } => (0, None),
                Incoming::Reply { .. } => (1, None),
                Incoming::Error { .. } => (2, None),
                Incoming::Again { .. } => (3, None),
                Incoming::Option { .. } => (4, None),
                Incoming::OptionRefused { .. } => (5, None),
                Incoming::Answer(_, fault) => (6, Some(fault)),
                Incoming::Discard(fault) => (7, Some(fault)),
                Incoming::Close(fault) => (8, Some(fault)),
            };
            outcomes[index] = (outcomes[index] + 1).min(2);
            faults ^= fault.map_or(0, |fault| super::class(discriminant(&fault)));
        }
        model.check();
    }
    let version = model.end.version().map(Version::number);
    if outcomes[..6] == [0; 6] {
        InputVerdict::Refused(super::class((outcomes, faults)))
    } else {
        InputVerdict::accepted((model.side == Side::Server, version, outcomes))
    }
}
