//! Lane: the one message of an option beyond the credits.
//!
//! The first request takes a credit, as a call does: the peer may not know the option, and has
//! receives for calls only. Its answer says that the peer knows the option and keeps one more
//! receive for it. From then on the requesting side also keeps one more receive for the answers,
//! and requests go out whether or not there is a credit. One is outstanding at a time.

use core::fmt;

use super::OptionName;
use crate::rpcrdma::{PeerFault, RequesterCredits, ResponderCredits, Xid};

/// Why an option cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoOption {
    /// The connection does not speak version 2, or not yet.
    Version,
    /// The peer refused the option: it does not know it, or interprets it differently.
    Refused,
    /// An answer is outstanding.
    Busy,
    /// The first request needs a credit, and none is free.
    Credit,
}

impl fmt::Display for NoOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "the connection has no options: it does not speak version 2",
            Self::Refused => "the peer does not know this option",
            Self::Busy => "the peer was asked and did not answer yet",
            Self::Credit => "every credit that the peer granted is in use",
        })
    }
}

impl core::error::Error for NoOption {}

/// Knowledge of this end about the peer's support for the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// Nothing.
    Unknown,
    /// The first request is out; it holds a credit.
    AwaitFirst(Xid),
    /// It keeps a receive for the next request, and we keep one for its answer.
    Known,
    /// A request is out, beyond the credits.
    AwaitReply(Xid),
    /// It does not know the option.
    Refused,
}

/// Knowledge of the peer about this end's support for the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneAnswers {
    /// Nothing.
    Never,
    /// It sent its first request, which counts as a call; the extra receive is posted before the
    /// answer.
    First,
    /// The extra receive waits for it.
    Idle,
    /// It asked, beyond the credits.
    Asked,
}

/// One option on one connection, both ways.
#[derive(Clone, Copy, Debug)]
pub(in crate::rpcrdma) struct Lane {
    asks: Asks,
    answers: LaneAnswers,
}

impl Lane {
    pub(in crate::rpcrdma) const fn new() -> Self {
        Self { asks: Asks::Unknown, answers: LaneAnswers::Never }
    }

    /// Receives that this option needs beyond the receives of calls and replies.
    pub(in crate::rpcrdma) const fn receives(&self) -> u32 {
        let replies = matches!(self.asks, Asks::Known | Asks::AwaitReply(_)) as u32;
        let requests = !matches!(self.answers, LaneAnswers::Never) as u32;
        replies + requests
    }

    /// A request of ours goes out.
    pub(in crate::rpcrdma) fn ask(
        &mut self,
        xid: Xid,
        credits: Option<&mut RequesterCredits>,
    ) -> Result<(), NoOption> {
        self.asks = match self.asks {
            Asks::Unknown => {
                credits.ok_or(NoOption::Credit)?.take().map_err(|_| NoOption::Credit)?;
                Asks::AwaitFirst(xid)
            }
            Asks::Known => Asks::AwaitReply(xid),
            Asks::AwaitFirst(_) | Asks::AwaitReply(_) => return Err(NoOption::Busy),
            Asks::Refused => return Err(NoOption::Refused),
        };
        Ok(())
    }

    /// Returns true if a request of ours with this XID has no answer yet.
    fn awaits(&self, xid: Xid) -> bool {
        matches!(self.asks, Asks::AwaitFirst(asked) | Asks::AwaitReply(asked) if asked == xid)
    }

    /// Takes an answer, or a refusal. Returns false if none was requested.
    pub(in crate::rpcrdma) fn handle_answer(
        &mut self,
        xid: Xid,
        refused: bool,
        credits: Option<&mut RequesterCredits>,
    ) -> bool {
        match self.asks {
            Asks::AwaitFirst(asked) if asked == xid => {
                credits.expect("the first request took a credit").give();
            }
            Asks::AwaitReply(asked) if asked == xid => {}
            _ => return false,
        }
        self.asks = if refused { Asks::Refused } else { Asks::Known };
        true
    }

    /// The peer asks.
    pub(in crate::rpcrdma) fn handle_request(
        &mut self,
        credits: &mut ResponderCredits,
    ) -> Result<(), PeerFault> {
        self.answers = match self.answers {
            LaneAnswers::Never => {
                credits.handle_call()?;
                LaneAnswers::First
            }
            LaneAnswers::Idle => LaneAnswers::Asked,
            LaneAnswers::First | LaneAnswers::Asked => return Err(PeerFault::CreditsExceeded),
        };
        Ok(())
    }

    /// Handles the answer, or the refusal, that goes out to the peer's request.
    ///
    /// # Panics
    /// When the peer did not ask: that is a bug of ours.
    pub(in crate::rpcrdma) fn handle_answered(
        &mut self,
        refused: bool,
        credits: &mut ResponderCredits,
    ) {
        match self.answers {
            LaneAnswers::First => {
                credits.handle_reply();
            }
            LaneAnswers::Asked => {}
            LaneAnswers::Never | LaneAnswers::Idle => panic!("every answer follows its request"),
        }
        self.answers = if refused { LaneAnswers::Never } else { LaneAnswers::Idle };
    }
}

/// The lanes of all options on one connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::rpcrdma) struct Lanes([Lane; OptionName::ALL.len()]);

impl Lanes {
    pub(in crate::rpcrdma) const fn new() -> Self {
        Self([Lane::new(); OptionName::ALL.len()])
    }

    /// The lane of one option.
    pub(in crate::rpcrdma) fn of(&mut self, option: OptionName) -> &mut Lane {
        self.0.get_mut(option as usize).expect("each option has a lane")
    }

    /// Receives that all options need beyond the receives of calls and replies.
    pub(in crate::rpcrdma) const fn receives(&self) -> u32 {
        let (mut lanes, mut receives) = (self.0.as_slice(), 0);
        while let [lane, rest @ ..] = lanes {
            receives += lane.receives();
            lanes = rest;
        }
        receives
    }

    /// Takes an RDMA_ERROR with this XID; returns the option whose request it refuses, if there is
    /// one.
    pub(in crate::rpcrdma) fn handle_refusal(
        &mut self,
        xid: Xid,
        credits: Option<&mut RequesterCredits>,
    ) -> Option<OptionName> {
        let mut lanes = OptionName::ALL.iter().zip(&mut self.0);
        let (option, lane) = lanes.find(|(_, lane)| lane.awaits(xid))?;
        lane.handle_answer(xid, true, credits).then_some(*option)
    }
}
