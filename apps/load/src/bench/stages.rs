//! How long calls took in each stage of their way: at the generator, and at the server if that can be asked.

use super::latency::Times;
use serde::{Deserialize, Serialize};

/// What a run says of the stages of its calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// One call in so many was watched by the generator.
    pub every: u32,
    /// At the generator, in the order of a call's way: queue, emit, send, reply, verify. They add up to the response time.
    pub client: Vec<StageTimes>,
    /// At the server.
    pub server: Option<ServerStages>,
    /// Why the server's are not known.
    #[serde(default)]
    pub unasked: Option<String>,
}

/// What servers said, for the time of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStages {
    /// One call in so many was watched there.
    pub every: u32,
    /// Shards that the run's connections reached; their times are put together.
    pub shards: usize,
    /// In the order of a call's way: recv, parse, pull, app, emit, push, send. A stage has a sample of each watched call that
    /// went through it: pull of those with Read chunks, push of those whose reply was pushed.
    pub stages: Vec<StageTimes>,
}

/// One stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTimes {
    /// Its name.
    pub stage: String,
    /// How long calls were in it.
    #[serde(flatten)]
    pub times: Times,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::latency::histogram;

    #[test]
    fn stages_are_read_as_they_are_written() {
        let mut times = histogram();
        times.record(7_000).unwrap();
        let stage = |name: &str| StageTimes { stage: name.to_owned(), times: Times::new(&times) };
        let server = Some(ServerStages { every: 64, shards: 2, stages: vec![stage("recv"), stage("app")] });
        let stages = Stages { every: 32, client: vec![stage("queue")], server, unasked: None };
        let value = serde_json::to_value(&stages).unwrap();
        assert_eq!(value["server"]["stages"][1]["stage"], "app");
        assert_eq!(value["server"]["stages"][1]["samples"], 1);
        assert_eq!(serde_json::from_value::<Stages>(value).unwrap(), stages);
    }
}
