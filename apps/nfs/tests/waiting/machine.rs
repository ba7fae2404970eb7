//! The session of a client that is protected by the credential of its machine (SP4_MACH_CRED) is
//! lent like any other, with the connections that are bound to it.

use crate::waiting::{
    client4::{CONFIG, Reply4, Session4, exchange_by, look, put, session_args},
    lending::even,
    world::World,
};
use stag_protocol::nfs::{v3::Call, v4::*};

/// A connection of a client's two: it has two clients, which stand for two connections of one host
/// to each shard.
type Path = (usize, u64);
const SECOND: Path = (0, 1);
const SECOND_TOO: Path = (1, 1);
const HOME: Path = (0, 0);

const MACHINE: &[u8] = b"krb5i";
const USER: &[u8] = b"krb5p";

/// A world with a client of that kind, whose session was made over the second shard.
fn protected() -> (World, Session4) {
    let mut world = even(CONFIG);
    for (client, token) in [HOME, SECOND, (1, 0), SECOND_TOO] {
        // A connection has one credit before its first reply.
        world.call(client, token, &Call::Null);
    }
    world.pass_time(std::time::Duration::from_millis(50));
    (0..2).for_each(|client| while world.take(client).is_some() {});
    let operations = ProtectedOperations {
        enforce: Bitmap::of([41, 42, 43, 44, 57]),
        allow: Bitmap::of([4, 8, 14, 21]),
    };
    let args = ExchangeIdArgs {
        client: ClientOwner { verifier: [1; 8], owner: Text(b"machine") },
        flags: 0,
        protection: StateProtection::MachineCredential(operations),
        implementation: None,
    };
    let reply = exchange_by(&mut world, MACHINE, SECOND, &[Request::ExchangeId(args)]);
    let Answer::ExchangeId(Ok(known)) = reply.last() else { panic!("{reply:?}") };
    let create = Request::CreateSession(session_args(known.client_id, known.sequence));
    let reply = exchange_by(&mut world, MACHINE, SECOND, &[create]);
    let Answer::CreateSession(Ok(made)) = reply.last() else { panic!("{reply:?}") };
    let mut session = Session4::of(&made, known.client_id);
    let complete = [session.next(0, false), Request::ReclaimComplete(false)];
    assert_eq!(exchange_by(&mut world, MACHINE, SECOND, &complete).status(), Status4::Ok);
    (world, session)
}

fn look_over(world: &mut World, session: &mut Session4, path: Path) -> Reply4 {
    let file = world.file;
    exchange_by(world, USER, path, &[session.next(0, false), put(&file), look()])
}

fn bind(session: &Session4) -> Request<'static> {
    let wish = ChannelWish::Fore;
    Request::BindConnToSession(BindConnArgs { session: session.id, wish, rdma_mode: false })
}

/// Looks over both connections to the second shard, which executes that without a message.
fn assert_both_are_bound(world: &mut World, session: &mut Session4) {
    let (forwarded, lent) = (world.forwarded(), world.lent());
    for path in [SECOND_TOO, SECOND] {
        assert_eq!(look_over(world, session, path).status(), Status4::Ok);
    }
    assert_eq!((world.forwarded(), world.lent()), (forwarded, lent + 2), "both are bound");
    world.end();
}

/// A request over a connection that is not bound, whose slot stays as it was.
fn assert_unbound(world: &mut World, session: &mut Session4, path: Path) {
    let refused = look_over(world, session, path);
    assert_eq!(refused.status(), Status4::ConnNotBoundToSession);
    session.sequences[0] -= 1;
}

#[test]
fn its_shard_executes_what_comes_over_the_connections_that_are_bound() {
    let (mut world, mut session) = protected();
    let (forwarded, lent) = (world.forwarded(), world.lent());
    assert_eq!(look_over(&mut world, &mut session, SECOND).status(), Status4::Ok);
    assert_eq!((world.forwarded(), world.lent()), (forwarded, lent + 1), "the first connection");
    // The home refuses a connection that is not bound, and leaves the slots where they are.
    assert_unbound(&mut world, &mut session, SECOND_TOO);
    // Another user cannot bind it.
    let weak = exchange_by(&mut world, b"krb5", SECOND_TOO, &[bind(&session)]);
    assert_eq!(weak.status(), Status4::WrongCred);
    let bound = exchange_by(&mut world, MACHINE, SECOND_TOO, &[bind(&session)]);
    assert_eq!(bound.status(), Status4::Ok);
    assert_both_are_bound(&mut world, &mut session);
}

#[test]
fn its_slots_follow_it_with_the_connections_that_were_bound_at_the_home() {
    let (mut world, mut session) = protected();
    assert_unbound(&mut world, &mut session, HOME);
    let bound = exchange_by(&mut world, MACHINE, HOME, &[bind(&session)]);
    assert_eq!(bound.status(), Status4::Ok);
    // The slots go home with the first request over that connection, and come back after many over
    // the other shard.
    assert_eq!(look_over(&mut world, &mut session, HOME).status(), Status4::Ok);
    let bound = exchange_by(&mut world, MACHINE, SECOND_TOO, &[bind(&session)]);
    assert_eq!(bound.status(), Status4::Ok);
    for _ in 0..40 {
        assert_eq!(look_over(&mut world, &mut session, SECOND_TOO).status(), Status4::Ok);
    }
    assert_both_are_bound(&mut world, &mut session);
}

#[test]
fn what_lets_state_go_by_the_machine_is_judged_at_the_home() {
    let (mut world, mut session) = protected();
    let slow = world.slow;
    let opening = [session.next(0, true), put(&slow), crate::waiting::client4::open(b"file", 0)];
    let reply = exchange_by(&mut world, USER, SECOND, &opening);
    let Answer::Open(Ok(opened)) = reply.last() else { panic!("{reply:?}") };
    let (file, open) = (world.file, opened.stateid);
    let closing = [session.next(0, true), put(&file), crate::waiting::lending::close(open)];
    assert_eq!(exchange_by(&mut world, MACHINE, SECOND, &closing).status(), Status4::Ok);
    // The session ends by the machine's credential only, which is its principal with integrity or
    // privacy, and its shard hears of that.
    let destroy = [Request::DestroySession(session.id)];
    let weak = exchange_by(&mut world, b"krb5", SECOND, &destroy);
    assert_eq!(weak.status(), Status4::WrongCred);
    assert_eq!(exchange_by(&mut world, MACHINE, SECOND, &destroy).status(), Status4::Ok);
    assert_eq!(look_over(&mut world, &mut session, SECOND).status(), Status4::BadSession);
    world.end();
}
