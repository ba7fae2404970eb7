//! Sessions of NFS version 4.1 (RFC 8881 §2.10): one for each connection, each of a client of its
//! own, as if every connection came from another host.
//!
//! They are made before the first call that counts and ended after the last one. A place for a
//! call is a slot of its connection's session.

use super::{ASKED_OF_SESSION, Generator};
use crate::workload::{CallOutlet, MINOR_VERSION, Maker, OTHER, SessionPlace, opening};
use stag_client::{Error, create_session, exchange_id};
use stag_engine::{Cx, Token};
use stag_protocol::{
    nfs::{
        v3::FileHandle,
        v4::{
            Answer, AnswerSet as _, Close4Args, CompoundHead, CompoundReply, Request, SequenceArgs,
            SessionId, Stateid, Status4, Text,
        },
    },
    xdr::{Codec as _, NoRoom, Reader, Writer},
};
use stag_rpc::accepted;

/// Octets of a request and a reply in addition to their payload.
const AROUND_LEN: u32 = 8_192;
/// Octets of the longest results of a step.
const RESULTS_LEN_MAX: usize = 2_048;

/// A step of making a session, or of ending it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionStep {
    ExchangeId,
    CreateSession,
    /// RECLAIM_COMPLETE: there is nothing of before.
    ReclaimComplete,
    /// OPEN of the generator's file.
    Open,
    Close,
    DestroySession,
    DestroyClientid,
}

impl SessionStep {
    /// Steps to a session; the last one only for calls that read or write.
    pub const BEGIN: [Self; 4] =
        [Self::ExchangeId, Self::CreateSession, Self::ReclaimComplete, Self::Open];
    /// Steps that leave nothing at the server.
    pub const END: [Self; 3] = [Self::Close, Self::DestroySession, Self::DestroyClientid];
}

/// The session of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct LoadSession {
    client: Option<u64>,
    /// Sequence ID of CREATE_SESSION.
    creation: u32,
    id: Option<SessionId>,
    open: Option<Stateid>,
}

/// The sessions of a generator.
#[derive(Debug)]
pub(super) struct Sessions {
    sessions: Box<[LoadSession]>,
    /// Sequence ID of the last request of each place for a call.
    sequences: Box<[u32]>,
    /// Name of the run: client owners begin with it.
    run: [u8; 16],
    /// The outstanding step and its connection.
    step: Option<(usize, SessionStep)>,
    ended: Option<Result<(), Error>>,
}

impl Sessions {
    /// Sessions to be made for `connections`, with `places` places for calls together.
    pub(super) fn new(connections: usize, places: usize) -> Self {
        Self {
            sessions: vec![LoadSession::default(); connections].into_boxed_slice(),
            sequences: vec![0; places].into_boxed_slice(),
            run: [0; 16],
            step: None,
            ended: None,
        }
    }

    /// The place of the next call of place `index` in the session of its connection.
    /// [`Self::begin`] uses it up.
    pub(super) fn next_place(&self, index: u32) -> Option<SessionPlace> {
        let session = self.sessions.get((index as usize).checked_rem(self.sessions.len())?)?;
        let sent = self.latest(index)?;
        let sequence = SequenceArgs { sequence: sent.sequence.wrapping_add(1), ..sent };
        let token = Token(index.into());
        Some(SessionPlace { token, sequence, open: session.open.unwrap_or(Stateid::ANONYMOUS) })
    }

    /// SEQUENCE of the latest call of place `index`.
    pub(super) fn latest(&self, index: u32) -> Option<SequenceArgs> {
        let (index, connections) = (index as usize, self.sessions.len());
        Some(SequenceArgs {
            session: self.sessions.get(index.checked_rem(connections)?)?.id?,
            sequence: *self.sequences.get(index)?,
            slot: u32::try_from(index / connections).ok()?,
            highest_slot: slots(connections, self.sequences.len()).saturating_sub(1),
            cache_this: false,
        })
    }

    /// The call of place `index` went out.
    #[inline]
    pub(super) fn begin(&mut self, index: u32) {
        if let Some(sequence) = self.sequences.get_mut(index as usize) {
            *sequence = sequence.wrapping_add(1);
        }
    }

    /// The server did not execute the latest call of place `index`.
    pub(super) fn undo(&mut self, index: u32) {
        if let Some(sequence) = self.sequences.get_mut(index as usize) {
            *sequence = sequence.wrapping_sub(1);
        }
    }

    /// Takes the reply to a step.
    pub(super) fn finish(&mut self, reply: Result<&[u8], Error>) {
        let Some((connection, step)) = self.step.take() else { return };
        let slots = slots(self.sessions.len(), self.sequences.len());
        let Some(session) = self.sessions.get_mut(connection) else { return };
        self.ended = Some(reply.and_then(|reply| session.take(step, reply, slots)));
    }

    /// Takes the outcome of the step that [`Generator::begin_session_step`] began.
    pub(super) fn take_ended(&mut self) -> Option<Result<(), Error>> {
        self.ended.take()
    }
}

/// Slots of each session.
fn slots(connections: usize, places: usize) -> u32 {
    u32::try_from(places.checked_div(connections).unwrap_or(0)).unwrap_or(u32::MAX)
}

impl LoadSession {
    /// Takes what a step gives; `slots` are needed.
    fn take(&mut self, step: SessionStep, reply: &[u8], slots: u32) -> Result<(), Error> {
        let mut results = Reader::new(reply);
        accepted(&mut results)?;
        let mut reply = CompoundReply::parse(results).map_err(Error::Garbled)?;
        match (step, succeeded(&mut reply)?) {
            (SessionStep::ExchangeId, Answer::ExchangeId(Ok(known))) => {
                (self.client, self.creation) = (Some(known.client_id), known.sequence);
                Ok(())
            }
            (SessionStep::CreateSession, Answer::CreateSession(Ok(made))) => {
                self.id = Some(made.session);
                let is_enough = made.fore.requests_max >= slots;
                if is_enough { Ok(()) } else { Err(FEW_SLOTS) }
            }
            (SessionStep::Open, Answer::Sequence(Ok(_))) => {
                succeeded(&mut reply)?;
                let Answer::Open(Ok(done)) = succeeded(&mut reply)? else { return Err(OTHER) };
                self.open = Some(done.stateid);
                Ok(())
            }
            (SessionStep::Close | SessionStep::ReclaimComplete, Answer::Sequence(Ok(_))) => {
                succeeded(&mut reply)?;
                if step == SessionStep::Close {
                    succeeded(&mut reply)?;
                }
                Ok(())
            }
            (SessionStep::DestroySession, Answer::DestroySession(Ok(())))
            | (SessionStep::DestroyClientid, Answer::DestroyClientid(Ok(()))) => Ok(()),
            _ => Err(OTHER),
        }
    }
}

const FEW_SLOTS: Error =
    Error::Nonsense("the server gives a session fewer slots than --depth: give a lower one");

impl Generator {
    /// The same, whose calls are compounds of NFS version 4.1 in a session for each of
    /// `connections`.
    pub(crate) fn in_sessions(self, connections: usize) -> Self {
        let sessions = Sessions::new(connections, self.slots.len());
        Self { sessions: Some(Box::new(sessions)), ..self }
    }

    /// Names the run: the prefix of its client owners, which no other run has.
    pub(crate) fn name_sessions(&mut self, run: [u8; 16]) {
        if let Some(sessions) = &mut self.sessions {
            sessions.run = run;
        }
    }

    /// Connections that need a session; none unless the workload is one of version 4.1.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.as_ref().map_or(0, |sessions| sessions.sessions.len())
    }

    /// Begins a step of the session of a connection. False when there is nothing to do.
    pub(crate) fn begin_session_step(
        &mut self,
        cx: &mut Cx<'_>,
        connection: usize,
        step: SessionStep,
    ) -> Result<bool, Error> {
        let peer = *self.peers.get(connection).ok_or(Error::NotConnected(self.down))?;
        let Some(sessions) = &mut self.sessions else { return Ok(false) };
        sessions.step = Some((connection, step));
        let Some(contexts) = &mut self.contexts else {
            return sessions.send(cx, peer, &self.maker);
        };
        let outlet = contexts.outlet(contexts.step(), connection, peer);
        sessions.send(cx, outlet.ok_or(Error::NoContext)?, &self.maker)
    }

    /// Takes the outcome of that step; it is returned once.
    pub(crate) fn take_session_step(&mut self) -> Option<Result<(), Error>> {
        self.sessions.as_mut()?.take_ended()
    }
}

impl Sessions {
    fn send(
        &mut self,
        cx: &mut Cx<'_>,
        mut to: impl CallOutlet,
        maker: &Maker,
    ) -> Result<bool, Error> {
        let (connection, step) = self.step.ok_or(OTHER)?;
        let session = *self.sessions.get(connection).ok_or(OTHER)?;
        let files = maker.files.as_ref().ok_or(OTHER)?;
        let first = u32::try_from(connection).map_err(|_| OTHER)?;
        let mut owner = [0; 20];
        for (to, from) in owner.iter_mut().zip(self.run.into_iter().chain(first.to_be_bytes())) {
            *to = from;
        }
        let slots = slots(self.sessions.len(), self.sequences.len());
        let sequence = self.next_place(first).map(|place| Request::Sequence(place.sequence));
        let mut send = |requests: &[Request<'_>]| {
            let call = maker.compound_call(RESULTS_LEN_MAX);
            maker
                .short_compound(cx, &mut to, ASKED_OF_SESSION, call, |writer| {
                    emit(writer, requests)
                })
                .ok_or(Error::NoMemory)?;
            if let [Request::Sequence(_), ..] = requests {
                self.begin(first);
            }
            Ok::<_, Error>(true)
        };
        let LoadSession { client, creation, id, open } = session;
        match (step, client, id, open, sequence) {
            (SessionStep::ExchangeId, ..) => send(&[Request::ExchangeId(exchange_id(&owner))]),
            (SessionStep::CreateSession, Some(client), ..) => {
                let message_max = u32::try_from(maker.len).unwrap_or(u32::MAX);
                let message_max = message_max.saturating_add(AROUND_LEN);
                send(&[Request::CreateSession(create_session(
                    client,
                    creation,
                    message_max,
                    slots,
                ))])
            }
            (SessionStep::ReclaimComplete, .., Some(sequence)) => {
                send(&[sequence, Request::ReclaimComplete(false)])
            }
            (SessionStep::Open, .., Some(sequence)) if maker.workload.has_payload() => {
                send(&[sequence, put(&files.file), Request::Open(opening())])
            }
            (SessionStep::Close, _, _, Some(open), Some(sequence)) => {
                let close = Request::Close(Close4Args { seqid: 0, open });
                send(&[sequence, put(&files.file), close])
            }
            (SessionStep::DestroySession, _, Some(id), ..) => send(&[Request::DestroySession(id)]),
            (SessionStep::DestroyClientid, Some(client), ..) => {
                send(&[Request::DestroyClientid(client)])
            }
            (SessionStep::ReclaimComplete, ..) => Err(OTHER),
            // There is nothing to open, or nothing to end.
            _ => Ok(false),
        }
    }
}

/// The next result, of an operation that succeeded.
fn succeeded<'a>(reply: &mut CompoundReply<'a>) -> Result<Answer<'a>, Error> {
    let answer = reply.next().ok_or(OTHER)?.map_err(Error::Garbled)?;
    match answer.status() {
        Status4::Ok => Ok(answer),
        status => Err(Error::Nfs4(status)),
    }
}

/// PUTFH of a handle.
fn put(handle: &FileHandle) -> Request<'_> {
    Request::PutFh(Text(handle.octets()))
}

/// Writes a COMPOUND without a tag.
fn emit(writer: &mut Writer<'_>, requests: &[Request<'_>]) -> Result<(), NoRoom> {
    let operations = u32::try_from(requests.len()).unwrap_or(u32::MAX);
    CompoundHead { tag: Text(b""), minor_version: MINOR_VERSION, operations }.emit(writer)?;
    requests.iter().try_for_each(|request| request.emit(writer))
}

/// True if no later call of the session can succeed.
pub(super) const fn ends_sessions(error: &Error) -> bool {
    matches!(
        error,
        Error::Nfs4(
            Status4::BadSession
                | Status4::DeadSession
                | Status4::StaleClientid
                | Status4::ConnNotBoundToSession
                | Status4::SeqMisordered
                | Status4::BadSlot
                | Status4::BadHighSlot
                | Status4::SeqFalseRetry
        )
    )
}
