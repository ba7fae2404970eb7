//! The generator as the app of its shard: replies, connections, and calls of the server.

use super::{ASKED_OF_SESSION, Generator, GeneratorPhase, contexts::OpenedReply};
use crate::{stages::Stage, workload};
use stag_client::Error;
use stag_engine::{App, Call, CallFault, Cause, Cx, Outcome, PeerId, Token};
use stag_protocol::rpc::Accepted;

impl App for Generator {
    type Report = ();

    fn report(&self) {}

    /// Due calls are made in a turn, before the pass that sends them; the pass itself only
    /// receives.
    fn wants_idle_passes(&self) -> bool {
        false
    }

    /// The server calls.
    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let (program, version, procedure) =
            (call.header.program, call.header.version, call.header.procedure);
        let lap = (stag_echo::PROGRAM, stag_echo::VERSION, stag_echo::LAP);
        if self.laps.is_some() && (program, version, procedure) == lap {
            self.answer(cx, &call);
        } else {
            cx.refuse(&call, Accepted::ProgUnavail);
        }
    }

    #[inline]
    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let index = u32::try_from(outcome.token.0).unwrap_or(u32::MAX);
        let octets = match &outcome.result {
            None => &[][..],
            Some(result) => result,
        };
        if let Some(item) = outcome.item {
            self.items.give(item);
        }
        let Some(slot) = self.slots.get(index as usize) else {
            return self.take_own(outcome.token, outcome.reply.map_err(Error::Call), octets);
        };
        let ask = slot.ask;
        if let Some(contexts) = &mut self.contexts {
            contexts.finish(index);
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.stamp(index, Stage::Reply, cx.now());
        }
        let result = match outcome.reply {
            Ok(reply) => match self.check(index, ask, reply, octets) {
                Some(result) => result,
                None => return,
            },
            Err(CallFault::NoPeer) => Err(Error::NotConnected(self.down)),
            Err(fault) => Err(Error::Call(fault)),
        };
        if let Some(watcher) = &mut self.watcher {
            watcher.stamp(index, Stage::Verify, cx.now());
            watcher.end(index, result.is_ok());
        }
        // By its parts, because a result that was just written is not read again.
        match result {
            Ok(octets) => self.finished.push((index, Ok(octets))),
            Err(error) => self.finish_failed(index, error),
        }
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        match &mut self.storm {
            Some(storm) => storm.handle_up(peer),
            None => self.up += 1,
        }
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        if let Some(storm) = &mut self.storm {
            // Its call ended with this cause before, if it was made.
            if let Some(index) = storm.handle_down(peer)
                && !self.finished.iter().any(|(known, _)| *known == index)
            {
                self.finished.push((index, Err(Error::NotConnected(Some(cause)))));
            }
            return;
        }
        self.up = self.up.saturating_sub(1);
        self.down = Some(cause);
        if let Some(contexts) = &mut self.contexts {
            contexts.note_loss(cx, peer, &self.peers, cause);
        }
        if self.outages.is_wanted && self.phase != GeneratorPhase::AwaitStart {
            return self.outages.lose(cx.now());
        }
        if self.phase == GeneratorPhase::Running {
            self.failure.get_or_insert(("the connection", Error::NotConnected(Some(cause))));
            self.give_up(cx.now());
        }
    }
}

impl Generator {
    /// Takes the reply to a call that is not one of the workload.
    #[cold]
    fn take_own(&mut self, token: Token, reply: Result<&[u8], Error>, octets: &[u8]) {
        if let Some(contexts) = &mut self.contexts
            && contexts.take(token, reply)
        {
            return;
        }
        let Some(sessions) = self.sessions.as_mut().filter(|_| token == ASKED_OF_SESSION) else {
            return self.told = Some(reply.and_then(|reply| workload::stages(reply, octets)));
        };
        let Some(contexts) = &mut self.contexts else { return sessions.finish(reply) };
        let step = contexts.step();
        contexts.finish(step);
        match reply.map(|reply| (reply, contexts.judge(step, reply))) {
            Ok((_, OpenedReply::Cleared(clear))) => {
                sessions.finish(Ok(&clear));
                contexts.give(clear);
            }
            Ok((_, OpenedReply::Refused(error))) | Err(error) => sessions.finish(Err(error)),
            Ok((reply, OpenedReply::AsItCame | OpenedReply::Again)) => sessions.finish(Ok(reply)),
        }
    }
}
