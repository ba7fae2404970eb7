//! Histograms by procedure and stage, of bounded size: a peer cannot make them grow.

use super::{Stage, WatchedCall};

/// A program whose procedures are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedProgram {
    /// Number of the program (RFC 5531 §9).
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedures are numbered from 0 to one less than this.
    pub procedures: u32,
    /// Its operations are numbered from 0 to one less than this: calls that its app assigns to one
    /// ([`Cx::note_operation`](crate::Cx::note_operation)) are also counted by operation. 0 for a
    /// program without.
    pub operations: u32,
}

/// A histogram of times, with four buckets for each power of two of nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeBuckets {
    counts: [u64; Self::COUNT],
    /// Sum of all times, in nanoseconds.
    sum: u64,
}

impl Default for TimeBuckets {
    fn default() -> Self {
        Self { counts: [0; Self::COUNT], sum: 0 }
    }
}

impl TimeBuckets {
    /// The first bucket counts times below 2⁸ ns, the last one times of 2³⁶ ns (69 s) and more.
    const FIRST: u32 = 8;
    const LAST: u32 = 36;
    const COUNT: usize = 4 * (Self::LAST - Self::FIRST) as usize + 2;

    fn place(nanos: u64) -> usize {
        match nanos.checked_ilog2() {
            Some(power @ Self::FIRST..Self::LAST) => {
                let quarter = nanos >> (power - 2) & 3;
                1 + 4 * (power - Self::FIRST) as usize + quarter as usize
            }
            Some(Self::LAST..) => Self::COUNT - 1,
            _ => 0,
        }
    }

    fn record(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(Self::place(nanos)) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(nanos);
    }

    /// Adds the counts of another shard.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Number of times.
    pub fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns true if there are no times.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sum of all times, in nanoseconds.
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// The number of times below `2^power` nanoseconds, `power` from 8 to 36.
    pub fn below(&self, power: u32) -> u64 {
        let buckets = 1 + 4 * power.clamp(Self::FIRST, Self::LAST).saturating_sub(Self::FIRST);
        self.counts.iter().take(buckets as usize).sum()
    }

    /// The nanoseconds that `hundredths` percent of all times do not exceed, rounded up to the end
    /// of a bucket: by less than a fifth. None without times, or if it is in the last bucket.
    pub fn percentile(&self, hundredths: u64) -> Option<u64> {
        let wanted = (self.len().checked_mul(hundredths)?).div_ceil(100).max(1);
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Self::end(place)
    }

    /// End of the bucket at `place`, in nanoseconds. None for the last one, which is unbounded.
    fn end(place: usize) -> Option<u64> {
        let Some(place) = place.checked_sub(1) else { return Some(1 << Self::FIRST) };
        let place = u32::try_from(place).ok().filter(|place| *place < 4 * (36 - 8))?;
        let (power, quarter) = (Self::FIRST + place / 4, u64::from(place % 4));
        Some((1 << power) + ((quarter + 1) << (power - 2)))
    }
}

/// The times of the calls of one procedure, or of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureTimes {
    /// The program, its version, and the procedure or operation. None for all other programs
    /// together, and for unknown procedures.
    pub name: Option<(u32, u32, u32)>,
    /// From message to reply.
    pub total: TimeBuckets,
    /// By stage, in the order of [`Stage::ALL`], for calls that went through it.
    pub stages: [TimeBuckets; Stage::ALL.len()],
}

impl ProcedureTimes {
    fn new(name: Option<(u32, u32, u32)>) -> Self {
        Self { name, total: TimeBuckets::default(), stages: Default::default() }
    }

    fn record(&mut self, call: &WatchedCall) {
        self.total.record(nanos(call.total()));
        for (stage, times) in Stage::ALL.into_iter().zip(&mut self.stages) {
            if let Some(spent) = call.spent(stage) {
                times.record(nanos(spent));
            }
        }
    }

    fn add(&mut self, other: &Self) {
        self.total.add(&other.total);
        for (times, more) in self.stages.iter_mut().zip(&other.stages) {
            times.add(more);
        }
    }
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The times of all procedures that were called.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Procedures {
    programs: &'static [WatchedProgram],
    /// One entry for each procedure of the programs, and one for all others.
    times: Vec<ProcedureTimes>,
    /// One entry for each operation of the programs.
    operations: Vec<ProcedureTimes>,
}

/// A copy has only the procedures and operations that were called, which are few.
impl Clone for Procedures {
    fn clone(&self) -> Self {
        let (times, operations) = (self.iter().cloned(), self.operations().cloned());
        Self { programs: &[], times: times.collect(), operations: operations.collect() }
    }
}

/// Empty histograms of what `count` numbers of each program.
fn empty(
    programs: &[WatchedProgram],
    count: fn(&WatchedProgram) -> u32,
) -> impl Iterator<Item = ProcedureTimes> {
    programs.iter().flat_map(move |known| {
        let name = |number| Some((known.program, known.version, number));
        (0..count(known)).map(move |number| ProcedureTimes::new(name(number)))
    })
}

/// Index of `number` of a call's program in a table of what `count` numbers of each program. An
/// error has the length of the table.
fn place_of(
    programs: &[WatchedProgram],
    call: &WatchedCall,
    number: Option<u32>,
    count: fn(&WatchedProgram) -> u32,
) -> Result<usize, usize> {
    let mut place = 0;
    for known in programs {
        let is_it = call
            .name
            .is_some_and(|name| (name.program, name.version) == (known.program, known.version));
        if let Some(number) = number.filter(|number| is_it && *number < count(known)) {
            return Ok(place + number as usize);
        }
        place += count(known) as usize;
    }
    Err(place)
}

/// Adds the counts of another shard, name by name.
fn add_all<'a>(sum: &mut Vec<ProcedureTimes>, others: impl Iterator<Item = &'a ProcedureTimes>) {
    for more in others {
        match sum.iter_mut().find(|known| known.name == more.name) {
            Some(known) => known.add(more),
            None => sum.push(more.clone()),
        }
    }
}

impl Procedures {
    /// Empty histograms for the procedures and operations of `programs`. None without programs.
    pub(super) fn new(programs: &'static [WatchedProgram]) -> Self {
        let others = (!programs.is_empty()).then(|| ProcedureTimes::new(None));
        Self {
            programs,
            times: empty(programs, |known| known.procedures).chain(others).collect(),
            operations: empty(programs, |known| known.operations).collect(),
        }
    }

    /// Counts a call: by its procedure, and by its operation if it has one.
    pub(super) fn record(&mut self, call: &WatchedCall) {
        let procedure = call.name.map(|name| name.procedure);
        let place = place_of(self.programs, call, procedure, |known| known.procedures);
        if let Some(times) = self.times.get_mut(place.unwrap_or_else(|others| others)) {
            times.record(call);
        }
        let place = place_of(self.programs, call, call.operation, |known| known.operations);
        if let Some(times) = place.ok().and_then(|place| self.operations.get_mut(place)) {
            times.record(call);
        }
    }

    /// The procedures that were called, in the order of their programs.
    pub fn iter(&self) -> impl Iterator<Item = &ProcedureTimes> {
        self.times.iter().filter(|times| !times.total.is_empty())
    }

    /// The operations that calls were assigned to, in the order of their programs.
    pub fn operations(&self) -> impl Iterator<Item = &ProcedureTimes> {
        self.operations.iter().filter(|times| !times.total.is_empty())
    }

    /// Adds the counts of another shard.
    pub fn add(&mut self, other: &Self) {
        add_all(&mut self.times, other.iter());
        add_all(&mut self.operations, other.operations());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::CallName;
    use stag_verbs::{PeerAddress, Time};

    #[test]
    fn every_time_lies_in_the_bucket_that_ends_behind_it() {
        let places = (0..=37).flat_map(|power| [0, 1, 2, 3].map(|part| (power, part)));
        for (power, part) in places {
            for nanos in [(1_u64 << power) + (part << power) / 4, (1_u64 << power).max(1) - 1] {
                let place = TimeBuckets::place(nanos);
                let end = TimeBuckets::end(place).unwrap_or(u64::MAX);
                assert!(nanos < end, "{nanos} < {end}");
                let before = place.checked_sub(1).and_then(TimeBuckets::end).unwrap_or(0);
                assert!(nanos >= before, "{nanos} >= {before}");
            }
        }
        assert_eq!(TimeBuckets::place(u64::MAX), TimeBuckets::COUNT - 1);
        assert_eq!(TimeBuckets::end(TimeBuckets::COUNT - 1), None);
    }

    #[test]
    fn a_percentile_is_the_end_of_its_bucket() {
        let mut times = TimeBuckets::default();
        assert_eq!(times.percentile(50), None);
        (0..99).for_each(|_| times.record(1_000));
        times.record(1_000_000);
        assert_eq!((times.percentile(50), times.percentile(99)), (Some(1_024), Some(1_024)));
        assert_eq!(times.percentile(100), Some(1_048_576));
        assert_eq!((times.len(), times.sum()), (100, 1_099_000));
        assert_eq!((times.below(8), times.below(10), times.below(20)), (0, 99, 100));
        times.record(u64::MAX);
        assert_eq!((times.percentile(100), times.below(36)), (None, 100));
    }

    fn call(program: u32, version: u32, procedure: u32) -> WatchedCall {
        let from = PeerAddress::Simulated;
        let name = CallName { program, version, procedure, xid: 1, from };
        WatchedCall::new(Some(name), Time(0), [300, 0, 0, 4_000, 0, 0, 0], 0b1001)
    }

    #[test]
    fn a_call_of_an_operation_is_counted_by_procedure_and_by_operation() {
        const PROGRAMS: [WatchedProgram; 2] = [
            WatchedProgram { program: 9, version: 3, procedures: 2, operations: 0 },
            WatchedProgram { program: 9, version: 4, procedures: 2, operations: 76 },
        ];
        let mut counted = Procedures::new(&PROGRAMS);
        for (version, operation) in
            [(4, Some(25)), (4, Some(25)), (4, Some(75)), (4, Some(76)), (4, None), (3, Some(25))]
        {
            let mut call = call(9, version, 1);
            call.operation = operation;
            counted.record(&call);
        }
        let mut both = counted.clone();
        both.add(&counted);
        let found = both.operations().map(|times| (times.name, times.total.len()));
        assert!(found.eq([(Some((9, 4, 25)), 4), (Some((9, 4, 75)), 2)]), "{both:?}");
        let found = both.iter().map(|times| (times.name, times.total.len()));
        assert!(found.eq([(Some((9, 3, 1)), 2), (Some((9, 4, 1)), 10)]), "{both:?}");
    }

    #[test]
    fn procedures_are_told_apart_and_what_is_unknown_is_counted_together() {
        const PROGRAMS: [WatchedProgram; 2] = [
            WatchedProgram { program: 9, version: 3, procedures: 2, operations: 0 },
            WatchedProgram { program: 5, version: 1, procedures: 1, operations: 0 },
        ];
        let mut counted = Procedures::new(&PROGRAMS);
        for known in [call(9, 3, 1), call(5, 1, 0), call(9, 3, 1)] {
            counted.record(&known);
        }
        for other in [call(9, 3, 2), call(9, 4, 1), call(7, 1, 0), call(5, 1, u32::MAX)] {
            counted.record(&other);
        }
        let mut both = counted.clone();
        both.add(&counted);
        let found = both.iter().map(|times| (times.name, times.total.len()));
        let expected = [(Some((9, 3, 1)), 4), (Some((5, 1, 0)), 2), (None, 8)];
        assert!(found.eq(expected), "{both:?}");
        let app = &both.iter().next().expect("it was called").stages[Stage::App as usize];
        assert_eq!((app.len(), app.sum()), (4, 16_000));
        let none = Procedures::new(&[]);
        assert_eq!(none.times.len(), 0, "nothing is kept where nothing is watched");
    }
}
