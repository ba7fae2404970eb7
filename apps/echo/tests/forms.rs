//! Every form of a message over the simulated fabric, in both versions.

use stag_echo::{
    Echo,
    forms::{self, FORMS, FormCaller},
};
use stag_engine::{Config, Shard};
use stag_protocol::rpcrdma::{Version2, Versions};
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::{Limits, Time};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

#[test]
fn every_form_is_answered_in_both_versions_and_went_as_it_should() {
    for versions in [Versions::One, Versions::Two(Version2::Directed)] {
        let fabric = Fabric::new(1, Faults::NONE);
        let config = Config { call_versions: versions, calls_max: 8, ..Config::small() };
        let admit = || Box::new(|_| true) as Box<_>;
        let end = |name| fabric.end(name, LIMITS);
        let mut server =
            Shard::new(end("server"), Echo::default(), config.clone(), admit()).unwrap();
        let mut client = Shard::new(end("client"), FormCaller::default(), config, admit()).unwrap();
        let at = server.listen(&Port(0)).unwrap();
        let peer = client.connect(&at).unwrap();
        let mut now = Time(1);
        let ends = forms::call_all(&mut client, peer, |client| {
            if !(server.pass(now) | client.pass(now)) {
                now = fabric.next_due().unwrap_or(now).max(Time(now.0 + 1_000));
            }
        });
        assert_eq!(ends.len(), FORMS.len());
        for end in ends {
            assert_eq!(end.end, Ok(()), "{} with {versions:?}", end.form);
        }
        // The echo program keeps its stream.
        assert_eq!((server.buffers_in_use(), client.buffers_in_use()), (1, 0));
    }
}
