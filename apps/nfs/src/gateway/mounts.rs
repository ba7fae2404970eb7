//! Callers as the store sees them, and calls of MOUNT.

use std::sync::Arc;

use stag_engine::{Answer, Cx};
use stag_protocol::{nfs::mount, rpc::CallHeader};

use super::{Gateway, connection_policy::ConnectionPolicy, dispatch, peers::ConnectedPeers};
use crate::{
    mount::{list::MountList, service::MountCall},
    reply::ReplyWriter,
    requester::CallSource,
};
use stag_nfs_store::{self, Procedures as _, Store};

impl<S: Store> Gateway<S> {
    /// Lets `policy` check connections as long as they live.
    #[must_use]
    pub fn with_policy(mut self, policy: Arc<dyn ConnectionPolicy>) -> Self {
        self.peers = ConnectedPeers::new(policy);
        self
    }

    /// Notes mounts in a list that the gateways of several shards share.
    #[must_use]
    pub fn with_mounts(mut self, mounts: Arc<MountList>) -> Self {
        self.mounts = mounts;
        self
    }

    /// Describes a caller to the store.
    #[inline]
    pub(super) fn caller(
        &self,
        source: CallSource,
        header: &CallHeader<'_>,
    ) -> stag_nfs_store::Caller {
        let is_proven = !self.store.asks_for_proof() || self.peers.is_proven(source.peer);
        dispatch::caller(&header.credential, source.from, is_proven)
    }

    /// Answers a call of MOUNT that does not wait.
    pub(super) fn mount(
        &mut self,
        cx: &Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        call: &mount::Call<'_>,
    ) -> Option<Answer> {
        if matches!(call, mount::Call::Mnt(_)) {
            let caller = self.caller(source, header);
            self.store.now().act_as(&caller);
        }
        let asked = MountCall::new(call, source.from, &self.mounts);
        let mut reply = ReplyWriter::begin(cx, header.xid, asked.results_len(&self.store))?;
        let outcome = asked.answer(&mut self.store, &mut reply);
        self.counters.count_mount(call.procedure(), outcome);
        Some(reply.finish())
    }
}
