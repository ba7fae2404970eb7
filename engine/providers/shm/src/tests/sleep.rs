//! No shard sleeps through a message of its peer.

use super::*;

#[test]
fn a_wake_up_that_comes_while_falling_asleep_is_not_the_last_one() {
    let place = SocketHome::new("asleep");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    server.send(at_server, b"something to read");
    assert_eq!(server.events().len(), 1);
    server.shm.say_asleep();
    // The client reads, and says how far: that ends the sleep, although there is nothing to do.
    assert_eq!(client.events().len(), 1);
    let is_asleep = server.shm.is_settled();
    client.send(at_client, b"a call");
    assert!(!is_asleep || is_readable(&server.shm), "nobody wakes it any more");
}

#[test]
fn a_peer_that_only_reads_wakes_nobody() {
    let place = SocketHome::new("undisturbed");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    server.send(at_server, b"a reply");
    assert_eq!(server.events().len(), 1);
    assert!(server.shm.arm());
    assert_eq!(client.events().len(), 1);
    assert!(!is_readable(&server.shm), "it is woken for nothing");
    client.send(at_client, b"a call");
    assert!(is_readable(&server.shm), "nobody wakes it any more");
}

#[test]
fn a_process_that_loses_its_link_takes_no_wake_up_from_others() {
    for is_inline in [true, false] {
        let place = SocketHome::new("bystander");
        let (mut server, at_server, mut liar, _) = meet(&place, false);
        let mut other = ShmEnd::new(false, LIMITS);
        let (_, to_other) = connect(&mut other, &mut server, &place.address(false));
        assert!(other.shm.arm());
        overfill(&mut server, at_server);
        liar.link().own().unwrap().set_word(crate::ring::HEAD, u64::MAX);
        let message = server.buf(b"a call");
        if is_inline {
            // It needs no doorbell, and no other process's ring.
            assert!(server.shm.send_inline(to_other, &message, None));
            assert!(is_readable(&other.shm), "nobody wakes it");
            server.events();
        } else {
            server
                .shm
                .post_send(to_other, Tag(0), message, None)
                .map_err(|refused| refused.why)
                .unwrap();
            server.shm.ring();
        }
        assert_eq!(server.shm.links(), 1, "the liar has lost its link");
        assert!(is_readable(&other.shm), "nobody wakes it");
    }
}

#[test]
fn nobody_sleeps_beside_a_message_that_has_a_receive() {
    let place = SocketHome::new("receive");
    let (mut server, _, mut client, at_client) = meet(&place, false);
    (0..120).for_each(|_| client.send(at_client, b"a call"));
    assert_eq!(server.events().len(), 32, "others wait, and some of them in the ring");
    assert!(server.shm.arm(), "nothing has where to go");
    let receives = 72; // more than wait outside the ring
    (0..receives).for_each(|_| server.shm.post_receive(server.pool.take(4096).unwrap()).unwrap());
    for told in 0..receives {
        assert!(!server.shm.arm(), "{told} of {receives} messages are told of");
        assert!(matches!(server.poll(), Some(Event::Received { .. })));
    }
    assert!(server.poll().is_none());
    assert!(server.shm.arm());
}

#[test]
fn a_process_that_says_hello_while_we_fall_asleep_is_heard() {
    let place = SocketHome::new("hello");
    let (mut server, mut client) = (ShmEnd::new(false, LIMITS), ShmEnd::new(false, LIMITS));
    server.shm.listen(&place.address(false)).unwrap();
    client.shm.connect(&place.address(false), b"").unwrap();
    // It is taken in; its hello is received while falling asleep.
    assert!(server.poll().is_none());
    let is_asleep = server.shm.arm();
    client.events();
    assert!(!is_asleep || is_readable(&server.shm), "nobody wakes it any more");
}

#[test]
fn a_server_that_is_busy_is_waited_for_asleep() {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    };
    let place = SocketHome::new("busy");
    let at = SocketAddrUnix::new(place.address(false).path()).unwrap();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let server = socket();
    bind(&server, &at).unwrap();
    listen(&server, 1).unwrap();
    let mut queue = Vec::new();
    loop {
        let next = socket();
        if connect(&next, &at) == Err(Errno::AGAIN) {
            break;
        }
        queue.push(next);
    }
    let mut client = ShmEnd::new(false, LIMITS);
    client.shm.connect(&place.address(false), b"").unwrap();
    assert!(client.events().is_empty());
    assert!(client.shm.arm() && client.shm.wake_at().is_some());
    assert!(!is_readable(&client.shm), "it wakes up at once");
    // As soon as there is room, it says hello.
    while rustix::net::accept(&server).is_ok() {}
    assert!(client.events().is_empty());
    let accepted = rustix::net::accept(&server).unwrap();
    let mut octets = [0; 256];
    let (len, _) =
        rustix::net::recv(&accepted, &mut octets, rustix::net::RecvFlags::empty()).unwrap();
    assert!(octets[..len].starts_with(b"stag-shm"));
    drop(accepted);
    let ends = client.events();
    assert!(matches!(
        ends[..],
        [Event::Disconnected { cause: Cause::Fabric(FabricFault::Refused), .. }]
    ));
}

#[test]
fn a_message_that_ends_a_sleep_comes_before_the_sockets() {
    let place = SocketHome::new("first");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    for _ in 0..3 {
        assert!(server.shm.arm());
        client.send(at_client, b"a call");
        assert!(is_readable(&server.shm));
        server.now = server.now + Duration::from_millis(10);
        let looks = server.shm.stats().looks;
        let event = server.shm.poll(server.now);
        assert!(matches!(event, Some(Event::Received { qp, .. }) if qp == at_server), "{event:?}");
        assert_eq!(server.shm.stats().looks, looks, "the sockets were looked at first");
        // A shard that sleeps again at once is not woken by the same wake-up.
        assert!(server.shm.arm() && !is_readable(&server.shm));
        assert!(server.shm.poll(server.now).is_none());
        assert_eq!(client.shm.stats().wakeups, server.shm.sleeps / 2, "one for each message");
    }
}

#[test]
fn the_sockets_are_looked_at_soon_after_a_message_ended_a_sleep() {
    let place = SocketHome::new("soon");
    let (mut server, _, mut client, at_client) = meet(&place, false);
    assert!(server.shm.arm());
    client.send(at_client, b"a call");
    assert!(server.shm.poll(server.now).is_some());
    assert!(is_readable(&server.shm), "its wake-up waits");
    let soon = server.now + Duration::from_micros(200);
    assert!(server.shm.poll(soon).is_none());
    assert!(!is_readable(&server.shm));
}

#[test]
fn a_process_that_ends_a_sleep_by_its_socket_is_heard_at_once() {
    let place = SocketHome::new("at-once");
    let (mut server, _, _client, _) = meet(&place, false);
    let mut newcomer = ShmEnd::new(false, LIMITS);
    assert!(server.shm.arm());
    newcomer.shm.connect(&place.address(false), b"").unwrap();
    assert!(is_readable(&server.shm));
    assert!(server.shm.poll(server.now).is_none());
    assert_eq!(server.shm.links(), 2, "it is taken in");
}
