//! Malformed messages at both ends of a connection.

use std::collections::BTreeMap;

use stag_protocol::rpcrdma::{ChunkLists, Connection};

use super::samples::{Sample, samples};
use super::{Court, DENSE, Mutation, changes, cuts, is_changed};
use crate::receive::{Context, Outcome, Scratch, receive};

/// The credit word: whatever it says, the message means the same.
const CREDITS: std::ops::Range<usize> = 8..12;

struct Sweep {
    court: Court,
    scratch: Scratch,
    /// Number of times that each outcome came.
    outcomes: BTreeMap<&'static str, usize>,
}

const fn class(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Discarded(_) => "discarded",
        Outcome::Answered(..) => "answered by RDMA_ERROR",
        Outcome::Refused => "refused by RPC",
        Outcome::Called(_) => "a call to carry out",
        Outcome::Unmatched => "a reply to no call",
        Outcome::Error(_) => "an RDMA_ERROR",
        Outcome::Failed => "a reply that makes no sense",
        Outcome::Denied => "a reply that denies the call",
        Outcome::Replied => "a reply with results",
    }
}

impl Sweep {
    fn judge(
        &mut self,
        (name, mutation): (&str, Mutation),
        end: &Connection,
        octets: &[u8],
        context: &Context<'_>,
    ) -> Option<Outcome> {
        let scratch = &mut self.scratch;
        let outcome = self
            .court
            .hear(name, mutation, || receive(&mut end.clone(), octets, context, scratch))?;
        *self.outcomes.entry(class(&outcome)).or_default() += 1;
        Some(outcome)
    }

    fn hold(&mut self, (name, mutation): (&str, Mutation), holds: impl FnOnce() -> bool) {
        self.court.hear(name, mutation, || assert!(holds()));
    }

    /// The message, at its receiver and at an end that it was not meant for.
    fn sweep_message(&mut self, sample: &Sample) {
        let context = sample.context();
        for end in &sample.ends {
            let mut octets = sample.message.octets.clone();
            let original = receive(&mut end.clone(), &octets, &context, &mut self.scratch);
            let mut judge = |octets: &[u8], mutation: Mutation| {
                let outcome = self.judge((&sample.name, mutation), end, octets, &context);
                if !mutation.is_cut() && CREDITS.contains(&mutation.at()) {
                    self.hold((&sample.name, mutation), || outcome == Some(original));
                }
            };
            cuts(&octets, &mut judge);
            let len = octets.len();
            assert!(len <= DENSE, "a message is changed at every octet");
            changes(&mut octets, len, &mut judge);
        }
    }

    /// Mutates the content of the sample's chunk.
    fn sweep_content(&mut self, sample: &Sample) {
        if sample.content_len == 0 {
            return;
        }
        let name = format!("{}, chunk", sample.name);
        let [end, _] = &sample.ends;
        let mut memory = sample.memory.clone();
        changes(&mut memory, sample.content_len, |memory, mutation| {
            let context = Context { memory, ..sample.context() };
            self.judge((&name, mutation), end, &sample.message.octets, &context);
        });
        let mut lists = ChunkLists::new();
        let mut out = vec![0; 4096];
        for len in (0..sample.content_len).filter(|len| is_changed(*len, sample.content_len)) {
            let message_len = sample.with_content(len, &mut lists, &mut out);
            let mutation = Mutation::Cut(len);
            let outcome =
                self.judge((&name, mutation), end, &out[..message_len], &sample.context());
            if sample.is_v3() {
                // All of it is needed.
                self.hold((&name, mutation), || {
                    matches!(
                        outcome,
                        Some(Outcome::Refused | Outcome::Failed | Outcome::Discarded(_))
                    )
                });
            }
        }
    }
}

#[test]
fn sixty_four_messages_malformed_at_every_octet_do_no_harm() {
    let mut sweep =
        Sweep { court: Court::default(), scratch: Scratch::new(), outcomes: BTreeMap::new() };
    for sample in samples() {
        let judged = sweep.court.judgements;
        sweep.sweep_message(&sample);
        sweep.sweep_content(&sample);
        let (octets, content) = (sample.message.octets.len(), sample.content_len);
        println!(
            "{:8}  {} ({octets} octets, {content} in a chunk)",
            sweep.court.judgements - judged,
            sample.name
        );
    }
    for (class, count) in &sweep.outcomes {
        println!("{count:8}  {class}");
    }
    sweep.court.close();
    assert_eq!(sweep.outcomes.len(), 9, "every outcome is seen: {:?}", sweep.outcomes);
}
