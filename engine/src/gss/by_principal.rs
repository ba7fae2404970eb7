//! Contexts by principal and host, for the operator of a server.

use super::contexts::GssContext;
use crate::peer_view::ClientHost;
use stag_protocol::rpc::gss::GssService;
use stag_verbs::Time;
use std::{collections::HashMap, sync::Arc};

/// The contexts that one principal has set up from one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalContexts {
    /// The principal, as the acceptor names it.
    pub principal: Box<str>,
    /// The address of the host, or `uid N` for processes of this host.
    pub host: String,
    /// Their number.
    pub contexts: u64,
    /// The latest use of any of them, by the clock of the shards; its set-up if there was none.
    pub used_at: Time,
    /// The service of that call. None if no call was made with it.
    pub service: Option<GssService>,
    /// The latest end of their tickets, in seconds since 1970.
    pub ends: u64,
}

impl PrincipalContexts {
    /// Groups contexts by their principal and host.
    pub(super) fn of_all(contexts: impl Iterator<Item = Arc<GssContext>>) -> Vec<Self> {
        let mut groups = HashMap::new();
        for context in contexts {
            let key = (context.identity, context.host);
            groups.entry(key).or_insert_with(|| Self::new(&context)).add(&context);
        }
        groups.into_values().collect()
    }

    /// The group of a context, without any yet.
    fn new(context: &GssContext) -> Self {
        Self {
            principal: context.principal.clone(),
            host: host_text(context.host),
            contexts: 0,
            used_at: Time(0),
            service: None,
            ends: 0,
        }
    }

    fn add(&mut self, context: &GssContext) {
        self.contexts += 1;
        self.ends = self.ends.max(context.ends);
        let used_at = context.used_at();
        if used_at >= self.used_at {
            (self.used_at, self.service) = (used_at, context.service());
        }
    }
}

fn host_text(host: ClientHost) -> String {
    match host {
        ClientHost::Ip(ip) => ip.to_string(),
        ClientHost::User(uid) => format!("uid {uid}"),
        ClientHost::Peer(_) | ClientHost::Remote(..) => "simulated".to_owned(),
    }
}
