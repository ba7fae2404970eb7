//! Delegations of files that programs of the host change, too. The programs run in real time, the
//! client in virtual time.

use super::*;
use stag_client::OtherClient;
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{
        Answer, AnswerSet as _, CompoundReply, Lock4Args, LockType, Locker, NewLockOwner,
        NoDelegation, Open4Args, OpenClaim, OpenDelegation, OpenHow, Request, StateOwner, Stateid,
        Status4, Text, share,
    },
};
use std::{
    cell::Cell,
    fs::File,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::Instant,
};

/// Real time for events that the system reports at once.
const SOON: Duration = Duration::from_secs(60);

/// A server of a directory whose files are watched, and a client that has two clients' sessions.
struct Lab {
    home: tempfile::TempDir,
    server: Server,
    client: NfsClient<Sim>,
    /// Nanoseconds that a look at the clock takes.
    tick: Rc<Cell<u64>>,
    file: FileHandle,
}

impl Lab {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let fabric = Fabric::new(3, Faults::NONE);
        let gateway = gateway(home.path(), false).with_nfs4(NFS4).without_nfs3();
        fs::write(home.path().join("data/file"), b"octets").unwrap();
        let gateway = gateway.with_watched(&["data".to_owned()]).unwrap();
        let tick = Rc::new(Cell::new(TICK));
        let (server, mut client) = clocked(&fabric, gateway, Rc::clone(&tick));
        client.begin_version4(1).unwrap();
        let root = client.mount("/data").unwrap();
        let file = client.lookup(root, b"file").unwrap().object;
        Self { home, server, client, tick, file }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("data/file")
    }

    fn other(&mut self) -> OtherClient {
        self.client.other_client_with_callbacks(1).unwrap()
    }

    fn run<T>(
        &mut self,
        client: &mut OtherClient,
        request: Request<'_>,
        read: impl FnOnce(Answer<'_>) -> T,
    ) -> Result<T, Status4> {
        let requests = [Request::PutFh(Text(self.file.octets())), request];
        let read = |reply: CompoundReply<'_>| {
            let mut last = None;
            for answer in reply {
                let answer = answer.unwrap();
                match answer.status() {
                    Status4::Ok => last = Some(answer),
                    status => return Err(Error::Nfs4(status)),
                }
            }
            Ok(read(last.unwrap()))
        };
        // It does not ask again when it is put off.
        let done = self.client.compound_beside_callbacks(client, &requests, read, |_| Ok(()));
        match done {
            Ok(value) => Ok(value),
            Err(Error::Nfs4(status)) => Err(status),
            Err(error) => panic!("{error}"),
        }
    }

    fn open(
        &mut self,
        client: &mut OtherClient,
        access: u32,
    ) -> Result<(Stateid, Result<Stateid, Option<NoDelegation>>), Status4> {
        let open = Open4Args {
            seqid: 0,
            share_access: access,
            share_deny: 0,
            owner: StateOwner { client_id: 0, owner: Text(b"opener") },
            how: OpenHow::NoCreate,
            claim: OpenClaim::Fh,
        };
        self.run(client, Request::Open(open), |answer| {
            let Answer::Open(Ok(ok)) = answer else { panic!("{answer:?}") };
            let delegation = match ok.delegation {
                OpenDelegation::Read(given) => Ok(given.stateid),
                OpenDelegation::Write(_) => panic!("none to write is given here"),
                OpenDelegation::None => Err(None),
                OpenDelegation::NoneExt(why) => Err(Some(why)),
            };
            (ok.stateid, delegation)
        })
    }

    /// An open and a delegation, of a file without conflicting users.
    fn open_delegated(&mut self, client: &mut OtherClient) -> (Stateid, Stateid) {
        let (wants, start) = (share::READ | share::WANT_READ_DELEGATION, Instant::now());
        loop {
            match self.open(client, wants).unwrap() {
                (open, Ok(delegation)) => return (open, delegation),
                // A child of another test's may have a copy of a descriptor to write by, for a
                // moment.
                (_, Err(Some(NoDelegation::Contention(_)))) if start.elapsed() < SOON => {}
                (_, Err(why)) => panic!("{why:?}"),
            }
        }
    }

    fn delegated(&mut self, client: &mut OtherClient) -> Stateid {
        self.open_delegated(client).1
    }

    fn give_back(&mut self, client: &mut OtherClient, delegation: Stateid) {
        self.run(client, Request::DelegReturn(delegation), |_| ()).unwrap();
    }

    /// Waits until a delegation is recalled.
    fn recalled(&mut self, client: &OtherClient) -> Stateid {
        let start = Instant::now();
        loop {
            self.client.pause(Duration::from_micros(50));
            if let Some(recalled) = self.client.next_recalled(client) {
                return recalled;
            }
            assert!(start.elapsed() < SOON, "nothing was recalled");
            thread::yield_now();
        }
    }

    /// So much time passes, in few looks at the clock.
    fn pass_time(&mut self, time: Duration) {
        let looks = 8;
        self.tick.set(u64::try_from(time.as_nanos()).unwrap() / looks);
        self.client.pause(time);
        self.tick.set(TICK);
    }

    /// Files that are watched now, and files that were touched so far.
    fn watched(&self) -> (u64, u64) {
        let nfs4 = self.server.borrow().snapshot().app.nfs4;
        (nfs4.watched, nfs4.touched)
    }

    /// A program that opens the file for writing, however long that takes.
    fn writer(&self) -> JoinHandle<()> {
        let path = self.path();
        thread::spawn(move || drop(File::options().write(true).open(path).unwrap()))
    }
}

fn clocked(fabric: &Fabric, gateway: Gateway, tick: Rc<Cell<u64>>) -> (Server, NfsClient<Sim>) {
    let limits = Limits { windows: 256, receives: 256, ..stag_sim::LIMITS };
    let end = fabric.end("server", limits);
    let mut server = Shard::new(end, gateway, shard(), Box::new(|_| true)).unwrap();
    server.listen(&AT).unwrap();
    let server = Rc::new(RefCell::new(server));
    let config = ClientConfig { user: (1, 1), ..ClientConfig::new(7) };
    let end = fabric.end("client", config.limits());
    let (mut time, behind) = (0, Rc::clone(&server));
    let now = move || {
        time += tick.get();
        behind.borrow_mut().pass(Time(time));
        Time(time)
    };
    let mut client = NfsClient::new(end, config, now).unwrap();
    client.connect(&AT).unwrap();
    (server, client)
}

#[test]
fn a_program_that_opens_for_writing_waits_until_the_delegations_are_back() {
    let mut lab = Lab::new();
    let (mut one, mut other) = (lab.other(), lab.other());
    let held = [lab.delegated(&mut one), lab.delegated(&mut other)];
    assert_eq!(lab.watched(), (1, 0));
    drop(File::open(lab.path()).unwrap());
    let program = lab.writer();
    for (client, held) in [(&mut one, held[0]), (&mut other, held[1])] {
        let recalled = lab.recalled(client);
        assert_eq!(recalled.other, held.other);
        assert!(!program.is_finished(), "somebody has a delegation");
        assert_eq!(lab.watched(), (1, 1), "one file was touched, once");
        lab.give_back(client, held);
    }
    program.join().unwrap();
    assert_eq!(lab.watched(), (0, 1));
}

#[test]
fn a_program_that_changes_names_or_attributes_waits_for_nobody_and_clients_hear_of_it() {
    type Change = fn(&Lab);
    let changes: [(&str, Change); 5] = [
        ("mode", |lab| {
            fs::set_permissions(lab.path(), fs::Permissions::from_mode(0o600)).unwrap();
        }),
        ("another name", |lab| {
            fs::hard_link(lab.path(), lab.home.path().join("data/link")).unwrap();
        }),
        ("its own name", |lab| {
            fs::rename(lab.path(), lab.home.path().join("data/renamed")).unwrap();
        }),
        ("replaced", |lab| {
            fs::write(lab.home.path().join("new"), b"other octets").unwrap();
            fs::rename(lab.home.path().join("new"), lab.path()).unwrap();
        }),
        ("removed", |lab| fs::remove_file(lab.path()).unwrap()),
    ];
    for (what, change) in changes {
        let mut lab = Lab::new();
        let mut one = lab.other();
        let held = lab.delegated(&mut one);
        change(&lab);
        let recalled = lab.recalled(&one);
        assert_eq!(recalled.other, held.other, "{what}");
        lab.give_back(&mut one, held);
        assert_eq!(lab.watched(), (0, 1), "{what}");
    }
}

#[test]
fn a_client_that_does_not_answer_loses_its_delegation_before_the_system_lets_the_program_go_on() {
    let limit = fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap();
    let limit = Duration::from_secs(limit.trim().parse().unwrap());
    assert!(!limit.is_zero() && limit < NFS4.lease, "the usual setting: {limit:?}");
    let mut lab = Lab::new();
    let mut one = lab.other();
    let held = lab.delegated(&mut one);
    let program = lab.writer();
    lab.recalled(&one);
    lab.pass_time(limit / 2);
    assert_eq!(lab.watched(), (1, 1));
    assert!(!program.is_finished());
    let start = Instant::now();
    lab.pass_time(limit / 3);
    program.join().unwrap();
    assert!(start.elapsed() < limit / 2, "the system did not have to end the wait");
    assert_eq!(lab.watched(), (0, 1));
    // RFC 8881 §10.4.5: the client is notified by the error.
    let refused = lab.run(&mut one, Request::DelegReturn(held), |_| ());
    assert_eq!(refused, Err(Status4::DelegRevoked));
}

#[test]
fn a_file_that_somebody_writes_is_not_delegated() {
    let wants = share::READ | share::WANT_READ_DELEGATION;
    let none = Err(Some(NoDelegation::Contention(false)));
    let mut lab = Lab::new();
    let mut one = lab.other();
    let program = File::options().append(true).open(lab.path()).unwrap();
    assert_eq!(lab.open(&mut one, wants).unwrap().1, none);
    assert_eq!(lab.open(&mut one, share::READ).unwrap().1, Err(None), "who asks for nothing");
    drop(program);
    let held = lab.delegated(&mut one);
    lab.give_back(&mut one, held);
    // The same client, by another open of its own.
    let writing = share::WRITE | share::WANT_NO_DELEGATION;
    assert!(lab.open(&mut one, writing).unwrap().1.is_err());
    assert_eq!(lab.open(&mut one, wants).unwrap().1, none);
    assert_eq!(lab.watched(), (0, 0));
}

/// Asks for a lock of the whole file.
fn lock(open: Stateid, kind: LockType) -> Request<'static> {
    Request::Lock(Lock4Args {
        kind,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker: Locker::New(NewLockOwner {
            open_seqid: 0,
            open,
            lock_seqid: 0,
            owner: StateOwner { client_id: 0, owner: Text(b"locker") },
        }),
    })
}

#[test]
fn whoever_writes_or_locks_the_file_waits_as_a_program_does_its_own_holder_too() {
    let writes = |lab: &mut Lab, client: &mut OtherClient, _: Stateid| {
        lab.open(client, share::WRITE | share::WANT_NO_DELEGATION).map(drop)
    };
    let locks = |lab: &mut Lab, client: &mut OtherClient, open: Stateid| {
        lab.run(client, lock(open, LockType::Read), |_| ())
    };
    type Act = fn(&mut Lab, &mut OtherClient, Stateid) -> Result<(), Status4>;
    for (what, act) in [("OPEN for writing", writes as Act), ("LOCK", locks as Act)] {
        let mut lab = Lab::new();
        let mut one = lab.other();
        let (open, held) = lab.open_delegated(&mut one);
        // The server waits a moment for a delegation before it puts a call off.
        lab.tick.set(TICK * 100);
        assert_eq!(act(&mut lab, &mut one, open), Err(Status4::Delay), "{what}");
        let recalled = lab.recalled(&one);
        assert_eq!(recalled.other, held.other);
        lab.give_back(&mut one, held);
        act(&mut lab, &mut one, open).unwrap();
        assert_eq!(lab.watched(), (0, 0), "{what}: no program was in the way");
        if what == "LOCK" {
            let program = File::options().write(true).open(lab.path()).unwrap();
            let all = LockedOctets { first: 0, last: u64::MAX };
            let refused = range_lock::set(&program, all, Some(true)).unwrap_err();
            assert!(range_lock::is_conflict(refused), "programs see the lock: {refused}");
        }
    }
}
