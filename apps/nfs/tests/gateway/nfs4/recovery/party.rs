//! A client that recovers as Linux does: its session shows it that the server has restarted, and it
//! reclaims.

use super::world::World;
use crate::gateway::nfs4::client::{Reply4, open_args, session_args};
use stag_protocol::nfs::v4::*;

pub struct Party {
    owner: &'static [u8],
    pub verifier: u8,
    /// The user that it acts as.
    pub uid: u32,
    id: u64,
    session: SessionId,
    sequence: u32,
}

/// An open file with one lock.
#[derive(Clone, Debug)]
pub struct Held {
    pub handle: Vec<u8>,
    pub open: Stateid,
    pub locks: Option<Stateid>,
    pub delegation: Option<Stateid>,
}

impl Party {
    /// One that has a session, and has said that it reclaims nothing.
    pub fn new(owner: &'static [u8], world: &mut World) -> Self {
        let mut party = Self::begun(owner, 1, world);
        assert_eq!(party.complete(world), Status4::Ok);
        party
    }

    /// One that has a session.
    pub fn begun(owner: &'static [u8], verifier: u8, world: &mut World) -> Self {
        let mut party = Self { owner, verifier, uid: 1000, id: 0, session: [0; 16], sequence: 0 };
        party.connect(world);
        party
    }

    fn send(&self, world: &mut World, requests: &[Request<'_>]) -> Reply4 {
        world.send(self.uid, requests)
    }

    /// EXCHANGE_ID: client ID, and the sequence ID for CREATE_SESSION.
    pub fn ask_id(&self, world: &mut World) -> Result<(u64, u32), Status4> {
        let args = ExchangeIdArgs {
            client: ClientOwner { verifier: [self.verifier; 8], owner: Text(self.owner) },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        };
        let reply = self.send(world, &[Request::ExchangeId(args)]);
        match reply.last() {
            Answer::ExchangeId(done) => done.map(|ok| (ok.client_id, ok.sequence)),
            other => panic!("{other:?}"),
        }
    }

    /// EXCHANGE_ID and CREATE_SESSION.
    pub fn connect(&mut self, world: &mut World) {
        let (id, sequence) = self.ask_id(world).unwrap();
        (self.id, self.sequence) = (id, 0);
        let reply = self.send(world, &[Request::CreateSession(session_args(id, sequence))]);
        let Answer::CreateSession(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
        self.session = ok.session;
    }

    /// Returns true if the server forgot the session; there is another one then.
    pub fn recovers(&mut self, world: &mut World) -> bool {
        let status = self.run(world, &[]).status();
        assert!(matches!(status, Status4::Ok | Status4::BadSession), "{status:?}");
        if status == Status4::BadSession {
            self.connect(world);
        }
        status == Status4::BadSession
    }

    pub fn run(&mut self, world: &mut World, requests: &[Request<'_>]) -> Reply4 {
        self.sequence += 1;
        let sequence = Request::Sequence(SequenceArgs {
            session: self.session,
            sequence: self.sequence,
            slot: 0,
            highest_slot: 0,
            cache_this: false,
        });
        let mut all = vec![sequence];
        all.extend(requests.iter().cloned());
        self.send(world, &all)
    }

    /// Runs a request on an open file.
    pub fn at(&mut self, world: &mut World, held: &Held, request: Request<'_>) -> Reply4 {
        self.run(world, &[Request::PutFh(Text(&held.handle)), request])
    }

    pub fn complete(&mut self, world: &mut World) -> Status4 {
        self.run(world, &[Request::ReclaimComplete(false)]).status()
    }

    /// Opens a file for reading and writing, made if need be.
    pub fn open(&mut self, world: &mut World, name: &[u8]) -> Result<Held, Status4> {
        self.open_as(world, open_args(name, share::BOTH, true))
    }

    /// OPEN in the export.
    pub fn open_as(&mut self, world: &mut World, open: Open4Args<'_>) -> Result<Held, Status4> {
        let (root, data) = (Request::PutRootFh(()), Request::Lookup(Text(b"data")));
        opened(&self.run(world, &[root, data, Request::Open(open), Request::GetFh(())]))
    }

    /// DELEGRETURN.
    pub fn return_delegation(&mut self, world: &mut World, held: &Held) -> Status4 {
        let delegation = held.delegation.expect("there is one");
        self.at(world, held, Request::DelegReturn(delegation)).status()
    }

    /// Opens a file again that was open before the restart.
    pub fn reclaim(&mut self, world: &mut World, held: &Held) -> Result<Held, Status4> {
        self.reclaim_with(world, held, DelegationType::None)
    }

    pub fn reclaim_with(
        &mut self,
        world: &mut World,
        held: &Held,
        delegation: DelegationType,
    ) -> Result<Held, Status4> {
        let claim = OpenClaim::Previous(delegation);
        let open = Open4Args { claim, ..open_args(b"", share::BOTH, false) };
        let handle = Request::PutFh(Text(&held.handle));
        opened(&self.run(world, &[handle, Request::Open(open), Request::GetFh(())]))
    }

    /// Locks a file for writing.
    pub fn lock(
        &mut self,
        world: &mut World,
        held: &mut Held,
        reclaim: bool,
    ) -> Result<(), Status4> {
        let owner = StateOwner { client_id: 0, owner: Text(b"process") };
        let new = NewLockOwner { open_seqid: 0, open: held.open, lock_seqid: 0, owner };
        let lock = Request::Lock(Lock4Args {
            kind: LockType::Write,
            reclaim,
            offset: 0,
            length: 10,
            locker: Locker::New(new),
        });
        let reply = self.at(world, held, lock);
        match reply.last() {
            Answer::Lock(Ok(stateid)) => held.locks = Some(stateid),
            _ => return Err(reply.status()),
        }
        Ok(())
    }

    /// Reclaims an open, and its lock if it has one.
    pub fn reclaim_all(&mut self, world: &mut World, held: &mut Held) -> Result<(), Status4> {
        let locks = held.locks.is_some();
        *held = self.reclaim(world, held)?;
        if locks { self.lock(world, held, true) } else { Ok(()) }
    }

    /// Closes a file.
    pub fn close(&mut self, world: &mut World, held: &Held) -> Status4 {
        let handle = Request::PutFh(Text(&held.handle));
        let mut requests = vec![handle];
        if let Some(locks) = held.locks {
            let kind = LockType::Write;
            let unlock = LockU4Args { kind, seqid: 0, stateid: locks, offset: 0, length: u64::MAX };
            requests.push(Request::LockU(unlock));
        }
        requests.push(Request::Close(Close4Args { seqid: 0, open: held.open }));
        self.run(world, &requests).status()
    }

    /// DESTROY_SESSION and DESTROY_CLIENTID.
    pub fn leave(&self, world: &mut World) -> Status4 {
        let ended = self.send(world, &[Request::DestroySession(self.session)]);
        assert_eq!(ended.status(), Status4::Ok);
        self.send(world, &[Request::DestroyClientid(self.id)]).status()
    }
}

fn opened(reply: &Reply4) -> Result<Held, Status4> {
    let answers = reply.answers();
    match &answers[..] {
        [.., Answer::Open(Ok(open)), Answer::GetFh(Ok(handle))] => {
            let delegation = match &open.delegation {
                OpenDelegation::Read(read) => Some(read.stateid),
                OpenDelegation::Write(write) => Some(write.stateid),
                _ => None,
            };
            let (handle, open) = (handle.0.to_vec(), open.stateid);
            Ok(Held { handle, open, locks: None, delegation })
        }
        _ => Err(reply.status()),
    }
}
