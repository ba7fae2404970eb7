//! Delegation states: given, recalled, returned or revoked (RFC 8881 §10.2, §10.4).

use crate::nfs::v4::Status4;

/// Phase of a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationPhase {
    /// The client holds it.
    Held,
    /// A conflicting request needs its return, and CB_RECALL has not been sent yet.
    AwaitRecallSent,
    /// CB_RECALL was sent; the client has until then to return it.
    AwaitReturn {
        /// Time at which it is revoked.
        deadline: u64,
    },
    /// It was revoked; its stateid lives until the client frees it.
    Revoked,
    /// There is nothing left of it.
    Gone,
}

/// Answer to CB_RECALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecallAnswer {
    /// The client will return it.
    Accepted,
    /// The client does not know it: BADHANDLE or BAD_STATEID. Its OPEN's reply may be in flight.
    Unknown,
    /// Any other failure, or none at all: DELAY, or the connection was lost.
    Failed,
}

/// Work that follows an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecallStep {
    /// Nothing.
    Nothing,
    /// Send CB_RECALL, and report it by [`Delegation::handle_recall_sent`].
    SendRecall,
    /// Send CB_RECALL again after a moment.
    SendAgain,
    /// The delegation no longer conflicts: waiting requests continue.
    GoOn,
    /// As `GoOn`, and SEQ4_STATUS_RECALLABLE_STATE_REVOKED has to be reported to the client until
    /// it has freed the stateid.
    RevokedGoOn,
}

/// A delegation. Times are the caller's, of any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegation {
    phase: DelegationPhase,
    /// Answers of a client that did not know it.
    unknown: u8,
}

impl Delegation {
    /// Number of BADHANDLE or BAD_STATEID answers after which the client is sent no more recalls.
    pub const UNKNOWN_MAX: u8 = 3;

    /// A delegation that OPEN offers.
    pub const fn new() -> Self {
        Self { phase: DelegationPhase::Held, unknown: 0 }
    }

    /// Its phase.
    pub const fn phase(&self) -> DelegationPhase {
        self.phase
    }

    /// Returns true if it conflicts with what others want.
    pub const fn is_live(&self) -> bool {
        !matches!(self.phase, DelegationPhase::Revoked | DelegationPhase::Gone)
    }

    /// Handles a conflicting request: another client wants what the delegation does not allow.
    pub const fn handle_conflict(&mut self) -> RecallStep {
        match self.phase {
            DelegationPhase::Held => {
                self.phase = DelegationPhase::AwaitRecallSent;
                RecallStep::SendRecall
            }
            // One recall is outstanding for all waiting requests.
            DelegationPhase::AwaitRecallSent | DelegationPhase::AwaitReturn { .. } => {
                RecallStep::Nothing
            }
            DelegationPhase::Revoked | DelegationPhase::Gone => RecallStep::GoOn,
        }
    }

    /// CB_RECALL was sent for the first time: the client's time begins, which is at least a lease.
    pub const fn handle_recall_sent(&mut self, now: u64, lease: u64) {
        if let DelegationPhase::AwaitRecallSent = self.phase {
            // RFC 8881 §10.4.5 [8881-54]: a client has a lease's time to return a delegation
            self.phase = DelegationPhase::AwaitReturn { deadline: now.saturating_add(lease) };
        }
    }

    /// CB_RECALL was answered.
    pub fn handle_recall_answer(&mut self, answer: RecallAnswer) -> RecallStep {
        if !matches!(self.phase, DelegationPhase::AwaitReturn { .. }) {
            return RecallStep::Nothing; // it was returned meanwhile, or taken away
        }
        match answer {
            RecallAnswer::Accepted => RecallStep::Nothing,
            RecallAnswer::Failed => RecallStep::SendAgain,
            RecallAnswer::Unknown => {
                self.unknown = self.unknown.saturating_add(1);
                if self.unknown < Self::UNKNOWN_MAX {
                    RecallStep::SendAgain
                } else {
                    RecallStep::Nothing // the deadline decides
                }
            }
        }
    }

    /// Time passes.
    pub fn handle_time(&mut self, now: u64) -> RecallStep {
        match self.phase {
            // RFC 8881 §10.4.5 [8881-55]: what is not returned in time is revoked
            DelegationPhase::AwaitReturn { deadline } if now >= deadline => self.revoke(),
            _ => RecallStep::Nothing,
        }
    }

    /// Revokes the delegation: its time is over, the client's lease expired, or an administrator
    /// demands it.
    pub fn revoke(&mut self) -> RecallStep {
        if self.is_live() {
            self.phase = DelegationPhase::Revoked;
            RecallStep::RevokedGoOn
        } else {
            RecallStep::Nothing
        }
    }

    /// DELEGRETURN by the holder.
    pub fn handle_return(&mut self) -> Result<RecallStep, Status4> {
        self.check_use()?;
        let is_awaited = self.phase != DelegationPhase::Held;
        self.phase = DelegationPhase::Gone;
        Ok(if is_awaited { RecallStep::GoOn } else { RecallStep::Nothing })
    }

    /// FREE_STATEID by the holder.
    pub const fn handle_free(&mut self) -> Result<(), Status4> {
        match self.phase {
            // RFC 8881 §18.38.3 [8881-56]: a stateid with state is not freed, a revoked one is
            DelegationPhase::Revoked => {
                self.phase = DelegationPhase::Gone;
                Ok(())
            }
            DelegationPhase::Gone => Err(Status4::BadStateid),
            _ => Err(Status4::LocksHeld),
        }
    }

    /// Checks I/O, an OPEN or TEST_STATEID that names the delegation. Its holder may use it while
    /// it is recalled.
    pub const fn check_use(&self) -> Result<(), Status4> {
        match self.phase {
            // RFC 8881 §15.1.5.3 [8881-57]: a revoked delegation is refused by a status of its own
            DelegationPhase::Revoked => Err(Status4::DelegRevoked),
            DelegationPhase::Gone => Err(Status4::BadStateid),
            _ => Ok(()),
        }
    }
}

impl Default for Delegation {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DelegationPhase::{AwaitRecallSent, AwaitReturn, Gone, Held, Revoked};

    const PHASES: [DelegationPhase; 5] =
        [Held, AwaitRecallSent, AwaitReturn { deadline: 100 }, Revoked, Gone];

    fn at(phase: DelegationPhase) -> Delegation {
        Delegation { phase, unknown: 0 }
    }

    /// Checks the phase and the work that follow an event in each phase.
    fn table(
        event: impl Fn(&mut Delegation) -> RecallStep,
        expected: [(DelegationPhase, RecallStep); 5],
    ) {
        for (phase, (after, step)) in PHASES.into_iter().zip(expected) {
            let mut delegation = at(phase);
            assert_eq!(event(&mut delegation), step, "{phase:?}");
            assert_eq!(delegation.phase(), after, "{phase:?}");
        }
    }

    #[test]
    fn every_phase_takes_every_event_as_the_table_says() {
        use RecallStep::{GoOn, Nothing, RevokedGoOn, SendAgain, SendRecall};
        let await_return = AwaitReturn { deadline: 100 };
        table(
            Delegation::handle_conflict,
            [
                (AwaitRecallSent, SendRecall),
                (AwaitRecallSent, Nothing),
                (await_return, Nothing),
                (Revoked, GoOn),
                (Gone, GoOn),
            ],
        );
        let sent = |delegation: &mut Delegation| {
            delegation.handle_recall_sent(7, 90);
            Nothing
        };
        let sent_now = AwaitReturn { deadline: 97 };
        let after = [Held, sent_now, await_return, Revoked, Gone];
        table(sent, after.map(|phase| (phase, Nothing)));
        let same = |step| PHASES.map(|p| (p, if p == await_return { step } else { Nothing }));
        let answer = |answer| move |one: &mut Delegation| one.handle_recall_answer(answer);
        table(answer(RecallAnswer::Accepted), same(Nothing));
        table(answer(RecallAnswer::Failed), same(SendAgain));
        table(answer(RecallAnswer::Unknown), same(SendAgain));
        table(|one| one.handle_time(99), same(Nothing));
        let late = [Held, AwaitRecallSent, Revoked, Revoked, Gone];
        let is_late = |phase| if phase == await_return { RevokedGoOn } else { Nothing };
        let mut phases = PHASES.into_iter();
        table(|one| one.handle_time(100), late.map(|to| (to, is_late(phases.next().unwrap()))));
        table(
            Delegation::revoke,
            [
                (Revoked, RevokedGoOn),
                (Revoked, RevokedGoOn),
                (Revoked, RevokedGoOn),
                (Revoked, Nothing),
                (Gone, Nothing),
            ],
        );
    }

    #[test]
    fn every_phase_answers_its_holder_as_the_table_says() {
        let (revoked, unknown) = (Err(Status4::DelegRevoked), Err(Status4::BadStateid));
        let uses = [Ok(()), Ok(()), Ok(()), revoked, unknown];
        let held = Err(Status4::LocksHeld);
        let frees = [held, held, held, Ok(()), unknown];
        let returns = [RecallStep::Nothing, RecallStep::GoOn, RecallStep::GoOn];
        let live = [true, true, true, false, false];
        for (number, phase) in PHASES.into_iter().enumerate() {
            assert_eq!(at(phase).check_use(), uses[number]);
            assert_eq!(at(phase).is_live(), live[number]);
            let mut freed = at(phase);
            assert_eq!(freed.handle_free(), frees[number]);
            assert_eq!(freed.phase(), if phase == Revoked { Gone } else { phase });
            let mut returned = at(phase);
            let expected = uses[number].map(|()| returns[number]);
            assert_eq!(returned.handle_return(), expected);
            assert_eq!(returned.phase(), if expected.is_ok() { Gone } else { phase });
        }
    }

    #[test]
    fn a_client_that_never_knows_its_delegation_is_asked_three_times() {
        let mut delegation = Delegation::new();
        assert_eq!(delegation.handle_conflict(), RecallStep::SendRecall);
        delegation.handle_recall_sent(0, 90);
        let mut answer = || delegation.handle_recall_answer(RecallAnswer::Unknown);
        assert_eq!([answer(), answer()], [RecallStep::SendAgain; 2]);
        assert_eq!([answer(), answer()], [RecallStep::Nothing; 2]);
        assert_eq!(delegation.handle_time(u64::MAX), RecallStep::RevokedGoOn);
    }

    #[test]
    fn time_that_would_wrap_leaves_the_client_its_time() {
        let mut delegation = at(AwaitRecallSent);
        delegation.handle_recall_sent(u64::MAX - 1, 90);
        assert_eq!(delegation.phase(), AwaitReturn { deadline: u64::MAX });
    }
}
