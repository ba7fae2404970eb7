//! Work that says how far it is: the server calls its client back over the client's own connection
//! (RFC 8167), and replies when the work is done.
//!
//! ```sh
//! cargo run -p stag-rpc --example progress -- serve shm:///tmp/work.sock
//! cargo run -p stag-rpc --example progress -- shm:///tmp/work.sock 5
//! ```

use stag_rpc::{
    CallOutcome, Client, Cx, Failure, LaterReply, PeerId, Replied, Replier, Server, call, program,
};
use std::{collections::HashMap, time::Duration};

program! {
    /// Works.
    pub mod work: 0x2053_5457, version 1 {
        /// Does `steps` steps and reports each by `watch::progress`; returns the acknowledged ones.
        1 => fn start(steps: u32) -> u32;
    }
}

program! {
    /// Watches work; served by the client.
    pub mod watch: 0x2053_5458, version 1 {
        /// `done` of `steps` steps are done.
        1 => fn progress(done: u32, steps: u32);
    }
}

/// Work that is not done.
struct Job {
    done: u32,
    steps: u32,
    reply: LaterReply<u32>,
}

/// The service.
#[derive(Default)]
pub struct Worker {
    jobs: HashMap<u64, Job>,
    started: u64,
}

fn tell(cx: &mut Cx<'_>, peer: PeerId, done: u32, steps: u32, token: u64) -> bool {
    call::<watch::procedures::progress>(cx, peer, (done, steps), Duration::from_secs(10), token)
        .is_ok()
}

impl work::Service for Worker {
    fn start(&mut self, steps: u32, mut reply: Replier<'_, '_, u32>) -> Replied {
        let (peer, token) = (reply.peer(), self.started);
        // By this call the client says that it takes calls, too.
        reply.cx().ready(peer);
        if steps == 0 || !tell(reply.cx(), peer, 1, steps, token) {
            return reply.send(0);
        }
        self.started += 1;
        let (reply, later) = reply.later();
        self.jobs.insert(token, Job { done: 0, steps, reply });
        later
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: &CallOutcome<'_>) {
        let Some(job) = self.jobs.get_mut(&outcome.token()) else { return };
        let is_heard = outcome.results::<watch::procedures::progress>().is_ok();
        job.done += u32::from(is_heard);
        let goes_on = is_heard && job.done < job.steps;
        if goes_on && tell(cx, outcome.peer(), job.done + 1, job.steps, outcome.token()) {
            return;
        }
        if let Some(Job { done, reply, .. }) = self.jobs.remove(&outcome.token()) {
            reply.send(cx, done);
        }
    }

    fn on_peer_down(&mut self, peer: PeerId) {
        self.jobs.retain(|_, job| job.reply.peer() != peer);
    }
}

/// A watcher: it gives each step to a function.
pub struct Watcher<F>(pub F);

impl<F: FnMut(u32, u32)> watch::Service for Watcher<F> {
    fn progress(&mut self, done: u32, steps: u32, reply: Replier<'_, '_, ()>) -> Replied {
        (self.0)(done, steps);
        reply.send(())
    }
}

/// Has the server do `steps` steps, and calls `hear` for each; returns the number reported.
///
/// # Errors
/// There is no such server, or it does not answer.
pub fn run(url: &str, steps: u32, hear: impl FnMut(u32, u32) + 'static) -> Result<u32, Failure> {
    let client = Client::builder().serve(watch::Serve(Watcher(hear))).connect(url)?;
    Ok(work::Client::over(client).start(steps)?)
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", url] => {
            let server = Server::builder().listen(url).serve(|| work::Serve(Worker::default()))?;
            println!("serving at {}", server.addresses().join(" "));
            Ok(server.wait()?)
        }
        [url, steps] => {
            let told = run(url, steps.parse()?, |done, steps| println!("{done} of {steps}"))?;
            println!("done, {told} steps were told");
            Ok(())
        }
        _ => Err("usage: progress serve URL | progress URL STEPS".into()),
    }
}
