//! Driver: reverse calls (RFC 8167), one after the other, to a client that asks for them, for
//! measurements.
//!
//! DRIVE is not answered while the server calls: it keeps a LAP outstanding on each of the caller's
//! places. Only the server knows the time of a LAP, because it is the requester. So each LAP says
//! how long the one before it on its place took. Its reply says whether to go on. Once all places
//! were asked to stop, DRIVE is answered.

use crate::{DRIVE, ECHO_MAX, Echo, LAP, PLACES, PROGRAM, VERSION, copy, part, reply, request};
use stag_engine::{
    Answer, App, Call, CallFault, CallId, Cx, Outcome, PeerId, Request, RequestItem, Time, Token,
};
use stag_protocol::{
    rpc::{self, Accepted, NullHeader, ReplyHeader},
    xdr::{self, NoRoom, Piece, Reader, Writer},
};

/// Places of one DRIVE at most.
pub const DEPTH_MAX: u32 = 128;
/// Places of all callers.
const PLACES_MAX: u32 = 1_024;

/// The arguments of DRIVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drive {
    /// The number of the first place, as the caller counts them.
    pub first: u32,
    /// Places: LAPs outstanding at a time, 1 to [`DEPTH_MAX`].
    pub depth: u32,
    /// Octets of payload of a LAP, there and back; at most [`ECHO_MAX`].
    pub len: u32,
    /// Compare what comes back.
    pub verify: bool,
}

impl Drive {
    /// Octets of the arguments.
    pub const LEN: usize = 16;

    /// Writes the arguments.
    ///
    /// # Errors
    /// [`NoRoom`], when there are less than [`Drive::LEN`] octets.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        [self.first, self.depth, self.len].into_iter().try_for_each(|word| writer.u32(word))?;
        writer.bool(self.verify)
    }

    fn parse(mut reader: Reader<'_>) -> Option<Self> {
        let mut word = || reader.u32().ok();
        let drive = Self { first: word()?, depth: word()?, len: word()?, verify: word()? == 1 };
        reader.finish().ok()?;
        let is_sound = (1..=DEPTH_MAX).contains(&drive.depth)
            && drive.len as usize <= ECHO_MAX
            && drive.first.checked_add(drive.depth).is_some();
        is_sound.then_some(drive)
    }
}

/// The arguments of LAP in front of its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lap {
    /// On which of the places that DRIVE named.
    pub place: u32,
    /// Nanoseconds that the LAP before it took on this place: from before it was written to after
    /// its reply was read and compared. 0 in the first one.
    pub took: u64,
    /// Place in the [`stream`](crate::stream) at which the octets of this LAP begin.
    pub at: u32,
}

impl Lap {
    /// Reads the arguments, up to the octets.
    ///
    /// # Errors
    /// When they are too short.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, xdr::Error> {
        Ok(Self { place: reader.u32()?, took: reader.u64()?, at: reader.u32()? })
    }

    /// A LAP of `len` octets. None when there is no memory for it, or the stream does not have the
    /// octets.
    pub fn request(&self, cx: &Cx<'_>, len: usize, token: Token) -> Option<Request> {
        let write = |writer: &mut Writer<'_>| {
            writer.u32(self.place)?;
            writer.u64(self.took)?;
            writer.u32(self.at)?;
            writer.u32(u32::try_from(len).map_err(|_| NoRoom)?)
        };
        let mut request = request(cx, LAP, token, write)?;
        request.reply_max = ReplyHeader::REFUSAL_LEN_MAX + 8;
        if len > 0 {
            let result = cx.room(len)?;
            let (position, octets) = (request.message.len(), copy(cx, part(self.at, len)?)?);
            (request.item, request.result) = (Some(RequestItem { position, octets }), Some(result));
        }
        Some(request)
    }
}

/// Outcome of a DRIVE, carried in its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// Each place was asked to stop.
    Stopped,
    /// LAPs of this length do not fit inline, which they have to on version 1 (RFC 8167 §4).
    TooLong,
    /// There is no room for this many LAPs of this length at a time.
    Full,
    /// The returned bytes differ from the sent ones.
    Corrupt,
    /// A LAP failed in another way.
    Failed,
}

impl Driven {
    const ALL: [Self; 5] = [Self::Stopped, Self::TooLong, Self::Full, Self::Corrupt, Self::Failed];

    /// As the result says it.
    pub fn number(self) -> u32 {
        (0..)
            .zip(Self::ALL)
            .find(|(_, known)| *known == self)
            .map_or(u32::MAX, |(number, _)| number)
    }

    /// Converts the number in a result; an unknown number gives [`Driven::Failed`].
    pub fn from_number(number: u32) -> Self {
        (0..)
            .zip(Self::ALL)
            .find(|(known, _)| *known == number)
            .map_or(Self::Failed, |(_, driven)| driven)
    }
}

/// A LAP at a time.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Index of the DRIVE that the place belongs to, among [`Driver::drives`].
    drive: usize,
    lap: Lap,
    sent: Time,
}

/// A DRIVE that is not answered.
#[derive(Debug)]
struct OpenCall {
    call: CallId,
    peer: PeerId,
    /// Of its reply.
    header: ReplyHeader<'static>,
    drive: Drive,
    /// Places that were not asked to stop.
    running: u32,
    end: Driven,
}

/// Content of a LAP's reply: true to go on. An error is the reason why there is no such reply.
type DriveResult = Result<bool, Driven>;

/// An [`Echo`] that also calls clients that ask for it by DRIVE.
#[derive(Debug)]
pub struct Driver {
    echo: Echo,
    drives: Vec<Option<OpenCall>>,
    places: Box<[Option<Place>]>,
    free: Vec<u32>,
    /// Places whose next LAP goes out when this pass ends.
    due: Vec<u32>,
    /// LAPs whose reply was read in this pass. The pass' time is that of its start, too early for
    /// them, so they wait for the next one.
    fresh: Vec<(u32, DriveResult)>,
    ripe: Vec<(u32, DriveResult)>,
}

impl Default for Driver {
    fn default() -> Self {
        let room = PLACES_MAX as usize;
        Self {
            echo: Echo::default(),
            drives: Vec::new(),
            places: vec![None; room].into_boxed_slice(),
            free: (0..PLACES_MAX).rev().collect(),
            due: Vec::with_capacity(room),
            fresh: Vec::with_capacity(room),
            ripe: Vec::with_capacity(room),
        }
    }
}

impl Driver {
    /// Places of all DRIVEs that are not over.
    pub fn places_in_use(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn drive(&mut self, cx: &mut Cx<'_>, call: &Call<'_>) {
        let Some(drive) = Drive::parse(call.arguments.clone()) else {
            return cx.refuse(call, Accepted::GarbageArgs);
        };
        let header = call.header.reply(Accepted::Success);
        if self.free.len() < drive.depth as usize {
            return say(cx, call.peer, call.id, header, Driven::Full);
        }
        cx.ready(call.peer);
        let number = self.drives.iter().position(Option::is_none).unwrap_or(self.drives.len());
        let of_drive = self.free.split_off(self.free.len() - drive.depth as usize);
        for (place, free) in (drive.first..).zip(&of_drive) {
            let lap = Lap { place, took: 0, at: 0 };
            if let Some(entry) = self.places.get_mut(*free as usize) {
                *entry = Some(Place { drive: number, lap, sent: cx.now() });
            }
        }
        self.due.extend(of_drive);
        let (running, end) = (drive.depth, Driven::Stopped);
        let open = OpenCall { call: call.id, peer: call.peer, header, drive, running, end };
        match self.drives.get_mut(number) {
            Some(entry) => *entry = Some(open),
            None => self.drives.push(Some(open)),
        }
    }

    /// Reads the reply to the LAP of place `number`: true if that place goes on.
    fn told(&self, number: u32, outcome: Outcome<'_>) -> DriveResult {
        let place = self.places.get(number as usize).copied().flatten().ok_or(Driven::Failed)?;
        let drive =
            self.drives.get(place.drive).and_then(Option::as_ref).ok_or(Driven::Failed)?.drive;
        let reply = outcome.reply.map_err(|fault| match fault {
            CallFault::TooLong => Driven::TooLong,
            CallFault::Limit => Driven::Full,
            _ => Driven::Failed,
        })?;
        let pieces =
            [Piece::Inline(reply), Piece::Chunk(outcome.result.as_deref().unwrap_or_default())];
        let mut results = Reader::over(&pieces);
        let garbage = |_: xdr::Error| Driven::Failed;
        let header = ReplyHeader::parse(&mut results).map_err(garbage)?;
        if header.outcome != rpc::Outcome::accepted(Accepted::Success) {
            return Err(Driven::Failed);
        }
        let goes_on = results.u32().map_err(garbage)? == 1;
        let octets = results.item(ECHO_MAX).map_err(garbage)?;
        let is_same = octets.len() == drive.len as usize
            && (!drive.verify || part(place.lap.at, octets.len()) == Some(octets));
        if is_same { Ok(goes_on) } else { Err(Driven::Corrupt) }
    }

    /// Continues at a place, or ends it, and its DRIVE with the last one.
    fn conclude(&mut self, cx: &mut Cx<'_>, number: u32, told: DriveResult) {
        let Some(place) = self.places.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        let Some(entry) = self.drives.get_mut(place.drive) else { return };
        let Some(open) = entry else { return };
        match told {
            Ok(true) if open.end == Driven::Stopped => {
                let took = u64::try_from(cx.now().since(place.sent).as_nanos()).unwrap_or(u64::MAX);
                place.lap.took = took.max(1);
                // Octets of an earlier LAP that remain somewhere differ from those of this one.
                place.lap.at = (place.lap.at + 8) % PLACES as u32;
                return self.due.push(number);
            }
            Ok(_) => {}
            Err(why) if open.end == Driven::Stopped => open.end = why,
            Err(_) => {}
        }
        open.running -= 1;
        if open.running == 0 {
            say(cx, open.peer, open.call, open.header, open.end);
            *entry = None;
        }
        if let Some(place) = self.places.get_mut(number as usize) {
            *place = None;
        }
        self.free.push(number);
    }

    fn call(&mut self, cx: &mut Cx<'_>, number: u32) {
        let Some(place) = self.places.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        let Some(open) = self.drives.get(place.drive).and_then(Option::as_ref) else { return };
        place.sent = cx.now();
        match place.lap.request(cx, open.drive.len as usize, Token(number.into())) {
            Some(request) => cx.call(open.peer, request),
            None => self.fresh.push((number, Err(Driven::Full))),
        }
    }
}

/// Answers a DRIVE. Without memory for that the connection ends, so that the call does not stay
/// open.
fn say(cx: &mut Cx<'_>, peer: PeerId, call: CallId, header: ReplyHeader<'_>, end: Driven) {
    match reply(cx, header, |writer| writer.u32(end.number())) {
        Some(message) => cx.answer(call, Answer { message, item: None }),
        None => cx.disconnect(peer),
    }
}

impl App for Driver {
    type Report = u64;

    /// Calls answered.
    fn report(&self) -> u64 {
        self.echo.report()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.answer(cx, call);
    }

    #[inline(always)]
    fn on_null(&mut self, call: NullHeader) -> bool {
        self.echo.on_null(call)
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let number = u32::try_from(outcome.token.0).unwrap_or(u32::MAX);
        let told = self.told(number, outcome);
        self.fresh.push((number, told));
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        while let Some((number, told)) = self.ripe.pop() {
            self.conclude(cx, number, told);
        }
        std::mem::swap(&mut self.ripe, &mut self.fresh);
        while let Some(number) = self.due.pop() {
            self.call(cx, number);
        }
    }
}

impl Driver {
    /// Answers any other call than NULL.
    #[inline(never)]
    fn answer(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        match (call.header.program, call.header.version, call.header.procedure) {
            (PROGRAM, VERSION, DRIVE) => self.drive(cx, &call),
            _ => self.echo.answer(cx, call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_drive_are_read_as_they_are_written_and_only_then() {
        let drive = Drive { first: 7, depth: 3, len: 1_000, verify: true };
        let mut octets = [0; Drive::LEN];
        drive.emit(&mut Writer::new(&mut octets)).unwrap();
        assert_eq!(Drive::parse(Reader::new(&octets)), Some(drive));
        for len in 0..octets.len() {
            assert_eq!(Drive::parse(Reader::new(&octets[..len])), None, "{len} octets");
        }
        for unsound in [
            Drive { depth: 0, ..drive },
            Drive { depth: DEPTH_MAX + 1, ..drive },
            Drive { len: ECHO_MAX as u32 + 1, ..drive },
            Drive { first: u32::MAX, ..drive },
        ] {
            unsound.emit(&mut Writer::new(&mut octets)).unwrap();
            assert_eq!(Drive::parse(Reader::new(&octets)), None, "{unsound:?}");
        }
    }

    #[test]
    fn every_end_has_a_number_of_its_own() {
        for end in Driven::ALL {
            assert_eq!(Driven::from_number(end.number()), end);
        }
        assert_eq!(Driven::from_number(5), Driven::Failed);
    }
}
