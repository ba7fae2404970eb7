//! The same by version 4: a compound that hangs in a file system stops no other caller.

use crate::stalling::{fuse, world::*};
use stag_nfs_store::files::{Callers, SlowExports};
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{FileHandle, StableHow},
        v4::*,
    },
    rpc::ReplyHeader,
    xdr::Reader,
};
use std::time::{Duration, Instant};

/// A session, and the last sequence ID of each of its slots.
struct Session {
    id: SessionId,
    sequences: [u32; 16],
}

/// The results of a compound: its status, and how many operations were carried out.
fn results(reply: &[u8]) -> (Status4, Vec<Answer<'_>>) {
    let reply = CompoundReply::parse(Reader::new(&reply[ReplyHeader::LEN..])).unwrap();
    let status = reply.head().status;
    (status, reply.map(Result::unwrap).collect())
}

fn ask(world: &mut World, caller: &mut Caller, requests: &[Request<'_>]) -> Vec<u8> {
    caller.compound(requests);
    world.await_reply(caller)
}

impl Session {
    fn open(world: &mut World, caller: &mut Caller) -> Self {
        let args = ExchangeIdArgs {
            client: ClientOwner { verifier: [1; 8], owner: Text(b"client") },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        };
        let reply = ask(world, caller, &[Request::ExchangeId(args)]);
        let (_, answers) = results(&reply);
        let [Answer::ExchangeId(Ok(known))] = &answers[..] else { panic!("{answers:?}") };
        let channel = ChannelAttributes {
            header_pad: 0,
            request_max: 400_000,
            response_max: 400_000,
            response_cached_max: 2_048,
            operations_max: 16,
            requests_max: 16,
            rdma_ird: None,
        };
        let create = CreateSessionArgs {
            client_id: known.client_id,
            sequence: known.sequence,
            flags: 0,
            fore: channel,
            back: channel,
            program: 0x4000_0000,
            security: Array::of(&[CallbackSecurity::None]),
        };
        let reply = ask(world, caller, &[Request::CreateSession(create)]);
        let (_, answers) = results(&reply);
        let [Answer::CreateSession(Ok(made))] = &answers[..] else { panic!("{answers:?}") };
        let mut session = Self { id: made.session, sequences: [0; 16] };
        let complete = [session.next(0), Request::ReclaimComplete(false)];
        let reply = ask(world, caller, &complete);
        assert_eq!(results(&reply).0, Status4::Ok);
        session
    }

    /// SEQUENCE of a new request, whose reply is kept.
    fn next(&mut self, slot: usize) -> Request<'static> {
        self.sequences[slot] += 1;
        self.again(slot)
    }

    /// SEQUENCE of the last request.
    fn again(&self, slot: usize) -> Request<'static> {
        Request::Sequence(SequenceArgs {
            session: self.id,
            sequence: self.sequences[slot],
            slot: slot as u32,
            highest_slot: 15,
            cache_this: true,
        })
    }
}

fn put(handle: &FileHandle) -> Request<'_> {
    Request::PutFh(Text(handle.octets()))
}

fn write(data: &[u8], stable: StableHow) -> Request<'_> {
    let data = Bulk::Inline(data);
    Request::Write(Write4Args { stateid: Stateid::ANONYMOUS, offset: 0, stable, data })
}

fn read(count: u32) -> Request<'static> {
    Request::Read(Read4Args { stateid: Stateid::ANONYMOUS, offset: 0, count })
}

fn look() -> Request<'static> {
    Request::GetAttr(Bitmap::of([1, 3, 4, 20, 33]))
}

fn make_directory(name: &[u8]) -> Request<'_> {
    let kind = CreateKind::Directory;
    Request::Create(Create4Args { kind, name: Text(name), attributes: RawAttributes::default() })
}

#[test]
fn a_read_that_hangs_stops_nobody_else_and_is_given_up() {
    let content = vec![7; 1_000];
    let Some(mut world) = World::new(&[("file", &content)], Callers::UNPRIVILEGED) else { return };
    let (mut first, mut other) = (world.connect(), world.connect());
    let mut session = Session::open(&mut world, &mut first);
    let (slow, data) = (world.slow, world.data);
    let file = world.lookup(&mut other, slow, b"file");
    let local = world.lookup(&mut other, data, b"file");
    world.fuse.stall(|opcode| opcode == fuse::READ);
    first.compound(&[session.next(1), put(&file), read(1_000), look()]);
    world.pass_until("the READ hangs", |world| world.fuse.held() == 1);
    for _ in 0..50 {
        // By the same session, too, with operations of both kinds of exports.
        let reply = ask(&mut world, &mut other, &[session.next(2), put(&local), read(100)]);
        let (status, answers) = results(&reply);
        let Some(Answer::Read(Ok(done))) = answers.last() else { panic!("{status:?}") };
        assert_eq!(done.data.octets(), Some(&b"of this host"[..]));
    }
    assert!(first.reply().is_none());
    let reply = world.await_reply(&mut first);
    let (status, answers) = results(&reply);
    assert_eq!((status, answers.len()), (Status4::Delay, 3), "after five seconds");
    let report = world.report();
    assert_eq!((report.nfs4.suspended, report.nfs4.busy_slots), (0, 0));
    assert_eq!((report.waiting.given_up, report.waiting.under_way), (1, 1));
    world.fuse.release();
    world.assert_empty();
    let reply = ask(&mut world, &mut first, &[session.next(1), put(&file), read(1_000), look()]);
    let (status, answers) = results(&reply);
    let [_, _, Answer::Read(Ok(done)), Answer::GetAttr(Ok(_))] = &answers[..] else {
        panic!("{status:?}")
    };
    assert_eq!(done.data.octets(), Some(&content[..]));
}

#[test]
fn operations_of_version_4_that_a_dying_disk_fails_are_counted_for_its_export() {
    for slow in [SlowExports::ByFileSystem, SlowExports::None] {
        let world = World::waiting(&[("file", b"data")], Callers::UNPRIVILEGED, slow);
        let Some(mut world) = world else { return };
        let mut caller = world.connect();
        let mut session = Session::open(&mut world, &mut caller);
        let directory = world.slow;
        let file = world.lookup(&mut caller, directory, b"file");
        world.fuse.fail(|opcode| [fuse::READ, fuse::MKDIR].contains(&opcode));
        for requests in [
            [session.next(1), put(&file), read(4)],
            [session.next(2), put(&directory), make_directory(b"new")],
        ] {
            let reply = ask(&mut world, &mut caller, &requests);
            assert_eq!(results(&reply).0, Status4::Io);
        }
        let faults: Vec<_> = world.report().faults.into_iter().collect();
        assert_eq!(faults, [("slow".to_owned(), 2)]);
        world.fuse.fail(|_| false);
        world.assert_empty();
    }
}

#[test]
fn a_write_that_hangs_is_answered_on_the_next_connection_and_done_once() {
    let Some(mut world) = World::new(&[("file", b"")], Callers::UNPRIVILEGED) else { return };
    let mut first = world.connect();
    let mut session = Session::open(&mut world, &mut first);
    let slow = world.slow;
    let file = world.lookup(&mut first, slow, b"file");
    world.fuse.stall(|opcode| opcode == fuse::WRITE);
    let old = vec![1; 100_000];
    let unstable = StableHow::Unstable;
    first.compound(&[session.next(3), put(&file), write(&old, unstable), look()]);
    world.pass_until("the WRITE hangs", |world| world.fuse.held() == 1);
    drop(first);
    let mut again = world.connect();
    again.compound(&[session.again(3), put(&file), write(&old, unstable), look()]);
    world.pass_until("it is known", |world| world.report().nfs4.joined == 1);
    assert_eq!(world.fuse.held(), 1, "it is carried out once");
    world.fuse.release();
    let reply = world.await_reply(&mut again);
    let (status, answers) = results(&reply);
    assert_eq!((status, answers.len()), (Status4::Ok, 4));
    // A retry when it is over gets the same reply.
    let requests = [session.again(3), put(&file), write(&old, unstable), look()];
    let replayed = ask(&mut world, &mut again, &requests);
    assert_eq!(replayed[ReplyHeader::LEN..], reply[ReplyHeader::LEN..]);
    world.assert_empty();
    let written = world.fuse.log(|log| log.writes.clone());
    assert_eq!(written.iter().map(|write| write.len).sum::<usize>(), 100_000);
    assert_eq!(world.report().nfs4.busy_slots, 0);
}

#[test]
fn a_change_that_hung_while_its_client_was_away_is_kept_for_it() {
    let Some(mut world) = World::new(&[], Callers::UNPRIVILEGED) else { return };
    let mut first = world.connect();
    let mut session = Session::open(&mut world, &mut first);
    let slow = world.slow;
    world.fuse.stall(|opcode| opcode == fuse::MKDIR);
    first.compound(&[session.next(4), put(&slow), make_directory(b"made"), look()]);
    world.pass_until("the MKDIR hangs", |world| world.fuse.held() == 1);
    drop(first);
    // Longer than what changes nothing would wait: it is not given up.
    let began = Instant::now();
    world.pass_until("time passes", |_| began.elapsed() > Duration::from_secs(6));
    world.fuse.release();
    world.assert_empty();
    let mut again = world.connect();
    let requests = [session.again(4), put(&slow), make_directory(b"made"), look()];
    let reply = ask(&mut world, &mut again, &requests);
    assert_eq!(results(&reply).0, Status4::Ok, "not NFS4ERR_EXIST");
    let report = world.report();
    assert_eq!((report.nfs4.replayed, report.waiting.given_up), (1, 0));
}

#[test]
fn syncs_that_hang_stop_no_shard() {
    // Of an export whose other calls the shard makes itself.
    let files: &[(&str, &[u8])] = &[("file", b"")];
    let world = World::waiting(files, Callers::UNPRIVILEGED, SlowExports::None);
    let Some(mut world) = world else { return };
    let (mut first, mut other) = (world.connect(), world.connect());
    let mut session = Session::open(&mut world, &mut first);
    let slow = world.slow;
    let file = world.lookup(&mut other, slow, b"file");
    world.fuse.stall(|opcode| opcode == fuse::FSYNC);
    let commit = Request::Commit(Commit4Args { offset: 0, count: 0 });
    let data = write(b"stable", StableHow::FileSync);
    first.compound(&[session.next(1), put(&file), data, commit, look()]);
    world.pass_until("the sync hangs", |world| world.fuse.held() == 1);
    for _ in 0..50 {
        let reply = ask(&mut world, &mut other, &[session.next(2), put(&slow), look()]);
        assert_eq!(results(&reply).0, Status4::Ok);
    }
    assert!(first.reply().is_none(), "it is not stable yet");
    world.fuse.release();
    let reply = world.await_reply(&mut first);
    let (status, answers) = results(&reply);
    let [_, _, Answer::Write(Ok(done)), Answer::Commit(Ok(verifier)), _] = &answers[..] else {
        panic!("{status:?}")
    };
    assert_eq!((done.count, done.committed, done.verifier), (6, StableHow::FileSync, *verifier));
    world.assert_empty();
    assert_eq!(world.report().nfs4.suspensions, 2, "the WRITE and the COMMIT");
}
