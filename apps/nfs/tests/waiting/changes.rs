//! No delegation is given of a file while a change of it is in progress, or to an OPEN that looked
//! at the file before a change that has ended since.

use crate::waiting::{
    client4::{CONFIG, Reply4, Session4, exchange, put, request},
    store::Pace,
    world::World,
};
use stag_nfs::Nfs4Config;
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::nfs::{
    v3::{Call, DirOpArgs, Name, RemoveArgs, SetAttrArgs, SetAttributes},
    v4::*,
};
use std::time::Duration;

/// Token of a call that hangs.
const HUNG: u64 = 900;

struct Two {
    world: World,
    sessions: [Session4; 2],
}

/// The client that changes the file, and the one that opens it.
const CHANGES: usize = 0;
const OPENS: usize = 1;

impl Two {
    fn new(seed: u64) -> Self {
        let nfs4 = Nfs4Config { delegations: DelegationPolicy::ReadWrite, ..CONFIG };
        let mut world = World::with(seed, |gateway| gateway.with_nfs4(nfs4));
        let flags = session_flag::CONN_BACK_CHAN;
        let sessions = [CHANGES, OPENS].map(|one| Session4::open_as(&mut world, one, flags));
        Self { world, sessions }
    }

    /// Sends a compound in a slot, and makes steps until the store has its call.
    fn hang(&mut self, client: usize, requests: &[Request<'_>]) {
        let before = self.world.report().waiting.under_way;
        while self.world.report().waiting.under_way == before {
            let mut all = vec![self.sessions[client].next(1, true)];
            all.extend(requests.iter().cloned());
            self.world.send(client, HUNG, |cx, token| request(cx, token, &all));
            for _ in 0..10_000 {
                self.world.step();
                if self.world.report().waiting.under_way > before {
                    return;
                }
                if self.world.take(client).is_some() {
                    break; // This store refuses a call now and then.
                }
            }
        }
    }

    fn await_hung(&mut self, client: usize) -> Vec<u8> {
        loop {
            if let Some((token, reply)) = self.world.take(client) {
                assert_eq!(token, HUNG);
                return reply;
            }
            self.world.step();
        }
    }

    /// Opens the file for reading: the kind of its delegation.
    fn open(&mut self) -> Option<DelegationType> {
        let file = self.world.file;
        loop {
            let requests = [self.sessions[OPENS].next(0, true), put(&file), open()];
            let reply = exchange(&mut self.world, OPENS, &requests);
            if reply.status() != Status4::Delay {
                return given(&reply);
            }
        }
    }
}

fn open() -> Request<'static> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: share::READ,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how: OpenHow::NoCreate,
        claim: OpenClaim::Fh,
    })
}

fn given(reply: &Reply4) -> Option<DelegationType> {
    match reply.last() {
        Answer::Open(Ok(opened)) => match opened.delegation {
            OpenDelegation::Read(_) => Some(DelegationType::Read),
            OpenDelegation::Write(_) => Some(DelegationType::Write),
            _ => None,
        },
        other => panic!("{other:?}"),
    }
}

/// SETATTR of the mode.
fn set_mode() -> Request<'static> {
    let attributes = RawAttributes { mask: Bitmap::of([33]), octets: &[0, 0, 1, 0x80] };
    Request::SetAttr(SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes })
}

#[test]
fn no_delegation_is_given_while_a_change_by_version_4_is_under_way() {
    for requests in [
        vec![Request::PutFh(Text(b"")), set_mode()],
        vec![Request::PutFh(Text(b"")), Request::Remove(Text(b"other"))],
    ] {
        let mut two = Two::new(21);
        let (file, slow) = (two.world.file, two.world.slow);
        let at = if matches!(requests[1], Request::Remove(_)) { slow } else { file };
        two.world.shared.borrow_mut().pace = Pace::NoChange;
        two.hang(CHANGES, &[put(&at), requests[1].clone()]);
        assert_eq!(two.open(), None, "{requests:?}");
        two.world.shared.borrow_mut().pace = Pace::Mixed;
        two.await_hung(CHANGES);
        assert_eq!(two.open(), Some(DelegationType::Read), "it is over");
        two.world.end();
    }
}

#[test]
fn no_delegation_is_given_while_a_change_by_version_3_is_under_way() {
    let mut two = Two::new(23);
    let (object, dir) = (two.world.file, two.world.slow);
    let attributes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let remove = RemoveArgs { object: DirOpArgs { dir, name: Name(b"other") } };
    for call in
        [Call::SetAttr(SetAttrArgs { object, attributes, guard: None }), Call::Remove(remove)]
    {
        two.world.shared.borrow_mut().pace = Pace::NoChange;
        let before = two.world.report().waiting.under_way;
        while two.world.report().waiting.under_way == before {
            two.world.call(CHANGES, HUNG, &call);
            two.world.pass_time(Duration::from_millis(50));
            while two.world.take(CHANGES).is_some() {}
        }
        assert_eq!(two.open(), None, "{call:?}");
        two.world.shared.borrow_mut().pace = Pace::Mixed;
        two.await_hung(CHANGES);
    }
    assert_eq!(two.open(), Some(DelegationType::Read), "both are over");
    two.world.end();
}

#[test]
fn an_open_that_looked_before_a_change_gets_no_delegation_behind_it() {
    let mut two = Two::new(25);
    let file = two.world.file;
    two.world.shared.borrow_mut().pace = Pace::ChangesOnly;
    two.hang(OPENS, &[put(&file), open()]);
    let done = loop {
        let requests = [two.sessions[CHANGES].next(0, true), put(&file), set_mode()];
        match exchange(&mut two.world, CHANGES, &requests).status() {
            Status4::Delay => {}
            status => break status,
        }
    };
    assert_eq!(done, Status4::Ok);
    two.world.shared.borrow_mut().pace = Pace::Mixed;
    let reply = Reply4::of(&two.await_hung(OPENS));
    assert_eq!(reply.status(), Status4::Ok, "{reply:?}");
    assert_eq!(given(&reply), None);
    assert_eq!(two.open(), Some(DelegationType::Read));
    two.world.end();
}
