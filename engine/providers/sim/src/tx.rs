//! Sending: work requests leave, and complete.

use crate::{
    conn::{SimWork, WorkStage, Wr},
    end::SimEnd,
    net::{Net, Parcel, SimPayload},
    trace::Happened,
};
use stag_verbs::{Event, Memory, Qp, Status};

impl SimEnd {
    /// Sends the work whose doorbell was rung, as far as the limit of Reads allows.
    pub(crate) fn start(&mut self, net: &mut Net, qp: Qp) {
        let reads_max = net.faults().reads;
        let early = net.faults().early;
        let id = self.id;
        let conn = self.conn(qp);
        while conn.started < conn.rung {
            let seq = conn.first_seq + conn.started as u64;
            let (reads, place) = (conn.reads, conn.place);
            let Some(wr) = conn.queue.get_mut(conn.started) else { break };
            if reads >= reads_max && matches!(wr.stage, WorkStage::Posted(SimWork::Read(_))) {
                break;
            }
            conn.started += 1;
            match std::mem::replace(&mut wr.stage, WorkStage::Flying { is_read: false }) {
                WorkStage::Posted(SimWork::Send(message, invalidate)) => {
                    let payload = net.load(place, seq, SimPayload::Buf(message), early);
                    net.send(place, seq, Parcel::Send(payload, invalidate));
                }
                WorkStage::Posted(SimWork::Write(source, to)) => {
                    let payload = net.load(place, seq, SimPayload::Extent(source), early);
                    net.send(place, seq, Parcel::Write(payload, to));
                }
                WorkStage::Posted(SimWork::Read(read)) => {
                    wr.stage = WorkStage::Flying { is_read: true };
                    conn.reads += 1;
                    net.send(place, seq, Parcel::ReadRequest(read));
                }
                WorkStage::Posted(SimWork::Invalidate(key)) => {
                    let due = net.after(net.faults().completion_delay.clone());
                    wr.stage = WorkStage::Invalidating(key, due);
                    net.wake(id, due);
                }
                _ => unreachable!("work starts once"),
            }
        }
    }

    /// Takes over work that the fabric is done with, and reports completions in order.
    pub(crate) fn collect(&mut self, net: &mut Net, qp: Qp) {
        if !self.is_live(qp) {
            return;
        }
        let now = net.now();
        let place = self.conn(qp).place;
        while net.side(place).acks.front().is_some_and(|ack| ack.due <= now) {
            let Some(ack) = net.side(place).acks.pop_front() else { break };
            self.conn(qp)
                .finish(ack.seq, WorkStage::Done(ack.buf.map_or(Memory::Shared, Memory::Buf)));
        }
        while let Some(wr) = self.conn(qp).queue.front() {
            match wr.stage {
                WorkStage::Done(_) => {}
                WorkStage::Invalidating(_, due) if due <= now => {}
                _ => break,
            }
            let Some(Wr { tag, stage }) = self.conn(qp).pop() else { break };
            let memory = match stage {
                WorkStage::Done(memory) => memory,
                WorkStage::Invalidating(key, _) => {
                    let fenced = self.windows.invalidate(qp.scope(), key);
                    Memory::Fenced(fenced.expect("nobody else invalidates a key we are about to"))
                }
                _ => unreachable!("only finished work completes"),
            };
            net.note(self.id, place.link, Happened::Completed(tag.0));
            // RFC 5042 §6.4.3.2, §6.4.6 [5042-16]: a shared completion queue does not overflow
            // RFC 5042 §6.4.3.2, §6.4.6 [5042-19]: a full event queue affects no other stream
            self.events.push_back(Event::Completed { qp, tag, status: Status::Success, memory });
        }
    }
}
