//! Watched calls, by index in the table of calls. Stored separately, because only few calls are
//! watched.

use super::{CallName, Procedures, Sampling, Stage, Stages, WatchedCall, calls::LatestCalls};
use crate::clock::Clock;
use stag_pools::table::{Key, Table};
use stag_protocol::rpc::CallHeader;
use stag_verbs::{PeerAddress, Time};

/// Watches one call in a configured number. An unwatched call costs a comparison at each stamp, and
/// reads no clock.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Calls up to and including the next watched one.
    until: u32,
    /// Watched calls without a reply yet. The count is too high while some of them are gone (see
    /// [`Self::forget_dead`]).
    live: u32,
    /// Time at which the shard began to parse the call's message.
    seen: Time,
    clock: Option<Clock>,
    marks: Box<[Option<Mark>]>,
    /// Calls whose reply waits for the doorbell.
    posted: Vec<Mark>,
    stages: Stages,
    procedures: Procedures,
    latest: LatestCalls,
}

/// The marks of a watched call.
#[derive(Clone, Copy, Debug)]
struct Mark {
    key: Key,
    /// Its program and procedure, once its header was parsed.
    name: Option<CallName>,
    /// The operation that the app assigned it to.
    operation: Option<u32>,
    /// Time of its arrival.
    came_at: Time,
    /// Its last stamp.
    at: Time,
    /// Time by stage, in nanoseconds.
    spent: [u64; Stage::ALL.len()],
    /// A bit for each stage that it went through.
    stages: u8,
}

impl Mark {
    /// Adds the time since the last stamp to `stage`.
    fn stamp(&mut self, stage: Stage, at: Time) {
        if let Some(spent) = self.spent.get_mut(stage as usize) {
            *spent = spent.saturating_add(at.0.saturating_sub(self.at.0));
        }
        self.stages |= 1 << stage as u8;
        self.at = at;
    }
}

impl Watch {
    /// Marks for a table of `places` entries.
    pub(crate) fn new(sampling: Sampling, places: usize) -> Self {
        let Sampling { every, clock, shard, programs } = sampling;
        let places = if every > 0 { places } else { 0 };
        Self {
            until: every,
            live: 0,
            seen: Time(0),
            clock,
            marks: vec![None; places].into_boxed_slice(),
            posted: Vec::with_capacity(places),
            stages: Stages::new(every, shard),
            procedures: Procedures::new(if every > 0 { programs } else { &[] }),
            latest: LatestCalls::new(if every > 0 { LatestCalls::COUNT } else { 0 }),
        }
    }

    /// The times by procedure.
    pub(crate) const fn procedures(&self) -> &Procedures {
        &self.procedures
    }

    /// The latest calls, in the order of their replies.
    pub(crate) fn latest(&self) -> Vec<WatchedCall> {
        self.latest.in_order()
    }

    pub(crate) const fn stages(&self) -> &Stages {
        &self.stages
    }

    fn time(&self, now: Time) -> Time {
        self.clock.as_ref().map_or(now, Clock::now)
    }

    /// Notes the start of parsing a message that may be a call, and whose header takes a while to
    /// parse.
    #[inline]
    pub(crate) fn see(&mut self, now: Time) {
        if self.until == 1 {
            self.see_watched(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn see_watched(&mut self, now: Time) {
        self.seen = self.time(now);
    }

    /// Notes that a call that was [seen](Self::see) has its entry.
    #[inline]
    pub(crate) fn begin(&mut self, key: Key, now: Time) {
        // If nothing is watched, this reaches zero only once in four billion calls.
        self.until = self.until.wrapping_sub(1);
        if self.until == 0 {
            self.begin_watched(key, now);
        }
    }

    /// Notes the entry of a call whose header was parsed by the look itself.
    #[inline]
    pub(crate) fn begin_at_once(&mut self, key: Key, now: Time) {
        self.until = self.until.wrapping_sub(1);
        if self.until == 0 {
            self.begin_unseen(key, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_unseen(&mut self, key: Key, now: Time) {
        self.seen = self.time(now);
        self.begin_watched(key, now);
    }

    #[cold]
    #[inline(never)]
    fn begin_watched(&mut self, key: Key, now: Time) {
        self.until = self.stages.every();
        let Some(place) = self.marks.get_mut(key.index()) else { return };
        let spent = [0; Stage::ALL.len()];
        let mut mark =
            Mark { key, name: None, operation: None, came_at: now, at: now, spent, stages: 0 };
        mark.stamp(Stage::Recv, self.seen);
        // The entry may still hold the mark of a call that is gone.
        self.live += u32::from(place.replace(mark).is_none());
    }

    /// Returns true if the next call is to be watched, for which it needs an entry.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.until == 1
    }

    /// Skips a call that is not [due](Self::is_due), and that was answered without an entry.
    #[inline]
    pub(crate) const fn skip(&mut self) {
        self.until = self.until.wrapping_sub(1);
    }

    /// Notes that a call leaves `stage`.
    #[inline]
    pub(crate) fn stamp(&mut self, key: Key, stage: Stage, now: Time) {
        if self.live > 0 {
            self.stamp_watched(key, stage, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn stamp_watched(&mut self, key: Key, stage: Stage, now: Time) {
        let clock = &self.clock;
        let mark = self.marks.get_mut(key.index()).and_then(Option::as_mut);
        if let Some(mark) = mark.filter(|mark| mark.key == key) {
            mark.stamp(stage, clock.as_ref().map_or(now, Clock::now));
        }
    }

    /// Notes that a call's header was parsed: the call leaves [`Stage::Parse`], and is identified
    /// from here on.
    // A separate function, so that the header stays in registers.
    #[inline(always)]
    pub(crate) fn stamp_parsed(
        &mut self,
        key: Key,
        header: &CallHeader<'_>,
        from: PeerAddress,
        now: Time,
    ) {
        if self.live > 0 {
            self.name_watched(key, CallName::of(header, from));
            self.stamp_watched(key, Stage::Parse, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn name_watched(&mut self, key: Key, name: CallName) {
        if let Some(mark) = self.mark_of(key) {
            mark.name = Some(name);
        }
    }

    /// Assigns a call to an operation of its program. `operation` runs for a watched call alone.
    #[inline]
    pub(crate) fn note_operation(&mut self, key: Key, operation: impl FnOnce() -> Option<u32>) {
        if self.live > 0
            && let Some(mark) = self.mark_of(key)
        {
            mark.operation = operation();
        }
    }

    #[cold]
    #[inline(never)]
    fn mark_of(&mut self, key: Key) -> Option<&mut Mark> {
        self.marks.get_mut(key.index())?.as_mut().filter(|mark| mark.key == key)
    }

    /// Notes that a call's reply is built, and is sent with the next doorbell.
    #[inline]
    pub(crate) fn post(&mut self, key: Key, now: Time) {
        if self.live > 0 {
            self.post_watched(key, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn post_watched(&mut self, key: Key, now: Time) {
        let at = self.time(now);
        let Some(mut mark) = self.take(key) else { return };
        mark.stamp(Stage::Emit, at);
        // Over TCP, one pass may produce more replies than there are entries; the excess is not
        // counted.
        if self.posted.len() < self.posted.capacity() {
            self.posted.push(mark);
        }
    }

    /// Ends the calls whose replies were sent with the doorbell.
    #[inline]
    pub(crate) fn ring(&mut self, now: Time) {
        if !self.posted.is_empty() {
            self.finish(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn finish(&mut self, now: Time) {
        let at = self.time(now);
        while let Some(mut mark) = self.posted.pop() {
            mark.stamp(Stage::Send, at);
            let (mut left, Some(all)) = (mark.stages, &mut self.stages.times) else { continue };
            let mut call = WatchedCall::new(mark.name, mark.came_at, mark.spent, mark.stages);
            call.operation = mark.operation;
            self.procedures.record(&call);
            self.latest.push(call);
            while left != 0 {
                let stage = left.trailing_zeros() as usize;
                if let (Some(times), Some(spent)) = (all.get_mut(stage), mark.spent.get(stage)) {
                    times.saturating_record(*spent);
                }
                left &= left - 1;
            }
        }
    }

    fn take(&mut self, key: Key) -> Option<Mark> {
        let mark = self.marks.get_mut(key.index())?.take_if(|mark| mark.key == key)?;
        debug_assert!(self.live > 0, "a mark is counted");
        self.live -= 1;
        Some(mark)
    }

    /// Drops the mark of a call that is answered without the app, or not at all.
    pub(crate) fn forget(&mut self, key: Key) {
        let _ = self.take(key);
    }

    /// Drops the marks of calls that are no longer in `table`, because their connection ended.
    pub(crate) fn forget_dead<T>(&mut self, table: &Table<T>) {
        if self.live == 0 {
            return;
        }
        for place in &mut self.marks {
            let dead = place.take_if(|mark| table.get(mark.key).is_none());
            self.live -= u32::from(dead.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);

    fn watch(every: u32) -> (Watch, Table<()>) {
        (Watch::new(Sampling { every, ..Sampling::default() }, 8), Table::new(8))
    }

    /// A call that is answered at once.
    fn call(watch: &mut Watch, table: &mut Table<()>) {
        watch.see(NOW);
        let key = table.insert(()).unwrap();
        watch.begin(key, NOW);
        for stage in [Stage::Parse, Stage::App] {
            watch.stamp(key, stage, NOW);
        }
        watch.post(key, NOW);
        table.remove(key).unwrap();
        watch.ring(NOW);
    }

    #[test]
    fn one_call_in_so_many_is_watched_exactly() {
        for every in [0, 1, 2, 64, 100] {
            let (mut watch, mut table) = watch(every);
            for number in 1..=1_000_u64 {
                call(&mut watch, &mut table);
                let due = number.checked_div(every.into()).unwrap_or(0);
                assert_eq!(watch.stages().calls(), due, "{number} calls, 1 in {every}");
            }
            assert_eq!(watch.live, 0);
        }
    }

    #[test]
    fn an_operation_is_looked_for_in_watched_calls_alone() {
        let (mut watch, mut table) = watch(2);
        let mut asked = 0;
        for number in 1..=6 {
            let key = table.insert(()).unwrap();
            watch.begin(key, NOW);
            watch.note_operation(key, || {
                asked += 1;
                Some(number)
            });
            watch.post(key, NOW);
            table.remove(key).unwrap();
            watch.ring(NOW);
        }
        let noted: Vec<_> = watch.latest().iter().map(|call| call.operation).collect();
        assert_eq!((asked, noted), (3, vec![Some(2), Some(4), Some(6)]));
    }

    #[test]
    fn messages_that_are_no_calls_are_not_counted() {
        let (mut watch, mut table) = watch(4);
        for number in 1..=100 {
            (0..5).for_each(|_| watch.see(Time(9)));
            call(&mut watch, &mut table);
            assert_eq!(watch.stages().calls(), number / 4);
        }
    }

    #[test]
    fn the_time_between_two_stamps_is_that_of_a_stage() {
        let (mut watch, mut table) = watch(1);
        let key = table.insert(()).unwrap();
        watch.see(Time(1_010));
        watch.begin(key, NOW);
        let stamps = [
            (Stage::Parse, 1_030),
            (Stage::Pull, 1_070),
            (Stage::Parse, 1_080),
            (Stage::App, 1_150),
            (Stage::Emit, 1_152),
        ];
        stamps.into_iter().for_each(|(stage, at)| watch.stamp(key, stage, Time(at)));
        watch.stamp(key, Stage::Push, Time(1_162));
        watch.post(key, Time(1_165));
        assert_eq!(watch.stages().calls(), 0, "it is still on its way");
        watch.ring(Time(1_200));
        let spent = watch.stages().iter().map(|(stage, times)| (stage.name(), times.max()));
        let expected = [
            ("recv", 10),
            ("parse", 30),
            ("pull", 40),
            ("app", 70),
            ("emit", 5),
            ("push", 10),
            ("send", 35),
        ];
        assert!(spent.eq(expected), "{:?}", watch.stages());
    }

    #[test]
    fn a_call_that_dies_leaves_nothing_and_its_place_is_used_again() {
        let (mut watch, mut table) = watch(1);
        let dead = table.insert(()).unwrap();
        watch.begin(dead, NOW);
        table.remove(dead).unwrap();
        let next = table.insert(()).unwrap();
        assert_eq!(dead.index(), next.index());
        watch.begin(next, NOW);
        assert_eq!(watch.live, 1);
        watch.post(dead, NOW);
        watch.ring(NOW);
        assert_eq!((watch.live, watch.stages().calls()), (1, 0), "another call has its place");
        watch.forget_dead(&table);
        assert_eq!(watch.live, 1);
        table.remove(next).unwrap();
        watch.forget_dead(&table);
        assert_eq!((watch.live, watch.stages().calls()), (0, 0));
        watch.stamp(next, Stage::App, NOW);
        watch.forget(next);
        assert_eq!(watch.live, 0);
    }
}
