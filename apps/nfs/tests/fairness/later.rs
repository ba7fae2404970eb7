//! A store in memory whose calls all end in a later pass, like calls that helpers carry out.

use crate::gateway::nfs4::client::memory;
use stag_nfs_store::{
    Begun, Effort, ExportRoot, Store, StoreCall, StoreCallDone, WaitTicket, memory::Memory, perform,
};
use stag_protocol::nfs::v3::{FileHandle, Verifier};
use stag_verbs::Time;
use std::{collections::VecDeque, io};

pub struct LaterStore {
    memory: Memory,
    begun: VecDeque<(WaitTicket, StoreCall)>,
    /// Number of the calls that end in this pass.
    due: usize,
}

impl LaterStore {
    pub fn new() -> Self {
        Self { memory: memory(), begun: VecDeque::new(), due: 0 }
    }
}

impl Store for LaterStore {
    type Now = Memory;

    const MAY_WAIT: bool = true;

    fn now(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn waits(&self, _: &FileHandle, effort: Effort) -> bool {
        effort != Effort::Plain
    }

    fn begin(&mut self, call: StoreCall, ticket: WaitTicket) -> Begun {
        self.begun.push_back((ticket, call));
        Begun::Later
    }

    fn next_done(&mut self) -> Option<StoreCallDone> {
        self.due = self.due.checked_sub(1)?;
        let (ticket, mut call) = self.begun.pop_front()?;
        let outcome = perform(&mut self.memory, &mut call);
        Some(StoreCallDone { ticket, call, outcome })
    }

    fn withdraw(&mut self, _: WaitTicket) -> Option<StoreCall> {
        None
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.memory.exports()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.memory.export_roots()
    }

    fn verifier(&self) -> Verifier {
        self.memory.verifier()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn tidy(&mut self, _: Time) {
        self.due = self.begun.len();
    }
}
