//! Processes have their turns, and no call costs more than it must.

use super::*;

#[test]
fn a_process_that_always_has_a_message_keeps_nobody_waiting() {
    let place = SocketHome::new("busy");
    let (mut server, to_other, mut other, at_other) = meet(&place, true);
    let mut busy = ShmEnd::new(true, LIMITS);
    let (at_busy, _) = connect(&mut busy, &mut server, &place.address(true));
    let target = server.buf(&[0; 2048]);
    let target = server.shm.bind(to_other, target, 0..2048, Access::RemoteWrite).unwrap();
    let to = RemoteSpan { key: target.key, offset: target.offset, len: 2048 };
    let source = other.buf(&[7; 2048]).freeze();
    let written = other.shm.post_write(at_other, Tag(5), source, to).map_err(|refused| refused.why);
    written.unwrap();
    other.shm.ring();
    let mut newcomer = ShmEnd::new(true, LIMITS);
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
        is_written |= other
            .events()
            .iter()
            .any(|event| matches!(event, Event::Completed { tag: Tag(5), .. }));
    }
    assert_eq!((is_asked, is_written), (true, true), "a newcomer is asked for, a Write is told of");
}

#[test]
fn a_process_that_never_stops_talking_stops_nobody() {
    let place = SocketHome::new("flood");
    let (mut server, _, mut flooder, _) = meet(&place, false);
    let mut other = ShmEnd::new(false, LIMITS);
    let (at_other, _) = connect(&mut other, &mut server, &place.address(false));
    let from = flooder.link().rings.as_ref().unwrap().producer().tail();
    // A lap of words that mean nothing, and one message.
    let own = flooder.link().own().unwrap();
    let nothing = u64::from(RETRACTED) | (LONG as u64) << 8;
    for line in (0..RING_LEN).step_by(LINE) {
        own.set_word(RING + line, nothing);
    }
    other.send(at_other, b"a call");
    (0..2).for_each(|_| drop(server.poll()));
    let read = server.shm.links.iter().filter_map(|(_, link)| link.rings.as_ref());
    let read = read.map(|rings| rings.consumer().head()).max().unwrap();
    assert!(read < from + RING_LEN as u64 / 2, "one poll reads {} octets", read - from);
}

#[test]
fn an_answer_needs_no_doorbell() {
    let place = SocketHome::new("due");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    let window = server.buf(&[5; 64]);
    let window = server.shm.bind(at_server, window, 0..64, Access::RemoteRead).unwrap();
    let from = RemoteSpan { key: window.key, offset: window.offset, len: 64 };
    let read = |client: &mut ShmEnd, tag| {
        let sink = client.buf(&[0; 64]);
        client
            .shm
            .post_read(at_client, tag, sink, 0, &[from])
            .map_err(|refused| refused.why)
            .unwrap();
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
    let is_read = |event: &Event| {
        matches!(
            event,
            Event::Completed { tag: Tag(2), memory: Memory::Buf(buf), .. } if buf[..] == [5; 64]
        )
    };
    let done = client.events();
    assert!(done.iter().any(is_read), "{done:?}");
}

#[test]
fn a_half_open_process_costs_no_call_of_the_system_in_every_poll() {
    let place = SocketHome::new("half-open");
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
    let place = SocketHome::new("counted");
    let (mut server, at_server, mut client, at_client) = meet(&place, true);
    let window = server.buf(&[5; 4096]);
    let window = server.shm.bind(at_server, window, 0..4096, Access::RemoteRead).unwrap();
    let from = RemoteSpan { key: window.key, offset: window.offset, len: 4096 };
    let sink = client.buf(&[0; 4096]);
    client
        .shm
        .post_read(at_client, Tag(1), sink, 0, &[from])
        .map_err(|refused| refused.why)
        .unwrap();
    client.shm.ring();
    server.events();
    assert_eq!(client.events().len(), 1);
    let stats = client.shm.stats();
    assert_eq!((stats.octets_fetched, stats.octets_out), (4096, 0));
}

#[test]
fn a_write_and_the_message_behind_it_need_no_doorbell() {
    for trust in [true, false] {
        let place = SocketHome::new(if trust { "at-once-lent" } else { "at-once-copied" });
        let (mut server, at_server, mut client, at_client) = meet(&place, trust);
        let sink = client.buf(&[0; 2048]);
        let window = client.shm.bind(at_client, sink, 0..2048, Access::RemoteWrite).unwrap();
        let to = RemoteSpan { key: window.key, offset: window.offset, len: 2048 };
        let source = server.buf(&[7; 2048]).freeze();
        let taken = server.pool.taken();
        server
            .shm
            .post_write(at_server, Tag(5), source, to)
            .map_err(|refused| refused.why)
            .unwrap();
        assert_lanes(&server.shm);
        assert!(server.shm.send_inline(at_server, b"a reply", Some(window.key)));
        let written = |event: &Event| {
            matches!(
                event,
                Event::Completed {
                    tag: Tag(5),
                    status: Status::Success,
                    memory: Memory::Shared,
                    ..
                }
            )
        };
        // Memory that the client fetches from is kept until it has, and what was copied is not.
        assert_eq!(server.events().iter().any(written), !trust);
        assert_eq!(server.pool.taken(), if trust { taken } else { taken - 1 });
        let events = client.events();
        let [Event::Received { buf, invalidated: Some(fenced), .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((&buf[..], fenced.key()), (&b"a reply"[..], window.key));
        let sink = events.into_iter().find_map(|event| match event {
            Event::Received { invalidated, .. } => invalidated.map(|fenced| fenced.into_buf()),
            _ => None,
        });
        assert_eq!(sink.unwrap()[..], [7; 2048]);
        assert_eq!(server.events().iter().any(written), trust);
        assert_eq!(server.pool.taken(), taken - 1);
    }
}

#[test]
fn writes_that_the_peer_has_not_read_need_no_memory_beyond_the_link_s() {
    let place = SocketHome::new("unread");
    let (mut server, at_server, mut client, at_client) = meet(&place, true);
    let room = server.link().lent.capacity();
    let sink = client.buf(&[0; 2048]);
    let window = client.shm.bind(at_client, sink, 0..2048, Access::RemoteWrite).unwrap();
    let to = RemoteSpan { key: window.key, offset: window.offset, len: 2048 };
    for number in 0..LIMITS.send_queue as u64 {
        let source = server.buf(&[7; 2048]).freeze();
        let posted = server.shm.post_write(at_server, Tag(number), source, to);
        posted.map_err(|refused| refused.why).unwrap();
    }
    let lent = &server.link().lent;
    assert_eq!((lent.len(), lent.capacity()), (LIMITS.send_queue, room));
}

#[test]
fn a_write_behind_work_that_waits_waits_too() {
    let place = SocketHome::new("in-order");
    let (mut server, at_server, mut client, at_client) = meet(&place, true);
    overfill(&mut server, at_server);
    let sink = client.buf(&[0; 2048]);
    let window = client.shm.bind(at_client, sink, 0..2048, Access::RemoteWrite).unwrap();
    let to = RemoteSpan { key: window.key, offset: window.offset, len: 2048 };
    let source = server.buf(&[7; 2048]).freeze();
    server.shm.post_write(at_server, Tag(5), source, to).map_err(|refused| refused.why).unwrap();
    assert!(!server.shm.send_inline(at_server, b"a reply", None));
    server.send(at_server, b"a reply");
    let mut messages = Vec::new();
    for _ in 0..100 {
        for event in client.events() {
            let Event::Received { buf, .. } = event else { panic!("{event:?}") };
            messages.push(buf.len());
            client.shm.post_receive(buf).unwrap();
        }
        server.events();
    }
    assert_eq!(messages.pop(), Some(b"a reply".len()));
    assert!(messages.len() > 10 && messages.iter().all(|len| *len == 4000));
}
