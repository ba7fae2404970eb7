//! Configuration errors: a size that exceeds the limit that another size sets.

use crate::{
    config::{CALL_WINDOWS, Config},
    work::Work,
};
use stag_protocol::rpcrdma::chunk::{READS_MAX, SEGMENTS_MAX};
use stag_verbs::Limits;
use std::{error, fmt, io};

/// Maximum of our calls: each has two memory windows, of which a shard has 65,536.
const OUTBOUND_MAX: usize = 32_768;
/// Connections, and buffers of a class.
const MEMBERS_MAX: usize = 1 << 20;
/// Octets of a receive.
const RECEIVE_LEN_MAX: usize = 1 << 20;

/// A size of a [`Config`], or of the [`Limits`] of its provider, outside the range that another
/// size allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The field, as `receives` or `limits.windows`.
    pub field: &'static str,
    /// Its value.
    pub value: usize,
    /// The values that it may have.
    pub allowed: Allowed,
    /// The rule that was broken.
    pub rule: &'static str,
}

/// The values that a size may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// This value or less.
    AtMost(usize),
    /// This value or more.
    AtLeast(usize),
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, allowed, rule } = self;
        let (bound, limit) = match allowed {
            Allowed::AtMost(limit) => ("at most", limit),
            Allowed::AtLeast(limit) => ("at least", limit),
        };
        write!(f, "{field} is {value} and has to be {bound} {limit}: {rule}")
    }
}

impl error::Error for ConfigFault {}

impl From<ConfigFault> for io::Error {
    fn from(fault: ConfigFault) -> Self {
        Self::new(io::ErrorKind::InvalidInput, fault)
    }
}

impl ConfigFault {
    /// Compares a size with its limit.
    fn check(
        field: &'static str,
        value: usize,
        allowed: Allowed,
        rule: &'static str,
    ) -> Result<(), Self> {
        let is_allowed = match allowed {
            Allowed::AtMost(limit) => value <= limit,
            Allowed::AtLeast(limit) => value >= limit,
        };
        if is_allowed { Ok(()) } else { Err(Self { field, value, allowed, rule }) }
    }
}

impl Config {
    /// Checks that a provider with these limits can hold what the configuration promises, and that
    /// its own sizes agree with each other.
    pub fn check(&self, limits: &Limits) -> Result<(), ConfigFault> {
        use Allowed::{AtLeast, AtMost};
        self.check_sizes()?;
        let check = ConfigFault::check;
        let (receives, receive_len) = (AtMost(limits.receives), AtLeast(limits.receive_len));
        check("receives", self.receives, receives, "the provider holds every receive")?;
        check("receive_len", self.receive_len, receive_len, "the provider fills receives so far")?;
        // A device without windows answers; calls of ours through it have to fit inline (DESIGN
        // D1).
        if limits.windows > 0 {
            let windows = AtLeast(self.outbound.saturating_mul(CALL_WINDOWS));
            let rule = "every call of ours has its windows";
            check("limits.windows", limits.windows, windows, rule)?;
        }
        let rule = "one Read takes every segment that a call may name";
        check("limits.read_spans", limits.read_spans, AtLeast(SEGMENTS_MAX), rule)?;
        let rule = "the Reads of a call fit the send queue";
        check("limits.send_queue", limits.send_queue, AtLeast(READS_MAX + 1), rule)
    }

    /// Checks that the sizes agree with each other, and that no table is larger than a shard can
    /// address.
    pub fn check_sizes(&self) -> Result<(), ConfigFault> {
        use Allowed::{AtLeast, AtMost};
        let check = ConfigFault::check;
        // RFC 8166 §3.3.2: a peer without other information sends up to this size.
        let rule = "a receive takes the default inline threshold, 1,024 octets";
        check("receive_len", self.receive_len, AtLeast(1_024), rule)?;
        let rule = "a message of RPC-over-RDMA is far shorter";
        check("receive_len", self.receive_len, AtMost(RECEIVE_LEN_MAX), rule)?;
        let two = self.serve_versions.include_two() || self.call_versions.include_two();
        if two && self.private_data {
            let rule = "version 2 takes messages of 4,096 octets";
            check("receive_len", self.receive_len, AtLeast(4_096), rule)?;
        }
        check("receives", self.receives, AtLeast(1), "a shard hears something")?;
        let rule = "every call that can arrive has a place";
        check("inbound", self.inbound, AtLeast(self.receives), rule)?;
        check("inbound", self.inbound, AtMost(Work::PLACES_MAX), "a tag names every call")?;
        let rule = "a shard has 65,536 memory windows, two for each call of ours";
        check("outbound", self.outbound, AtMost(OUTBOUND_MAX), rule)?;
        check("peers", self.peers, AtLeast(1), "a shard has a peer")?;
        check("peers", self.peers, AtMost(MEMBERS_MAX), "more do not fit a shard's memory")?;
        check("streams", self.streams, AtMost(MEMBERS_MAX), "more do not fit a shard's memory")?;
        for slots in self.slots {
            check("slots", slots, AtMost(MEMBERS_MAX), "more do not fit a shard's memory")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_keep_to_the_receives_of_a_connection_where_none_are_shared() {
        let all = Config::small();
        assert_eq!(all.clone().within(None).grant, all.grant);
        for each in [1, 2, 8, 32, 100_000] {
            let config = all.clone().within(Some(each));
            let served = (config.grant + config.reverse_calls_max) as usize;
            let called = config.client_receives();
            assert!(config.grant >= 1 && config.calls_max >= 1);
            // At least two: one call, and one other message.
            assert!(served.max(called) <= each.max(2), "{each}: {served}, {called}");
        }
        let few = all.within(Some(32));
        assert_eq!((few.grant, few.reverse_calls_max), (21, 7));
        assert_eq!((few.calls_max, few.reverse_grant), (26, 2));
    }

    #[test]
    fn a_fault_names_the_field_its_value_and_its_limit() {
        let config = Config::small();
        let limits = config.limits(64);
        assert_eq!(config.check(&limits), Ok(()));
        let fault = |config: &Config, limits: &Limits| config.check(limits).unwrap_err();
        let more = Config { receives: 257, ..config.clone() };
        let found = fault(&more, &limits);
        assert_eq!(
            found.to_string(),
            "receives is 257 and has to be at most 256: the provider holds every receive"
        );
        assert_eq!(io::Error::from(found).kind(), io::ErrorKind::InvalidInput);
        let field = |config: &Config, limits: &Limits| fault(config, limits).field;
        let fewer = Config { inbound: 255, ..config.clone() };
        assert_eq!(field(&fewer, &limits), "inbound");
        let many = Config { inbound: Work::PLACES_MAX + 1, ..config.clone() };
        assert_eq!(field(&many, &limits), "inbound");
        let many = Config { outbound: OUTBOUND_MAX + 1, ..config.clone() };
        assert_eq!(field(&many, &limits), "outbound");
        let short = Config { receive_len: 4_095, ..config.clone() };
        assert_eq!(field(&short, &limits), "receive_len");
        let lower = Limits { receive_len: 1_024, ..limits };
        assert_eq!(fault(&short, &lower).allowed, Allowed::AtLeast(4_096));
        for (limits, named) in [
            (Limits { windows: 255, ..limits }, "limits.windows"),
            (Limits { read_spans: SEGMENTS_MAX - 1, ..limits }, "limits.read_spans"),
            (Limits { send_queue: READS_MAX, ..limits }, "limits.send_queue"),
        ] {
            assert_eq!(field(&config, &limits), named);
        }
        assert_eq!(config.check(&Limits { windows: 0, ..limits }), Ok(()));
    }

    #[test]
    fn sizes_that_no_shard_has_are_faults_without_a_provider() {
        let small = Config::small;
        assert_eq!(small().check_sizes(), Ok(()));
        let silent = Config { private_data: false, receive_len: 1_024, ..small() };
        assert_eq!(silent.check_sizes(), Ok(()));
        for (config, field) in [
            (Config { receive_len: 1_024, ..small() }, "receive_len"),
            (Config { receive_len: usize::MAX, ..small() }, "receive_len"),
            (Config { receive_len: 0, private_data: false, ..small() }, "receive_len"),
            (Config { inbound: 1, ..small() }, "inbound"),
            (Config { inbound: usize::MAX, ..small() }, "inbound"),
            (Config { outbound: usize::MAX, ..small() }, "outbound"),
            (Config { receives: usize::MAX, ..small() }, "inbound"),
            (Config { receives: 0, ..small() }, "receives"),
            (Config { peers: 0, ..small() }, "peers"),
            (Config { peers: usize::MAX, ..small() }, "peers"),
            (Config { streams: usize::MAX, ..small() }, "streams"),
            (Config { slots: [8, 8, usize::MAX], ..small() }, "slots"),
        ] {
            assert_eq!(config.check_sizes().unwrap_err().field, field, "{config:?}");
        }
    }
}
