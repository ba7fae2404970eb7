//! Scripts of restarts: lines of acts by clients and the server (RFC 8881 §8.4.2, §8.4.3).

use super::{
    party::{Held, Party},
    world::{LEASE, World},
};
use crate::gateway::nfs4::client::{read_args, write_args};
use stag_protocol::nfs::v4::{Answer, Bitmap, Rename4Args, Request, Text};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

pub use Act::*;
pub use stag_nfs4_state::DelegationPolicy;
pub use stag_protocol::nfs::v4::{DelegationType, Status4};

/// Names of clients. Each of them acts, one after the other.
pub type Clients = &'static [&'static str];
/// An act, and its status.
pub type Step = (Clients, Act, Status4);

pub const SERVER: Clients = &[];
pub const ONE: Clients = &["one"];
pub const TWO: Clients = &["two"];
pub const BOTH: Clients = &["one", "two"];

/// Acts around the server, then those of one client, on files of the export.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Restart,
    Wait(Duration),
    /// Half leases pass, and the clients renew after each.
    Idle(u32),
    /// The number of shards in a grace period.
    InGrace(u64),
    /// The number of clients that may still reclaim.
    Awaits(u64),
    With(fn(&mut World)),
    /// Gets a session and reclaims nothing, as every client does before its first act.
    Join,
    /// Finds its session lost, and gets another.
    Recover,
    /// Starts again with another verifier, and remembers its opens.
    Reboot,
    AskIdAsAnotherUser,
    Renew,
    Complete,
    Leave,
    Open(&'static str),
    Lock(&'static str),
    /// Reclaims an open, and its lock if there is one.
    Reclaim(&'static str),
    ReclaimOpen(&'static str, DelegationType),
    ReclaimLock(&'static str),
    FreeDelegation(&'static str),
    Write(&'static str),
    Read(&'static str),
    GetAttr(&'static str),
    Close(&'static str),
    Remove(&'static str),
    Rename(&'static str, &'static str),
}

/// Steps from lines `CLIENTS: Act, Act => Status;`. An act without a status succeeds.
macro_rules! steps {
    ($($clients:ident: $($act:expr $(=> $status:ident)?),+);+ $(;)?) => {
        &[$($(($clients, $act, [$(Status4::$status,)? Status4::Ok][0])),+),+]
    };
}

/// Tests that play steps on a server without delegations.
macro_rules! scripts {
    ($(fn $name:ident() { $($steps:tt)+ })+) => {
        $(#[test]
        fn $name() {
            Stage::new(DelegationPolicy::Never).play(steps![$($steps)+]);
        })+
    };
}
pub(crate) use {scripts, steps};

/// A server and its clients.
pub struct Stage {
    pub world: World,
    parties: BTreeMap<&'static str, Party>,
    /// The last open of each client and file.
    held: BTreeMap<&'static str, BTreeMap<&'static str, Held>>,
}

impl Stage {
    pub fn new(delegations: DelegationPolicy) -> Self {
        let world = World::with(delegations);
        Self { world, parties: BTreeMap::new(), held: BTreeMap::new() }
    }

    pub fn play(&mut self, steps: &[Step]) {
        for (at, &step) in steps.iter().enumerate() {
            let played = catch_unwind(AssertUnwindSafe(|| self.step(step)));
            assert!(played.is_ok(), "step {}: {step:?}", at + 1);
        }
    }

    fn step(&mut self, step: Step) {
        let (clients, act, expected) = step;
        match act {
            Restart => self.world.restart(),
            Wait(time) => self.world.wait(time),
            Idle(half_leases) => {
                for _ in 0..half_leases {
                    self.world.wait(LEASE / 2);
                    self.step((clients, Renew, expected));
                }
            }
            InGrace(shards) => assert_eq!(self.world.report().in_grace, shards),
            Awaits(count) => assert_eq!(self.world.report().awaited, count),
            With(look) => look(&mut self.world),
            _ => {
                assert!(!clients.is_empty(), "a client acts");
                for &client in clients {
                    assert_eq!(self.act(client, act), expected, "{client}");
                }
            }
        }
    }

    pub fn act(&mut self, client: &'static str, act: Act) -> Status4 {
        let Self { world, parties, held } = self;
        let party = parties.entry(client).or_insert_with(|| Party::new(client.as_bytes(), world));
        let held = held.entry(client).or_default();
        let (root, data) = (Request::PutRootFh(()), Request::Lookup(Text(b"data")));
        match act {
            Join => Status4::Ok,
            Recover => {
                assert!(party.recovers(world), "its session is lost");
                Status4::Ok
            }
            Reboot => {
                *party = Party::begun(client.as_bytes(), party.verifier + 1, world);
                Status4::Ok
            }
            AskIdAsAnotherUser => {
                party.uid += 1;
                status(party.ask_id(world))
            }
            Renew => party.run(world, &[]).status(),
            Complete => party.complete(world),
            Leave => party.leave(world),
            Open(file) => {
                let opened = party.open(world, file.as_bytes());
                status(opened.map(|open| held.insert(file, open)))
            }
            Lock(file) => status(party.lock(world, held.get_mut(file).unwrap(), false)),
            Reclaim(file) => status(party.reclaim_all(world, held.get_mut(file).unwrap())),
            ReclaimOpen(file, delegation) => {
                let opened = party.reclaim_with(world, &held[file], delegation);
                status(opened.map(|open| held.insert(file, open)))
            }
            ReclaimLock(file) => status(party.lock(world, held.get_mut(file).unwrap(), true)),
            FreeDelegation(file) => {
                let delegation = held[file].delegation.expect("the client was granted one");
                party.run(world, &[Request::FreeStateid(delegation)]).status()
            }
            Write(file) => {
                let write = write_args(held[file].open, 0, b"octets");
                party.at(world, &held[file], write).status()
            }
            Read(file) => {
                let read = read_args(held[file].open, 0, 6);
                let reply = party.at(world, &held[file], read);
                let Answer::Read(Ok(read)) = reply.last() else { return reply.status() };
                assert_eq!(read.data.octets(), Some(&b"octets"[..]));
                Status4::Ok
            }
            GetAttr(file) => {
                party.at(world, &held[file], Request::GetAttr(Bitmap::of([1]))).status()
            }
            Close(file) => party.close(world, &held[file]),
            Remove(file) => {
                let remove = Request::Remove(Text(file.as_bytes()));
                party.run(world, &[root, data, remove]).status()
            }
            Rename(old, new) => {
                let names = Rename4Args { old: Text(old.as_bytes()), new: Text(new.as_bytes()) };
                let rename = Request::Rename(names);
                party.run(world, &[root, data, Request::SaveFh(()), rename]).status()
            }
            _ => panic!("clients do not do this"),
        }
    }
}

fn status<T>(result: Result<T, Status4>) -> Status4 {
    result.err().unwrap_or(Status4::Ok)
}
