//! Memory served by several shards: the home shard owns it, and executes the calls that the others,
//! its guests, send as messages.
//!
//! **A guest's call is a message to the home and one back.** The home reads its messages once per
//! pass, and completes each there; nothing is shared, and no lock is taken. Bytes are copied once,
//! between the memory and a guest's buffer: a guest's fabric has not registered another shard's
//! memory. So the home's own callers are served as by a server of one core, and guests add fabrics,
//! connections, and their work.
//!
//! **A guest's call is charged to its host.** While clients of several hosts have work, a call
//! whose host has had more of the home's core than others waits, and other calls pass it.
//!
//! **An inbox is never full.** A shard has [`TICKETS`] calls in flight at most, and its inboxes
//! have room for all of them.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock, mpsc::Receiver},
};

use stag_protocol::nfs::v3::{FileHandle, Verifier};

use super::Memory;
use crate::{
    ExportRoot, Store, StoreCall, StoreCallDone,
    call::{carrier::Carrier, store::HostTurns},
    contract::tickets::{TICKETS, WaitTicket},
    exports::security::SecurityFlavors,
    perform,
    shard_mailbox::{Inbox, Wakeup, next_of},
};

/// Calls of guests that the home executes in one pass: as long as a few READs, so that its own
/// callers do not wait longer for guests than for one another.
const CALLS_PER_PASS: usize = 64;

/// A call from a guest.
struct GuestCall {
    call: StoreCall,
    ticket: WaitTicket,
    /// The guest's index.
    guest: usize,
}

/// Constant facts about the home's memory.
#[derive(Debug)]
struct HomeFacts {
    exports: Vec<ExportRoot>,
    verifier: Verifier,
    security: Option<SecurityFlavors>,
}

/// One shard's part of a memory served by several.
#[derive(Debug)]
pub enum MemoryMail {
    /// The shard owns the memory.
    Home(HomeMail),
    /// The shard sends calls to the home.
    Guest(GuestMail),
}

/// The home's end.
pub struct HomeMail {
    inbox: Arc<Inbox<GuestCall>>,
    /// Calls that wait for the turn of their host.
    waiting: VecDeque<GuestCall>,
    messages: Receiver<GuestCall>,
    guests: Vec<Arc<Inbox<StoreCallDone>>>,
    facts: Arc<OnceLock<HomeFacts>>,
}

/// A guest's end.
pub struct GuestMail {
    /// The guest's index.
    number: usize,
    home: Arc<Inbox<GuestCall>>,
    inbox: Arc<Inbox<StoreCallDone>>,
    messages: Receiver<StoreCallDone>,
    facts: Arc<OnceLock<HomeFacts>>,
}

impl std::fmt::Debug for HomeMail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HomeMail")
    }
}

impl std::fmt::Debug for GuestMail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuestMail")
    }
}

impl MemoryMail {
    /// The parts of `shards` shards: the first is the home, and has to be started before the
    /// others.
    pub fn all(shards: usize) -> Vec<Self> {
        let guests = shards.saturating_sub(1);
        let facts = Arc::new(OnceLock::new());
        let (inbox, home_messages) = Inbox::new(TICKETS * guests.max(1));
        let home = Arc::new(inbox);
        let (inboxes, messages): (Vec<_>, Vec<_>) = (0..guests)
            .map(|_| {
                let (inbox, messages) = Inbox::new(TICKETS);
                (Arc::new(inbox), messages)
            })
            .unzip();
        let ends: Vec<_> = inboxes.iter().cloned().zip(messages).enumerate().collect();
        let first = HomeMail {
            inbox: Arc::clone(&home),
            waiting: VecDeque::with_capacity(TICKETS * guests),
            messages: home_messages,
            guests: inboxes,
            facts: Arc::clone(&facts),
        };
        let others = ends.into_iter().map(|(number, (inbox, messages))| {
            let (home, facts) = (Arc::clone(&home), Arc::clone(&facts));
            Self::Guest(GuestMail { number, home, inbox, messages, facts })
        });
        std::iter::once(Self::Home(first)).chain(others).collect()
    }

    /// Wakes the shard when a message is there.
    pub fn wakeup(&self) -> Wakeup {
        match self {
            Self::Home(home) => Wakeup::new(&home.inbox),
            Self::Guest(guest) => Wakeup::new(&guest.inbox),
        }
    }
}

impl Memory {
    /// The same store, which also executes the calls of guests.
    #[must_use]
    pub fn with_guests(mut self, mail: HomeMail) -> Self {
        let (exports, verifier, security) = (self.export_roots(), self.verifier(), self.security);
        let facts = HomeFacts { exports, verifier, security };
        mail.facts.set(facts).expect("one memory is the home of its guests");
        self.guests = Some(mail);
        self
    }

    /// Returns true if a guest's message may be there, or waits.
    pub(super) fn has_messages(&self) -> bool {
        self.guests.as_ref().is_some_and(|mail| mail.inbox.is_filled() || !mail.waiting.is_empty())
    }

    /// Executes calls of guests, the waiting ones first; true if any was executed.
    pub(super) fn serve_guests(&mut self, turns: &mut dyn HostTurns) -> bool {
        // The other half is for calls of hosts that have not had their share.
        let waiting = self.guests.as_ref().map_or(0, |mail| mail.waiting.len());
        let waiting = waiting.min(CALLS_PER_PASS / 2);
        let mut has_served = false;
        for number in 0..CALLS_PER_PASS {
            let Some(mail) = &mut self.guests else { break };
            let waits = if number < waiting { mail.waiting.pop_front() } else { None };
            let Some(message) = waits.or_else(|| next_of(&mail.inbox, &mail.messages)) else {
                return has_served;
            };
            let (from, shard) = (message.call.caller.address, message.guest as u16 + 1);
            if turns.take(from, shard) {
                self.serve_guest(message);
                turns.end(from, shard);
                has_served = true;
            } else {
                mail.waiting.push_back(message);
            }
        }
        // There may be more: the shard makes another pass before it sleeps.
        if let Some(mail) = &self.guests {
            mail.inbox.wake();
        }
        has_served
    }

    fn serve_guest(&mut self, GuestCall { mut call, ticket, guest }: GuestCall) {
        let outcome = perform(self, &mut call);
        let by = self.guests.as_ref().and_then(|mail| mail.guests.get(guest));
        // A guest that is gone needs no answer.
        if let Some(by) = by
            && by.put(StoreCallDone { ticket, call, outcome }).is_ok()
        {
            by.wake();
        }
    }
}

impl Carrier for GuestMail {
    fn send(&mut self, call: StoreCall, ticket: WaitTicket) -> Result<(), StoreCall> {
        let message = GuestCall { call, ticket, guest: self.number };
        self.home.put(message).map_err(|message| message.call)?;
        self.home.wake();
        Ok(())
    }

    fn next_done(&mut self) -> Option<StoreCallDone> {
        next_of(&self.inbox, &self.messages)
    }

    /// A message cannot be withdrawn: the home reads it in its next pass.
    fn withdraw(&mut self, _ticket: WaitTicket) -> Option<StoreCall> {
        None
    }

    fn exports(&self) -> Vec<String> {
        self.export_roots().into_iter().map(|export| export.name).collect()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.facts.get().map_or_else(Vec::new, |facts| facts.exports.clone())
    }

    fn has_security(&self) -> bool {
        self.flavors("").is_some()
    }

    fn flavors(&self, _export: &str) -> Option<SecurityFlavors> {
        self.facts.get()?.security
    }

    fn flavors_of(&self, _object: &FileHandle) -> Option<SecurityFlavors> {
        self.flavors("")
    }

    /// Files are pinned by version 4 state, which is the home's.
    fn unpin(&self, _file: &FileHandle) {}

    fn verifier(&self) -> Verifier {
        self.facts.get().map_or(Verifier::default(), |facts| facts.verifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Caller, CreateMode, NewAttributes, OwnedName, Procedures as _, StoreOutcome, StoreRequest,
        User,
        memory::{MemoryConfig, MemoryExport},
    };
    use stag_engine::PeerAddress;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn home_and_guests<const GUESTS: usize>() -> (Memory, [GuestMail; GUESTS]) {
        let mut all = MemoryMail::all(1 + GUESTS).into_iter();
        let Some(MemoryMail::Home(mail)) = all.next() else { panic!("the first is the home") };
        let guests = all.map(|guest| match guest {
            MemoryMail::Guest(guest) => guest,
            MemoryMail::Home(_) => panic!("there is one home"),
        });
        let guests = guests.collect::<Vec<_>>().try_into().unwrap();
        let export = MemoryExport { name: "data".to_owned(), copy_of: None, read_only: false };
        let config = MemoryConfig::new(vec![export], 4 << 20);
        (Memory::new(&config, &mut |_| ()).unwrap().with_guests(mail), guests)
    }

    fn call(uid: u32, operation: StoreRequest) -> StoreCall {
        let user = User::Unix { uid, gid: uid, gids: Default::default() };
        let caller = Caller::trusted(user, PeerAddress::Simulated);
        StoreCall { caller, operation, room: None, payload: None }
    }

    /// Turns of all hosts but one.
    struct Except(Option<PeerAddress>);

    impl HostTurns for Except {
        fn take(&mut self, from: PeerAddress, shard: u16) -> bool {
            assert!((1..3).contains(&shard));
            self.0 != Some(from)
        }

        fn end(&mut self, from: PeerAddress, _shard: u16) {
            assert_ne!(self.0, Some(from), "it had no turn");
        }
    }

    #[test]
    fn calls_of_a_host_wait_for_its_turn_and_others_pass_them() {
        let (mut home, [mut guest, _]) = home_and_guests::<2>();
        let root = home.mount(b"/data").unwrap();
        let [greedy, other] =
            [1, 2].map(|octet| PeerAddress::Ip(SocketAddr::from(([10, 0, 0, octet], 1023))));
        let look = |address| {
            let mut call = call(1, StoreRequest::GetAttr { file: root });
            call.caller.address = address;
            call
        };
        let waiting = CALLS_PER_PASS as u16 + 3;
        for number in 0..waiting {
            guest.send(look(greedy), WaitTicket(number)).unwrap();
        }
        for next in waiting..waiting + 4 {
            guest.send(look(other), WaitTicket(next)).unwrap();
            let passes = (0..).find(|_| home.serve_others(&mut Except(Some(greedy)))).unwrap();
            assert!(passes <= 2, "{passes} passes without it");
            assert_eq!(guest.next_done().map(|done| done.ticket), Some(WaitTicket(next)));
            assert!(guest.next_done().is_none() && home.wants_idle_passes());
        }
        while home.wants_idle_passes() {
            home.serve_others(&mut Except(None));
        }
        let mut done: Vec<_> =
            std::iter::from_fn(|| guest.next_done()).map(|done| done.ticket.0).collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..waiting), "each is answered once");
    }

    #[test]
    fn a_call_of_a_guest_is_carried_out_as_its_caller_and_comes_back_to_that_guest() {
        let (mut home, mut guests) = home_and_guests::<2>();
        let root = home.mount(b"/data").unwrap();
        assert_eq!(guests[1].exports(), ["data"]);
        assert_eq!(guests[1].verifier(), home.verifier());
        for (uid, guest) in (7..).zip(&mut guests) {
            let name = OwnedName::new(format!("of-{uid}").as_bytes());
            let how = CreateMode::Guarded(NewAttributes::default());
            let create = call(uid, StoreRequest::Create { directory: root, name, how });
            guest.send(create, WaitTicket(uid as u16)).unwrap();
            assert!(guest.next_done().is_none() && home.wants_idle_passes());
        }
        assert!(home.serve_others(&mut Except(None)));
        assert!(!home.wants_idle_passes() && !home.serve_others(&mut Except(None)));
        for (uid, guest) in (7..).zip(&mut guests) {
            let done = guest.next_done().unwrap();
            assert_eq!(done.ticket, WaitTicket(uid as u16));
            let StoreOutcome::Made(Ok(made)) = done.outcome else { panic!("{:?}", done.outcome) };
            assert_eq!((made.attributes.uid, made.is_new), (uid, true));
            assert_eq!(home.getattr(&made.handle).unwrap().uid, uid);
            assert!(guest.next_done().is_none());
        }
    }

    #[test]
    fn all_calls_that_a_guest_may_have_under_way_find_room_and_take_several_passes() {
        let (mut home, [mut guest, other]) = home_and_guests::<2>();
        let woken = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&woken);
        Wakeup::new(&guest.inbox).attach(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        drop(other);
        let root = home.mount(b"/data").unwrap();
        let look = || call(1, StoreRequest::GetAttr { file: root });
        for number in 0..TICKETS as u16 {
            guest.send(look(), WaitTicket(number)).unwrap();
        }
        let mut numbers = 0..TICKETS as u16;
        while home.wants_idle_passes() {
            let has_served = home.serve_others(&mut Except(None));
            let mut passed = 0;
            while let Some(done) = guest.next_done() {
                assert_eq!(Some(done.ticket.0), numbers.next(), "in their order");
                assert!(matches!(done.outcome, StoreOutcome::Attributes(Ok(_))));
                passed += 1;
            }
            assert!(passed <= CALLS_PER_PASS && has_served == (passed > 0));
        }
        assert!(numbers.is_empty());
        assert_eq!(woken.load(Ordering::Relaxed), TICKETS as u32);
        assert!(guest.withdraw(WaitTicket(0)).is_none());
        // A home that is gone refuses all calls.
        drop(home);
        let refused = guest.send(look(), WaitTicket(1)).map_err(|call| call.operation);
        assert!(matches!(refused, Err(StoreRequest::GetAttr { .. })));
    }
}
