//! Back channels of clients of version 4 (RFC 8881 §2.10.3.1): calls of the server in the reverse
//! direction, over the connection of the clients' own calls.
//!
//! Callbacks are answered at once, whenever the client waits for something. They are recorded for
//! the user of the client, which has to make the calls that a recall requires.

use super::{OtherClient, Session4, session};
use crate::{Error, NfsClient};
use stag_protocol::{
    nfs::{
        v3::FileHandle,
        v4::{
            AnswerSet as _, Attribute, Bitmap, CALLBACK_VERSION, COMPOUND, CallbackAnswer,
            CallbackCompound, CallbackRequest, CbSequenceArgs, CbSequenceOk, CompoundReply,
            OperationFault, RawAttributes, Request, ResultsWriter, SessionId, Stateid, Status4,
        },
    },
    rpc::Accepted,
    xdr::{NoRoom, Writer},
};
use stag_rpc::{IncomingCall, Programs, Provider, Replied};
use std::{cell::RefCell, collections::VecDeque, mem, ops::RangeInclusive, rc::Rc};

/// The program that the server calls: a number from the range that clients may choose from.
pub(super) const PROGRAM: u32 = 0x4000_0000;
/// Octets of the longest reply.
const REPLY_MAX: usize = 1_024;
/// Most recalls that wait to be looked at: a server that sends more gets NFS4ERR_DELAY.
const RECALLED_MAX: usize = 64;

/// Change attribute and size of a file, as the holder of a write delegation has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAttributes {
    /// The file.
    pub file: FileHandle,
    /// Its change attribute.
    pub change: u64,
    /// Its size in octets.
    pub size: u64,
}

/// The back channels of all clients of a connection.
#[derive(Debug, Default)]
pub(crate) struct BackChannels {
    channels: Vec<ClientBackChannel>,
    /// Callbacks that were carried out.
    carried_out: u64,
}

/// The back channel of one session: one slot.
#[derive(Debug)]
struct ClientBackChannel {
    session: SessionId,
    minor: u32,
    /// Sequence ID of the latest request.
    sequence: u32,
    /// The results of that, returned again to a retry (RFC 8881 §2.10.6.1).
    kept: Vec<u8>,
    /// Delegations that were recalled, until they are taken.
    recalled: VecDeque<Stateid>,
    /// The answer to CB_GETATTR.
    held: Option<HeldAttributes>,
    /// CB_GETATTRs that were answered by that.
    asked: u32,
}

impl ClientBackChannel {
    /// Checks a CB_SEQUENCE (RFC 8881 §20.9.3). `Ok(false)` is a retry.
    fn judge(&self, args: &CbSequenceArgs<'_>) -> Result<bool, Status4> {
        if args.slot > 0 || args.highest_slot > 0 {
            return Err(if args.slot > 0 { Status4::BadSlot } else { Status4::BadHighSlot });
        }
        match args.sequence {
            next if next == self.sequence.wrapping_add(1) => Ok(true),
            again if again == self.sequence && !self.kept.is_empty() => Ok(false),
            _ => Err(Status4::SeqMisordered),
        }
    }

    /// Carries out a callback that follows its CB_SEQUENCE.
    fn carry_out<'a>(
        &mut self,
        request: &CallbackRequest<'_>,
        octets: &'a mut [u8; 16],
    ) -> CallbackAnswer<'a> {
        match request {
            // RFC 8881 §20.9.3: it is the first operation, and no other one
            CallbackRequest::Sequence(_) => CallbackAnswer::Sequence(Err(Status4::SequencePos)),
            CallbackRequest::Recall(args) => {
                let is_full = self.recalled.len() >= RECALLED_MAX;
                if !is_full {
                    self.recalled.push_back(args.delegation);
                }
                CallbackAnswer::Recall(if is_full { Err(Status4::Delay) } else { Ok(()) })
            }
            CallbackRequest::GetAttr(args) => {
                let held = self.held.filter(|held| held.file.octets() == args.file.0);
                self.asked = self.asked.saturating_add(u32::from(held.is_some()));
                // RFC 8881 §20.1.3: of a file that is not delegated to the client
                let told = held.ok_or(Status4::BadHandle);
                CallbackAnswer::GetAttr(told.map(|held| attributes(held, args.attributes, octets)))
            }
            // There is one slot, and nothing to return by choice.
            CallbackRequest::RecallAny(_) => CallbackAnswer::RecallAny(Ok(())),
            CallbackRequest::RecallSlot(_) => CallbackAnswer::RecallSlot(Ok(())),
            CallbackRequest::NotifyLock(_) => CallbackAnswer::NotifyLock(Ok(())),
        }
    }
}

/// The requested ones of change attribute and size, in rising order.
fn attributes<'a>(
    held: HeldAttributes,
    asked: Bitmap,
    octets: &'a mut [u8; 16],
) -> RawAttributes<'a> {
    let mut writer = Writer::new(octets);
    let mut mask = Bitmap::default();
    for (attribute, value) in [(Attribute::Change, held.change), (Attribute::Size, held.size)] {
        let number = attribute as u32;
        if asked.contains(number) && writer.u64(value).is_ok() {
            mask.insert(number);
        }
    }
    let len = writer.len();
    RawAttributes { mask, octets: octets.get(..len).unwrap_or_default() }
}

impl BackChannels {
    fn of(&mut self, session: &SessionId) -> Option<&mut ClientBackChannel> {
        self.channels.iter_mut().find(|channel| channel.session == *session)
    }

    /// Carries out a CB_COMPOUND. Returns the octets of its results, which are in `room`.
    fn carry_out<'r>(
        &mut self,
        mut requests: CallbackCompound<'_>,
        room: &'r mut [u8; REPLY_MAX],
    ) -> Result<&'r [u8], NoRoom> {
        let (tag, minor) = (requests.head().tag, requests.head().minor_version);
        let first = requests.next();
        let mut writer = Writer::new(room);
        let mut results = ResultsWriter::begin(&mut writer, tag)?;
        let args = match first {
            None => None,
            // RFC 8881 §20.9.3: CB_SEQUENCE comes first
            Some(Ok(CallbackRequest::Sequence(args))) => Some(args),
            Some(Ok(request)) => {
                let operation = Some(request.operation());
                let fault = OperationFault { operation, status: Status4::OpNotInSession };
                results.push_with(fault.status, |writer| fault.emit(writer))?;
                None
            }
            Some(Err(fault)) => {
                results.push_with(fault.status, |writer| fault.emit(writer))?;
                None
            }
        };
        let channel = args.as_ref().and_then(|args| self.of(&args.session));
        match (args, channel) {
            (Some(args), Some(channel)) if channel.minor == minor => {
                match channel.judge(&args) {
                    Err(status) => results.push(&CallbackAnswer::Sequence(Err(status)))?,
                    Ok(false) => {
                        let kept = channel.kept.as_slice();
                        let room = room.get_mut(..kept.len()).ok_or(NoRoom)?;
                        room.copy_from_slice(kept);
                        return Ok(room);
                    }
                    Ok(true) => {
                        channel.sequence = args.sequence;
                        channel.run(&args, requests, &mut results)?;
                        results.finish();
                        let len = writer.len();
                        let done = room.get(..len).unwrap_or_default();
                        channel.kept = done.to_vec();
                        self.carried_out += 1;
                        return Ok(done);
                    }
                }
                results.finish();
            }
            // RFC 8881 §20.2.3: it has no results
            (Some(_), Some(_)) => results.finish_with(Status4::MinorVersMismatch),
            (Some(_), None) => {
                results.push(&CallbackAnswer::Sequence(Err(Status4::BadSession)))?;
                results.finish();
            }
            (None, _) => {
                results.finish();
            }
        }
        let len = writer.len();
        Ok(room.get(..len).unwrap_or_default())
    }
}

impl ClientBackChannel {
    /// A channel of a session that is new.
    fn new(session: &Session4) -> Self {
        Self {
            session: session.id,
            minor: session.minor,
            sequence: 0,
            kept: Vec::new(),
            recalled: VecDeque::new(),
            held: None,
            asked: 0,
        }
    }

    /// Carries out what follows a CB_SEQUENCE.
    fn run(
        &mut self,
        args: &CbSequenceArgs<'_>,
        requests: CallbackCompound<'_>,
        results: &mut ResultsWriter<'_, '_>,
    ) -> Result<(), NoRoom> {
        results.push(&CallbackAnswer::Sequence(Ok(CbSequenceOk {
            session: args.session,
            sequence: args.sequence,
            slot: args.slot,
            highest_slot: 0,
            target_highest_slot: 0,
        })))?;
        for request in requests {
            let request = match request {
                Ok(request) => request,
                Err(fault) => return results.push_with(fault.status, |writer| fault.emit(writer)),
            };
            let mut octets = [0; 16];
            let answer = self.carry_out(&request, &mut octets);
            results.push(&answer)?;
            if answer.status() != Status4::Ok {
                break;
            }
        }
        Ok(())
    }
}

/// The program that the server calls.
struct CallbackProgram(Rc<RefCell<BackChannels>>);

impl Programs for CallbackProgram {
    fn serves(&self, program: u32, version: u32) -> bool {
        (program, version) == (PROGRAM, CALLBACK_VERSION)
    }

    fn versions(&self, program: u32) -> Option<RangeInclusive<u32>> {
        (program == PROGRAM).then_some(CALLBACK_VERSION..=CALLBACK_VERSION)
    }

    fn answer(&mut self, call: IncomingCall<'_, '_>) -> Replied {
        if call.procedure() != COMPOUND {
            return call.refuse(Accepted::ProcUnavail);
        }
        let Ok(requests) = CallbackCompound::parse(call.arguments()) else {
            return call.refuse(Accepted::GarbageArgs);
        };
        let mut room = [0; REPLY_MAX];
        match self.0.borrow_mut().carry_out(requests, &mut room) {
            Ok(results) => call.reply_with(|writer| writer.fixed(results)),
            Err(NoRoom) => call.refuse(Accepted::SystemErr),
        }
    }
}

impl<P: Provider> NfsClient<P> {
    /// Makes one more client and its session, as [`other_client`](Self::other_client) does, with a
    /// back channel if the server accepts one, so that it may have delegations.
    ///
    /// # Errors
    /// [`Error`] says which call failed.
    pub fn other_client_with_callbacks(&mut self, minor: u32) -> Result<OtherClient, Error> {
        if self.back.is_none() {
            let back = Rc::<RefCell<BackChannels>>::default();
            self.raw_mut().serve(Box::new(CallbackProgram(Rc::clone(&back))));
            self.back = Some(back);
        }
        let own = self.four.take();
        let begun = self.begin_session4(minor, session::owner(), true);
        let other = mem::replace(&mut self.four, own);
        begun.map(|()| OtherClient(other))
    }

    /// Records the back channel of a session: the server may call at once.
    pub(super) fn note_back_channel(&mut self, session: &Session4) {
        if let Some(back) = &self.back {
            back.borrow_mut().channels.push(ClientBackChannel::new(session));
        }
    }

    /// The session is over.
    pub(super) fn forget_back_channel(&mut self, session: &Session4) {
        if let Some(back) = &self.back {
            back.borrow_mut().channels.retain(|channel| channel.session != session.id);
        }
    }

    fn with_channel<T>(
        &self,
        client: &OtherClient,
        run: impl FnOnce(&mut ClientBackChannel) -> T,
    ) -> Option<T> {
        let session = client.0.as_ref()?;
        self.back.as_ref()?.borrow_mut().of(&session.id).map(run)
    }

    /// The next delegation of a client that the server recalled.
    pub fn next_recalled(&mut self, client: &OtherClient) -> Option<Stateid> {
        self.with_channel(client, |channel| channel.recalled.pop_front()).flatten()
    }

    /// Makes a client answer CB_GETATTR with these from now on; with none, by NFS4ERR_BADHANDLE.
    pub fn hold(&mut self, client: &OtherClient, held: Option<HeldAttributes>) {
        self.with_channel(client, |channel| channel.held = held);
    }

    /// CB_GETATTRs that a client has answered by attributes so far.
    pub fn attributes_told(&self, client: &OtherClient) -> u32 {
        self.with_channel(client, |channel| channel.asked).unwrap_or(0)
    }

    /// Callbacks that were carried out so far, of all clients.
    fn callbacks(&self) -> u64 {
        self.back.as_ref().map_or(0, |back| back.borrow().carried_out)
    }

    /// Runs operations in the session of another client, as [`compound`](Self::compound) does, and
    /// calls `on_callback` whenever the server has called meanwhile: the server may be waiting for
    /// a call of ours.
    ///
    /// # Errors
    /// As [`compound`](Self::compound), and those of `on_callback`.
    pub fn compound_beside_callbacks<T>(
        &mut self,
        client: &mut OtherClient,
        requests: &[Request<'_>],
        read: impl FnOnce(CompoundReply<'_>) -> Result<T, Error>,
        mut on_callback: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<T, Error> {
        let back = self.back.clone().unwrap_or_default();
        let mut seen = self.callbacks();
        let octets = super::requests::emitted(requests);
        mem::swap(&mut self.four, &mut client.0);
        let sent = self.send4(requests.len(), &octets, 80_000, 0, None);
        mem::swap(&mut self.four, &mut client.0);
        let token = sent?;
        self.keeps_outcomes = true;
        let waited = loop {
            if let Some(at) = self.kept.iter().position(|done| done.token == token) {
                break Ok(self.kept.remove(at));
            }
            let has_news = || back.borrow().carried_out != seen;
            match self.raw_mut().next_finished_or(has_news) {
                Ok(Some(done)) => self.kept.push_back(done),
                Ok(None) => {
                    seen = self.callbacks();
                    if let Err(error) = on_callback(self) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error.into()),
            }
        };
        self.keeps_outcomes = false;
        let done = waited?.ok_or(Error::Nonsense("an outcome that was there is gone"))?;
        mem::swap(&mut self.four, &mut client.0);
        let done = self.conclude4(done, read);
        mem::swap(&mut self.four, &mut client.0);
        done
    }

    /// Waits for so long, and answers callbacks meanwhile.
    pub fn pause(&mut self, time: std::time::Duration) {
        self.raw_mut().serve_for(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::{
        nfs::v4::{Array, CallbackHead, CallbackReply, CbGetAttrArgs, CbRecallArgs, Text},
        xdr::{Codec as _, Reader},
    };

    const SESSION: SessionId = [7; 16];
    const DELEGATION: Stateid = Stateid { seqid: 1, other: [9; 12] };

    fn channels() -> BackChannels {
        let session = Session4::new(2, 1, SESSION, 1);
        BackChannels { channels: vec![ClientBackChannel::new(&session)], carried_out: 0 }
    }

    fn sequence(sequence: u32) -> CallbackRequest<'static> {
        CallbackRequest::Sequence(CbSequenceArgs {
            session: SESSION,
            sequence,
            slot: 0,
            highest_slot: 0,
            cache_this: false,
            referring: Array::of(&[]),
        })
    }

    fn recall() -> CallbackRequest<'static> {
        let args = CbRecallArgs { delegation: DELEGATION, truncate: false, file: Text(b"it") };
        CallbackRequest::Recall(args)
    }

    /// The reply to a compound of minor version `minor`: its octets.
    fn call(channels: &mut BackChannels, minor: u32, requests: &[CallbackRequest<'_>]) -> Vec<u8> {
        let mut octets = [0; 1_024];
        let mut writer = Writer::new(&mut octets);
        let operations = requests.len() as u32;
        let head = CallbackHead { tag: Text(b"tag"), minor_version: minor, ident: 0, operations };
        head.emit(&mut writer).unwrap();
        for request in requests {
            request.emit(&mut writer).unwrap();
        }
        let len = writer.len();
        let requests = CallbackCompound::parse(Reader::new(octets.get(..len).unwrap())).unwrap();
        channels.carry_out(requests, &mut [0; REPLY_MAX]).unwrap().to_vec()
    }

    /// The status of a reply, and of each of its operations.
    fn statuses(reply: &[u8]) -> (Status4, Vec<Status4>) {
        let mut reply = CallbackReply::parse(Reader::new(reply)).unwrap();
        let each = reply.by_ref().map(|answer| answer.unwrap().status()).collect();
        let status = reply.head().status;
        assert_eq!(reply.head().tag, Text(b"tag"));
        reply.finish().unwrap();
        (status, each)
    }

    #[test]
    fn a_retry_is_not_carried_out_again_and_gets_the_same_reply() {
        let mut channels = channels();
        let first = call(&mut channels, 2, &[sequence(1), recall()]);
        assert_eq!(statuses(&first), (Status4::Ok, vec![Status4::Ok, Status4::Ok]));
        assert_eq!(call(&mut channels, 2, &[sequence(1), recall()]), first);
        assert_eq!((channels.channels[0].recalled.len(), channels.carried_out), (1, 1));
        for wrong in [0, 3, u32::MAX] {
            let reply = call(&mut channels, 2, &[sequence(wrong), recall()]);
            let misordered = Status4::SeqMisordered;
            assert_eq!(statuses(&reply), (misordered, vec![misordered]), "{wrong}");
        }
        let next = call(&mut channels, 2, &[sequence(2)]);
        assert_eq!(statuses(&next), (Status4::Ok, vec![Status4::Ok]));
    }

    #[test]
    fn what_does_not_begin_with_the_slot_of_a_session_is_not_carried_out() {
        let mut channels = channels();
        let alone = |status| (status, vec![status]);
        let CallbackRequest::Sequence(args) = sequence(1) else { unreachable!() };
        let other = CallbackRequest::Sequence(CbSequenceArgs { session: [8; 16], ..args.clone() });
        let reply = call(&mut channels, 2, &[other, recall()]);
        assert_eq!(statuses(&reply), alone(Status4::BadSession));
        let slot = CallbackRequest::Sequence(CbSequenceArgs { slot: 1, ..args.clone() });
        assert_eq!(statuses(&call(&mut channels, 2, &[slot])), alone(Status4::BadSlot));
        let high = CallbackRequest::Sequence(CbSequenceArgs { highest_slot: 1, ..args });
        assert_eq!(statuses(&call(&mut channels, 2, &[high])), alone(Status4::BadHighSlot));
        let reply = call(&mut channels, 2, &[recall()]);
        assert_eq!(statuses(&reply), alone(Status4::OpNotInSession));
        let reply = call(&mut channels, 1, &[sequence(1), recall()]);
        assert_eq!(statuses(&reply), (Status4::MinorVersMismatch, vec![]));
        assert_eq!(statuses(&call(&mut channels, 2, &[])), (Status4::Ok, vec![]));
        assert!(channels.channels[0].recalled.is_empty());
        // It comes once.
        let reply = call(&mut channels, 2, &[sequence(1), sequence(2), recall()]);
        let twice = vec![Status4::Ok, Status4::SequencePos];
        assert_eq!(statuses(&reply), (Status4::SequencePos, twice));
    }

    #[test]
    fn attributes_are_told_of_what_is_held_and_a_flood_of_recalls_is_put_off() {
        let mut channels = channels();
        let file = FileHandle::new(b"it").unwrap();
        let asked = |attributes: &[Attribute]| {
            let attributes = Bitmap::of(attributes.iter().map(|it| *it as u32));
            CallbackRequest::GetAttr(CbGetAttrArgs { file: Text(b"it"), attributes })
        };
        let both = [Attribute::Change, Attribute::Size, Attribute::Mode];
        let reply = call(&mut channels, 2, &[sequence(1), asked(&both)]);
        assert_eq!(statuses(&reply).0, Status4::BadHandle, "it has none");
        channels.channels[0].held = Some(HeldAttributes { file, change: 5, size: 6 });
        for (number, attributes, octets) in [
            (2, &both[..], [5_u64.to_be_bytes(), 6_u64.to_be_bytes()].concat()),
            (3, &both[1..2], 6_u64.to_be_bytes().to_vec()),
            (4, &[], vec![]),
        ] {
            let reply = call(&mut channels, 2, &[sequence(number), asked(attributes)]);
            let last = CallbackReply::parse(Reader::new(&reply)).unwrap().last().unwrap();
            let Ok(CallbackAnswer::GetAttr(Ok(told))) = last else { panic!("{last:?}") };
            assert_eq!(told.octets, octets);
        }
        assert_eq!(channels.channels[0].asked, 3);
        let put_off = (5..200).find(|number| {
            statuses(&call(&mut channels, 2, &[sequence(*number), recall()])).0 == Status4::Delay
        });
        assert_eq!(put_off, Some(5 + RECALLED_MAX as u32));
    }
}
