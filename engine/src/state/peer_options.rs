//! The options of version 2 on one connection.

use stag_protocol::rpcrdma::{
    Xid,
    option::{Message, OptionName},
};
use stag_verbs::Time;

/// The options of one connection.
#[derive(Debug, Default)]
pub(crate) struct PeerOptions {
    /// Receives that all of its options need.
    receives: usize,
    pub(crate) lanes: [PeerOption; OptionName::ALL.len()],
}

/// One option of one connection.
#[derive(Debug, Default)]
pub(crate) struct PeerOption {
    /// The time of our own request, until it is answered.
    pub(crate) asked_at: Option<Time>,
    /// The peer's request, until there is room for the answer.
    pub(crate) request: Option<(Xid, Message)>,
}

impl PeerOptions {
    /// Receives that the options of this connection need.
    pub(crate) const fn receives(&self) -> usize {
        self.receives
    }
    /// Reserves `more` receives.
    pub(crate) const fn reserve(&mut self, more: usize) {
        self.receives += more;
    }

    /// The number of the peer's requests that wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.request.is_some()).count()
    }

    /// Clears the state of a connection that has ended, except our own requests; returns the number
    /// of freed receives.
    pub(crate) fn forget(&mut self) -> usize {
        self.lanes.iter_mut().for_each(|lane| lane.request = None);
        std::mem::take(&mut self.receives)
    }

    pub(crate) fn lane(&mut self, option: OptionName) -> &mut PeerOption {
        self.lanes.get_mut(option as usize).expect("each option has a lane")
    }
}
