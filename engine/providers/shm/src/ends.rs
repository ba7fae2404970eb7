//! Two ends in one thread, step by step: what a peer does between two steps of ours, and what a hostile one may say.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{
    Address, Config, Shm,
    link::Link,
    record::{Kind, LONG, Record},
    ring::{LINE, PART, RETRACTED, RING, Target, WORD},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use stag_pools::{Access, Buf, Class, Pool, RemoteKey};
use stag_verbs::{Cause, Event, FabricFault, Limits, Memory, Provider, Qp, RemoteSpan, Status, Tag, Time};
use std::{path::PathBuf, time::Duration};

const LIMITS: Limits = Limits {
    connections: 4,
    send_queue: 64,
    receives: 64,
    receive_len: 4096,
    windows: 16,
    read_spans: 8,
    private_data_len: 64,
    remote_invalidation: true,
};
const RING_LEN: usize = 64 << 10;

/// A directory with one socket.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("stag-shm-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn address(&self, trust: bool) -> Address {
        let address = Address::new(self.0.join("socket")).unwrap();
        if trust { address.trusting() } else { address }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct End {
    shm: Shm,
    pool: Pool,
    now: Time,
}

impl End {
    fn new(trust: bool, limits: Limits) -> Self {
        let pool = Pool::shared(&[Class { slot_len: 4096, count: 512 }]).unwrap();
        let config = Config { trust, ring_len: RING_LEN, ..Config::new(limits, [7; 32], Time(0)) };
        let mut shm = Shm::new(config).unwrap();
        shm.register(&pool).unwrap();
        for _ in 0..32 {
            shm.post_receive(pool.take(4096).unwrap()).unwrap();
        }
        Self { shm, pool, now: Time(0) }
    }

    fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len()).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    fn send(&mut self, qp: Qp, octets: &[u8]) {
        let message = self.buf(octets);
        self.shm.post_send(qp, Tag(0), message, None).map_err(|refused| refused.why).unwrap();
        self.shm.ring();
    }

    /// One poll, later than the last look at the sockets.
    fn poll(&mut self) -> Option<Event> {
        self.now = self.now + Duration::from_millis(2);
        self.shm.poll(self.now)
    }

    /// Everything that there is to hear. Nothing is said but what needs no doorbell.
    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..4 {
            while let Some(event) = self.poll() {
                events.push(event);
            }
        }
        events
    }

    fn link(&mut self) -> &mut Link {
        let key = self.shm.links.key_at(0).unwrap();
        self.shm.links.get_mut(key).unwrap()
    }
}

/// A server and a client that are connected.
fn meet(place: &Place, trust: bool) -> (End, Qp, End, Qp) {
    let (mut server, mut client) = (End::new(trust, LIMITS), End::new(trust, LIMITS));
    server.shm.listen(&place.address(trust)).unwrap();
    let (at_client, at_server) = connect(&mut client, &mut server, &place.address(trust));
    (server, at_server, client, at_client)
}

fn connect(client: &mut End, server: &mut End, to: &Address) -> (Qp, Qp) {
    let qp = client.shm.connect(to, b"").unwrap();
    let mut at_server = None;
    for _ in 0..100 {
        for event in server.events() {
            let Event::ConnectRequest { qp } = event else { panic!("{event:?}") };
            server.shm.accept(qp, b"").unwrap();
            at_server = Some(qp);
            assert!(matches!(server.poll(), Some(Event::Established { .. })));
        }
        if let Some(event) = client.poll() {
            assert!(matches!(event, Event::Established { qp: of } if of == qp), "{event:?}");
            // Both have read everything, and said so.
            assert!(client.events().is_empty() && server.events().is_empty());
            return (qp, at_server.unwrap());
        }
    }
    panic!("no connection");
}

fn is_readable(end: &Shm) -> bool {
    let fd = end.wait_fd().unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
}

#[test]
fn a_wake_up_that_comes_while_falling_asleep_is_not_the_last_one() {
    let place = Place::new("asleep");
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
    let place = Place::new("undisturbed");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    server.send(at_server, b"a reply");
    assert_eq!(server.events().len(), 1);
    assert!(server.shm.arm());
    assert_eq!(client.events().len(), 1);
    assert!(!is_readable(&server.shm), "it is woken for nothing");
    client.send(at_client, b"a call");
    assert!(is_readable(&server.shm), "nobody wakes it any more");
}

/// Fills the ring to `qp`, which is not read any more, and posts more than it takes.
fn overfill(end: &mut End, qp: Qp) {
    let (message, take) = ([1; 4000], RING_LEN / 4096 + 1);
    (0..take).for_each(|_| end.send(qp, &message));
    assert!(end.shm.links.iter().any(|(_, link)| link.is_full));
}

#[test]
fn a_process_that_loses_its_link_takes_no_wake_up_from_others() {
    for is_inline in [true, false] {
        let place = Place::new("bystander");
        let (mut server, at_server, mut liar, _) = meet(&place, false);
        let mut other = End::new(false, LIMITS);
        let (_, to_other) = connect(&mut other, &mut server, &place.address(false));
        assert!(other.shm.arm());
        overfill(&mut server, at_server);
        liar.link().own.as_ref().unwrap().set_word(crate::ring::HEAD, u64::MAX);
        let message = server.buf(b"a call");
        if is_inline {
            assert!(server.shm.send_inline(to_other, &message, None));
            server.shm.ring();
        } else {
            server.shm.post_send(to_other, Tag(0), message, None).map_err(|refused| refused.why).unwrap();
            server.shm.ring();
        }
        assert_eq!(server.shm.links(), 1, "the liar has lost its link");
        assert!(is_readable(&other.shm), "nobody wakes it");
    }
}

#[test]
fn a_process_that_always_has_a_message_keeps_nobody_waiting() {
    let place = Place::new("busy");
    let (mut server, to_other, mut other, at_other) = meet(&place, true);
    let mut busy = End::new(true, LIMITS);
    let (at_busy, _) = connect(&mut busy, &mut server, &place.address(true));
    let target = server.buf(&[0; 2048]);
    let target = server.shm.bind(to_other, target, 0..2048, Access::RemoteWrite).unwrap();
    let to = RemoteSpan { key: target.key, offset: target.offset, len: 2048 };
    let source = other.buf(&[7; 2048]).freeze();
    let written = other.shm.post_write(at_other, Tag(5), source, to).map_err(|refused| refused.why);
    written.unwrap();
    other.shm.ring();
    let mut newcomer = End::new(true, LIMITS);
    newcomer.shm.connect(&place.address(true), b"").unwrap();
    busy.send(at_busy, b"a call");
    let (mut is_asked, mut is_written) = (false, false);
    for _ in 0..100 {
        busy.send(at_busy, b"a call");
        match server.poll() {
            Some(Event::Received { buf, .. }) => server.shm.post_receive(buf).unwrap(),
            Some(Event::ConnectRequest { .. }) => is_asked = true,
            event => panic!("{event:?}"),
        }
        while busy.poll().is_some() {}
        newcomer.events();
        is_written |=
            other.events().iter().any(|event| matches!(event, Event::Completed { tag: Tag(5), .. }));
    }
    assert_eq!((is_asked, is_written), (true, true), "a newcomer is asked for, a Write is told of");
}

#[test]
fn nobody_sleeps_beside_a_message_that_has_a_receive() {
    let place = Place::new("receive");
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
    let place = Place::new("hello");
    let (mut server, mut client) = (End::new(false, LIMITS), End::new(false, LIMITS));
    server.shm.listen(&place.address(false)).unwrap();
    client.shm.connect(&place.address(false), b"").unwrap();
    // It is taken in; its hello is heard while falling asleep.
    assert!(server.poll().is_none());
    let is_asleep = server.shm.arm();
    client.events();
    assert!(!is_asleep || is_readable(&server.shm), "nobody wakes it any more");
}

/// Lengths of Reads, the first of which is fetched from the pool and the others are copied.
const FETCHED: usize = 1024;

#[test]
fn an_answer_is_never_taken_for_another_one_that_was_retracted() {
    let place = Place::new("retracted");
    let (mut server, at_server, mut client, at_client) = meet(&place, true);
    let window = client.buf(&[1; 2 * FETCHED]);
    let window = client.shm.bind(at_client, window, 0..2 * FETCHED, Access::RemoteRead).unwrap();
    let spans = [(0, FETCHED), (FETCHED, FETCHED / 2), (3 * FETCHED / 2, FETCHED / 2)];
    for (tag, (at, len)) in (0..).zip(spans) {
        let from = RemoteSpan { key: window.key, offset: window.offset + at as u64, len: len as u32 };
        let sink = server.buf(&[0; 4096]);
        server.shm.post_read(at_server, Tag(tag), sink, 0, &[from]).map_err(|refused| refused.why).unwrap();
    }
    server.shm.ring();
    assert!(client.events().is_empty());
    client.shm.ring();
    client.shm.disconnect(at_client);
    let ends: Vec<_> = server.events();
    let wrong = ends.iter().find(|event| matches!(event, Event::Completed { status: Status::Success, .. }));
    assert!(wrong.is_none(), "{wrong:?}");
    assert!(matches!(ends.last(), Some(Event::Disconnected { .. })), "{ends:?}");
    assert_eq!(ends.len(), 4);
}

#[test]
fn a_message_behind_a_retracted_write_is_not_heard() {
    let place = Place::new("dropped");
    let (mut server, at_server, mut client, at_client) = meet(&place, true);
    let window = client.buf(&[0; 4096]);
    let window = client.shm.bind(at_client, window, 0..4096, Access::RemoteWrite).unwrap();
    let to = RemoteSpan { key: window.key, offset: window.offset, len: window.len };
    let source = server.buf(&[9; 4096]).freeze();
    server.shm.post_write(at_server, Tag(0), source, to).map_err(|refused| refused.why).unwrap();
    server.send(at_server, b"it is there");
    drop(server);
    for event in client.events() {
        match event {
            Event::Received { .. } => panic!("it is not there"),
            Event::Unbound { fenced, .. } => assert_eq!(&fenced.into_buf()[..], [0; 4096]),
            Event::Disconnected { cause, .. } => assert_eq!(cause, Cause::Fabric(FabricFault::Lost)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((client.shm.connections(), client.shm.windows_bound()), (0, 0));
}

/// Says something that no end of ours says.
fn say(end: &mut End, record: Record) {
    let link = end.link();
    let (own, theirs) = (link.own.as_ref().unwrap(), link.theirs.as_ref().unwrap());
    let head = record.emit();
    let put = link.producer.put(own, theirs, record.word(), (head.octets(), &[])).unwrap();
    assert!(put.is_some(), "the ring is full");
}

#[test]
fn a_peer_that_hears_nothing_fills_no_memory_of_ours() {
    let place = Place::new("says");
    let (mut server, _, mut client, _) = meet(&place, false);
    let mut said = 0;
    for _ in 0..100 {
        let link = client.link();
        let (own, theirs) = (link.own.as_ref().unwrap(), link.theirs.as_ref().unwrap());
        for key in 0..200 {
            let asks = Record { key, ..Record::new(Kind::Connect, 0) };
            let not = Record { key, ..Record::new(Kind::GiveUp, 0) };
            for record in [asks, not] {
                let head = record.emit();
                let put = link.producer.put(own, theirs, record.word(), (head.octets(), &[])).unwrap();
                said += usize::from(put.is_some());
            }
        }
        server.events();
    }
    let kept = server.link().say.len();
    assert!(kept <= 2 * crate::rx::SAYS_MAX, "{kept} answers to {said} questions are kept");
    // When it listens, everything goes on.
    for _ in 0..200 {
        let heard = server_tail(&mut server);
        client.link().own.as_ref().unwrap().set_word(crate::ring::HEAD, heard);
        server.events();
    }
    assert!(server.link().say.is_empty());
}

/// How much the server has said.
fn server_tail(server: &mut End) -> u64 {
    server.link().producer.tail()
}

#[test]
fn an_accept_without_a_number_is_nonsense() {
    let place = Place::new("accepts");
    let (mut server, mut client) = (End::new(false, LIMITS), End::new(false, LIMITS));
    server.shm.listen(&place.address(false)).unwrap();
    let qp = client.shm.connect(&place.address(false), b"").unwrap();
    (0..4).for_each(|_| drop((server.events(), client.events())));
    client.shm.disconnect(qp);
    for _ in 0..3 {
        say(&mut server, Record { key: crate::rx::UNKNOWN, ..Record::new(Kind::Accept, 0) });
    }
    client.events();
    assert_eq!((client.shm.links(), client.shm.stats().corrupt), (0, 1));
}

#[test]
fn a_process_that_never_stops_talking_stops_nobody() {
    let place = Place::new("flood");
    let (mut server, _, mut flooder, _) = meet(&place, false);
    let mut other = End::new(false, LIMITS);
    let (at_other, _) = connect(&mut other, &mut server, &place.address(false));
    let from = flooder.link().producer.tail();
    // A lap of words that mean nothing, and one message.
    let own = flooder.link().own.as_ref().unwrap();
    let nothing = u64::from(RETRACTED) | (LONG as u64) << 8;
    for line in (0..RING_LEN).step_by(LINE) {
        own.set_word(RING + line, nothing);
    }
    other.send(at_other, b"a call");
    (0..2).for_each(|_| drop(server.poll()));
    let read = server.shm.links.iter().map(|(_, link)| link.consumer.head()).max().unwrap();
    assert!(read < from + RING_LEN as u64 / 2, "one poll reads {} octets", read - from);
}

#[test]
fn an_answer_needs_no_doorbell() {
    let place = Place::new("due");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    let window = server.buf(&[5; 64]);
    let window = server.shm.bind(at_server, window, 0..64, Access::RemoteRead).unwrap();
    let from = RemoteSpan { key: window.key, offset: window.offset, len: 64 };
    let read = |client: &mut End, tag| {
        let sink = client.buf(&[0; 64]);
        client.shm.post_read(at_client, tag, sink, 0, &[from]).map_err(|refused| refused.why).unwrap();
        client.shm.ring();
    };
    // After this one the server knows how far the client is.
    read(&mut client, Tag(1));
    server.events();
    // The second one is the record with which a part of the ring is read.
    let mut left = RING_LEN / PART - LINE;
    while left > 0 {
        let len = left.min(4096);
        client.send(at_client, &vec![0; len - WORD]);
        left -= len;
    }
    read(&mut client, Tag(2));
    server.events();
    let is_read = |event: &Event| matches!(event, Event::Completed { tag: Tag(2), memory: Memory::Buf(buf), .. } if buf[..] == [5; 64]);
    let done = client.events();
    assert!(done.iter().any(is_read), "{done:?}");
}

#[test]
fn what_both_sides_closed_is_forgotten_at_once() {
    let place = Place::new("forgotten");
    let (mut server, _, mut client, at_client) = meet(&place, false);
    client.shm.disconnect(at_client);
    server.events();
    client.events();
    assert_eq!((server.shm.conns.len(), client.shm.conns.len()), (0, 0));
    // A link that nobody uses ends by itself.
    client.now = client.now + Duration::from_secs(2);
    client.events();
    server.events();
    assert_eq!((client.shm.links(), server.shm.links()), (0, 0));
}

#[test]
fn a_process_that_closes_nothing_keeps_no_other_out() {
    let place = Place::new("closes");
    let limits = Limits { connections: 64, ..LIMITS };
    let (mut server, mut mute) = (End::new(false, LIMITS), End::new(false, limits));
    server.shm.listen(&place.address(false)).unwrap();
    let address = place.address(false);
    mute.shm.connect(&address, b"").unwrap();
    (0..4).for_each(|_| drop((server.poll(), mute.poll())));
    for _ in 0..3 * LIMITS.connections {
        for _ in 0..16 {
            if let Some(Event::ConnectRequest { qp }) = server.poll() {
                server.shm.accept(qp, b"").unwrap();
                server.shm.disconnect(qp);
            }
        }
        // It asks for another one, and hears nothing.
        let _ = mute.shm.connect(&address, b"");
    }
    let mut other = End::new(false, LIMITS);
    server.events();
    connect(&mut other, &mut server, &address);
    assert_eq!(server.shm.stats().evicted, 1);
}

#[test]
fn a_half_open_process_costs_no_call_of_the_system_in_every_poll() {
    let place = Place::new("half-open");
    let (mut server, _, client, _) = meet(&place, false);
    let silent = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(place.address(false).path()).unwrap();
    rustix::net::connect(&silent, &address).unwrap();
    server.events();
    assert_eq!(server.shm.links(), 2);
    let before = server.shm.stats().looks;
    (0..1000).for_each(|_| assert!(server.shm.poll(server.now).is_none()));
    assert!(server.shm.stats().looks - before <= 1, "{} looks", server.shm.stats().looks - before);
    drop(client);
}

#[test]
fn payload_is_counted_where_it_was_copied() {
    let place = Place::new("counted");
    let (mut server, at_server, mut client, at_client) = meet(&place, true);
    let window = server.buf(&[5; 4096]);
    let window = server.shm.bind(at_server, window, 0..4096, Access::RemoteRead).unwrap();
    let from = RemoteSpan { key: window.key, offset: window.offset, len: 4096 };
    let sink = client.buf(&[0; 4096]);
    client.shm.post_read(at_client, Tag(1), sink, 0, &[from]).map_err(|refused| refused.why).unwrap();
    client.shm.ring();
    server.events();
    assert_eq!(client.events().len(), 1);
    let stats = client.shm.stats();
    assert_eq!((stats.octets_fetched, stats.octets_out), (4096, 0));
}

#[test]
fn keys_that_nobody_made_open_nothing_where_pools_are_not_mapped() {
    let place = Place::new("untrusted");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    let window = server.buf(&[5; 4096]);
    let window = server.shm.bind(at_server, window, 0..4096, Access::RemoteWrite).unwrap();
    let RemoteKey(key) = window.key;
    let from = Record { len: 4096, key, offset: window.offset, ..Record::new(Kind::WriteFrom, 0) };
    say(&mut client, Record { to: at_server.0.index() as u32, ..from });
    let events = server.events();
    assert!(matches!(
        events.last(),
        Some(Event::Disconnected { cause: Cause::Fabric(FabricFault::Corrupt), .. })
    ));
    let _ = at_client;
}

#[test]
fn a_place_where_no_socket_can_be_made_is_told_as_it_is() {
    let mut end = End::new(false, LIMITS);
    for (at, why) in [("/no/such/directory/socket", Errno::NOENT), ("/dev/null/socket", Errno::NOTDIR)] {
        let fault = end.shm.listen(&Address::new(at).unwrap()).unwrap_err();
        assert_eq!(fault, FabricFault::Os(why.raw_os_error()));
    }
}

#[test]
fn a_server_that_is_busy_is_waited_for_asleep() {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    };
    let place = Place::new("busy");
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
    let mut client = End::new(false, LIMITS);
    client.shm.connect(&place.address(false), b"").unwrap();
    assert!(client.events().is_empty());
    assert!(client.shm.arm() && client.shm.wake_at().is_some());
    assert!(!is_readable(&client.shm), "it wakes up at once");
    // As soon as there is room, it says hello.
    while rustix::net::accept(&server).is_ok() {}
    assert!(client.events().is_empty());
    let accepted = rustix::net::accept(&server).unwrap();
    let mut octets = [0; 256];
    let (len, _) = rustix::net::recv(&accepted, &mut octets, rustix::net::RecvFlags::empty()).unwrap();
    assert!(octets[..len].starts_with(b"stag-shm"));
    drop(accepted);
    let ends = client.events();
    assert!(matches!(ends[..], [Event::Disconnected { cause: Cause::Fabric(FabricFault::Refused), .. }]));
}
