//! A client's connections, as its tasks use them: calls and their outcomes, callbacks, time.

use stag_engine::{
    Answer as CallAnswer, App, Call, CallFault, Cause, Cx, Outcome, PeerId, Request as CallRequest,
    Token,
};
use stag_protocol::{
    nfs::{
        v3,
        v4::{
            Bitmap, CallbackAnswer, CallbackCompound, CallbackRequest, CbSequenceOk, Request,
            ResultsWriter, Status4, Text,
        },
    },
    rpc::{Accepted, Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader, Xid},
    xdr::Writer,
};
use stag_verbs::Time;
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    rc::Rc,
    task::Poll,
    time::Duration,
};

/// Time that a call may take over its connection, reconnections included.
const PATIENCE: Duration = Duration::from_secs(4);

/// `other` of a stateid.
pub type Other = [u8; 12];

/// A call that is to be sent over one of the connections.
struct Outgoing {
    token: u64,
    connection: usize,
    octets: Vec<u8>,
}

/// State that the tasks of a client share with its connections.
#[derive(Default)]
pub struct Mail {
    pub now: Time,
    /// The earliest time at which a task goes on.
    pub wake: Option<Time>,
    tokens: u64,
    outbox: VecDeque<Outgoing>,
    inbox: BTreeMap<u64, Result<Vec<u8>, CallFault>>,
    /// Delegations that were recalled.
    pub recalled: VecDeque<Other>,
    /// Delegations that the client knows.
    pub known: Vec<Other>,
    /// An OPEN is outstanding, whose delegation is not known.
    pub is_opening: bool,
    /// Change attribute and size of files under delegations to write.
    pub held: BTreeMap<Vec<u8>, (u64, u64)>,
    /// Callbacks are not answered.
    pub is_deaf: bool,
    pub losses: u64,
}

/// See [`Mail`].
pub type SharedMail = Rc<RefCell<Mail>>;

/// Time of the simulation.
pub fn now(mail: &SharedMail) -> Time {
    mail.borrow().now
}

/// Waits so long.
pub async fn rest(mail: &SharedMail, time: Duration) {
    let until = now(mail) + time;
    poll_fn(|_| {
        let mut mail = mail.borrow_mut();
        if mail.now >= until {
            return Poll::Ready(());
        }
        mail.wake = Some(mail.wake.map_or(until, |wake| wake.min(until)));
        Poll::Pending
    })
    .await;
}

/// Makes a call, and waits for its outcome.
pub async fn call(
    mail: &SharedMail,
    connection: usize,
    octets: Vec<u8>,
) -> Result<Vec<u8>, CallFault> {
    let token = {
        let mail = &mut *mail.borrow_mut();
        mail.tokens += 1;
        mail.outbox.push_back(Outgoing { token: mail.tokens, connection, octets });
        mail.tokens
    };
    poll_fn(|_| mail.borrow_mut().inbox.remove(&token).map_or(Poll::Pending, Poll::Ready)).await
}

/// A compound of a user.
pub fn compound(uid: u32, requests: &[Request<'_>]) -> Vec<u8> {
    encode(uid, 4, 1, |writer| {
        writer.opaque(b"").unwrap();
        writer.words([1, requests.len() as u32]).unwrap();
        requests.iter().for_each(|request| request.emit(writer).unwrap());
    })
}

/// A call of version 3.
pub fn call3(uid: u32, call: &v3::Call<'_>) -> Vec<u8> {
    encode(uid, 3, call.procedure().number(), |writer| call.emit(writer).unwrap())
}

fn encode(uid: u32, version: u32, procedure: u32, emit: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let gids = Gids::new(&[1_000]).unwrap();
    let sys = AuthSys { stamp: 1, machine_name: b"client", uid, gid: 1_000, gids };
    let (credential, verifier) = (Credential::Sys(sys), Auth::NONE);
    let program = 100_003;
    let header = CallHeader { xid: Xid(0), program, version, procedure, credential, verifier };
    let mut octets = vec![0; 4_000];
    let mut writer = Writer::new(&mut octets);
    header.emit(&mut writer).unwrap();
    emit(&mut writer);
    let len = writer.len();
    octets.truncate(len);
    octets
}

/// Status of a reply of version 3.
pub fn status3(reply: &[u8]) -> u32 {
    u32::from_be_bytes(*reply[ReplyHeader::LEN..].first_chunk().unwrap())
}

/// The connections of a client.
pub struct Carrier(pub SharedMail);

impl Carrier {
    /// Sends what the tasks have asked for.
    pub fn pump(&self, cx: &mut Cx<'_>, peers: &[PeerId]) {
        while let Some(outgoing) = { self.0.borrow_mut().outbox.pop_front() } {
            let mut message = cx.message(outgoing.octets.len()).unwrap();
            message.append(&outgoing.octets).unwrap();
            let token = Token(outgoing.token);
            let (reply_max, timeout) = (3_000, PATIENCE);
            let (item, result) = (None, None);
            let call = CallRequest { message, item, reply_max, result, timeout, token };
            cx.call(peers[outgoing.connection], call);
        }
    }

    fn answer<'a>(&self, request: &CallbackRequest<'a>) -> CallbackAnswer<'a> {
        let mail = &mut *self.0.borrow_mut();
        match request {
            CallbackRequest::Sequence(args) => CallbackAnswer::Sequence(Ok(CbSequenceOk {
                session: args.session,
                sequence: args.sequence,
                slot: args.slot,
                highest_slot: args.highest_slot,
                target_highest_slot: args.highest_slot,
            })),
            CallbackRequest::Recall(args) => {
                let other = args.delegation.other;
                let is_known = mail.known.contains(&other);
                if is_known {
                    mail.recalled.push_back(other);
                }
                // RFC 8881 §2.10.6.3: the reply that grants it may be in flight.
                let is_early = !is_known && mail.is_opening;
                CallbackAnswer::Recall(if is_early { Err(Status4::Delay) } else { Ok(()) })
            }
            CallbackRequest::RecallAny(_) => CallbackAnswer::RecallAny(Ok(())),
            CallbackRequest::GetAttr(args) => {
                let held = mail.held.get(args.file.0).copied();
                CallbackAnswer::GetAttr(held.map(raw_attributes).ok_or(Status4::BadHandle))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Change attribute and size on the wire.
fn raw_attributes<'a>((change, size): (u64, u64)) -> stag_protocol::nfs::v4::RawAttributes<'a> {
    let octets = [change.to_be_bytes(), size.to_be_bytes()].concat();
    let mask = Bitmap::of([3, 4]);
    stag_protocol::nfs::v4::RawAttributes { mask, octets: octets.leak() }
}

impl App for Carrier {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        if self.0.borrow().is_deaf {
            return;
        }
        let requests = CallbackCompound::parse(call.arguments.clone()).unwrap();
        let mut message = cx.message(1_024).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        let mut results = ResultsWriter::begin(&mut writer, Text(b"")).unwrap();
        for request in requests {
            results.push(&self.answer(&request.unwrap())).unwrap();
        }
        results.finish();
        let len = writer.len();
        message.extend(len);
        cx.answer(call.id, CallAnswer { message, item: None });
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let reply = outcome.reply.map(<[u8]>::to_vec);
        self.0.borrow_mut().inbox.insert(outcome.token.0, reply);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _cause: Cause) {
        self.0.borrow_mut().losses += 1;
    }
}
