//! Plays a table against a server, next to well-behaved connections.

use crate::{
    answer::SeenAnswers,
    peer::HostileFabric,
    play::Defect,
    record::RecordStream,
    wire::{NFS, call, word_at},
    world::HostileWorld,
};
use std::{io, thread};

/// Outcome of a defect.
#[derive(Clone, Debug)]
pub struct DefectOutcome {
    /// Its name.
    pub name: String,
    /// Observed answer. An error means that the defect could not be played: the server is gone.
    pub seen: Result<SeenAnswers, String>,
    /// True if the answer is in the class of the specification.
    pub is_expected: bool,
    /// True if well-behaved clients were served afterwards.
    pub others_served: bool,
}

impl DefectOutcome {
    /// Returns true if the answer is the expected one and the others were served.
    pub const fn passed(&self) -> bool {
        self.is_expected && self.others_served
    }
}

/// Two connections from before the first defect, which behave well.
#[derive(Debug)]
pub struct Others {
    fabric: HostileFabric,
    stream: RecordStream,
}

impl Others {
    /// Connects.
    pub fn connect(world: &HostileWorld) -> io::Result<Self> {
        Ok(Self { fabric: world.fabric()?, stream: world.stream()? })
    }

    /// Returns true if both connections are served.
    pub fn are_served(&mut self, world: &HostileWorld) -> bool {
        let patience = world.target.patience;
        let fabric = self.fabric.is_served(world.xid(), patience).unwrap_or(false);
        let xid = world.xid();
        let message = call(xid, NFS, 3, 0).0;
        debug_assert_eq!(word_at(&message, 0), xid, "a call begins with its XID");
        fabric && self.stream.results(&message, patience).is_ok()
    }
}

/// Plays `defects`, the ones that wait for a deadline in parallel with the others, and returns the
/// outcomes in their order.
pub fn run(world: &HostileWorld, defects: &[&Defect]) -> io::Result<Vec<DefectOutcome>> {
    let mut others = Others::connect(world)?;
    let mut outcomes: Vec<(usize, DefectOutcome)> = thread::scope(|scope| {
        let slow: Vec<_> = numbered(defects, true)
            .map(|(number, defect)| (number, scope.spawn(move || attempt(world, defect))))
            .collect();
        let mut outcomes: Vec<_> = numbered(defects, false)
            .map(|(number, defect)| {
                let outcome = attempt(world, defect);
                let others_served = others.are_served(world);
                (number, DefectOutcome { others_served, ..outcome })
            })
            .collect();
        for (number, thread) in slow {
            let outcome = thread.join().expect("a defect does not panic");
            outcomes.push((
                number,
                DefectOutcome { others_served: others.are_served(world), ..outcome },
            ));
        }
        outcomes
    });
    outcomes.sort_by_key(|(number, _)| *number);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

fn numbered<'a>(
    defects: &'a [&'a Defect],
    slow: bool,
) -> impl Iterator<Item = (usize, &'a Defect)> {
    defects
        .iter()
        .enumerate()
        .filter(move |(_, defect)| defect.is_slow == slow)
        .map(|(number, defect)| (number, *defect))
}

fn attempt(world: &HostileWorld, defect: &Defect) -> DefectOutcome {
    let seen = defect.play(world).map_err(|error| error.to_string());
    let is_expected = seen.as_ref().is_ok_and(|seen| seen.is_in(defect.expect));
    DefectOutcome { name: defect.name.clone(), seen, is_expected, others_served: true }
}
