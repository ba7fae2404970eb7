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
