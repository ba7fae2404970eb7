//! Words that a peer may say, the moments for them, and the words that it may not say.

use super::*;

#[test]
fn an_answer_is_never_taken_for_another_one_that_was_retracted() {
    let place = SocketHome::new("retracted");
    let (mut server, at_server, mut client, at_client) = meet(&place, true);
    let window = client.buf(&[1; 2 * FETCHED]);
    let window = client.shm.bind(at_client, window, 0..2 * FETCHED, Access::RemoteRead).unwrap();
    let spans = [(0, FETCHED), (FETCHED, FETCHED / 2), (3 * FETCHED / 2, FETCHED / 2)];
    for (tag, (at, len)) in (0..).zip(spans) {
        let from =
            RemoteSpan { key: window.key, offset: window.offset + at as u64, len: len as u32 };
        let sink = server.buf(&[0; 4096]);
        server
            .shm
            .post_read(at_server, Tag(tag), sink, 0, &[from])
            .map_err(|refused| refused.why)
            .unwrap();
    }
    server.shm.ring();
    assert!(client.events().is_empty());
    client.shm.ring();
    client.shm.disconnect(at_client);
    let ends: Vec<_> = server.events();
    let wrong =
        ends.iter().find(|event| matches!(event, Event::Completed { status: Status::Success, .. }));
    assert!(wrong.is_none(), "{wrong:?}");
    assert!(matches!(ends.last(), Some(Event::Disconnected { .. })), "{ends:?}");
    assert_eq!(ends.len(), 4);
}

#[test]
fn a_message_behind_a_retracted_write_is_not_heard() {
    let place = SocketHome::new("dropped");
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
            Event::Disconnected { cause, .. } => {
                assert_eq!(cause, Cause::Fabric(FabricFault::Lost))
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((client.shm.connections(), client.shm.windows_bound()), (0, 0));
}

#[test]
fn a_peer_that_hears_nothing_fills_no_memory_of_ours() {
    let place = SocketHome::new("says");
    let (mut server, _, mut client, _) = meet(&place, false);
    let mut said = 0;
    for _ in 0..100 {
        let rings = client.link().rings.as_mut().unwrap();
        for key in 0..200 {
            let asks = ShmRecord { key, ..ShmRecord::new(RecordKind::Connect, 0) };
            let not = ShmRecord { key, ..ShmRecord::new(RecordKind::GiveUp, 0) };
            for record in [asks, not] {
                let head = record.emit();
                let parts = RecordParts { head: head.octets(), body: &[] };
                let put = rings.put(record.word(), parts).unwrap();
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
        client.link().own().unwrap().set_word(crate::ring::HEAD, heard);
        server.events();
    }
    assert!(server.link().say.is_empty());
}

#[test]
fn an_accept_without_a_number_is_nonsense() {
    let place = SocketHome::new("accepts");
    let (mut server, mut client) = (ShmEnd::new(false, LIMITS), ShmEnd::new(false, LIMITS));
    server.shm.listen(&place.address(false)).unwrap();
    let qp = client.shm.connect(&place.address(false), b"").unwrap();
    (0..4).for_each(|_| drop((server.events(), client.events())));
    client.shm.disconnect(qp);
    for _ in 0..3 {
        say(
            &mut server,
            ShmRecord { key: crate::rx::UNKNOWN, ..ShmRecord::new(RecordKind::Accept, 0) },
        );
    }
    client.events();
    assert_eq!((client.shm.links(), client.shm.stats().corrupt), (0, 1));
}

#[test]
fn what_both_sides_closed_is_forgotten_at_once() {
    let place = SocketHome::new("forgotten");
    let (mut server, _, mut client, at_client) = meet(&place, false);
    client.shm.disconnect(at_client);
    server.events();
    client.events();
    assert_eq!((server.shm.conns.len(), client.shm.conns.len()), (0, 0));
    // An unused link ends by itself.
    client.now = client.now + Duration::from_secs(2);
    client.events();
    server.events();
    assert_eq!((client.shm.links(), server.shm.links()), (0, 0));
}

#[test]
fn a_process_that_closes_nothing_keeps_no_other_out() {
    let place = SocketHome::new("closes");
    let limits = Limits { connections: 64, ..LIMITS };
    let (mut server, mut mute) = (ShmEnd::new(false, LIMITS), ShmEnd::new(false, limits));
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
        // It asks for another one, and gets no answer.
        let _ = mute.shm.connect(&address, b"");
    }
    let mut other = ShmEnd::new(false, LIMITS);
    server.events();
    connect(&mut other, &mut server, &address);
    assert_eq!(server.shm.stats().evicted, 1);
}

#[test]
fn keys_that_nobody_made_open_nothing_where_pools_are_not_mapped() {
    let place = SocketHome::new("untrusted");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    let window = server.buf(&[5; 4096]);
    let window = server.shm.bind(at_server, window, 0..4096, Access::RemoteWrite).unwrap();
    let RemoteKey(key) = window.key;
    let from = ShmRecord {
        len: 4096,
        key,
        offset: window.offset,
        ..ShmRecord::new(RecordKind::WriteFrom, 0)
    };
    say(&mut client, ShmRecord { to: at_server.0.index() as u32, ..from });
    let events = server.events();
    assert!(matches!(
        events.last(),
        Some(Event::Disconnected { cause: Cause::Fabric(FabricFault::Corrupt), .. })
    ));
    let _ = at_client;
}

#[test]
fn a_place_where_no_socket_can_be_made_is_told_as_it_is() {
    let mut end = ShmEnd::new(false, LIMITS);
    for (at, why) in
        [("/no/such/directory/socket", Errno::NOENT), ("/dev/null/socket", Errno::NOTDIR)]
    {
        let fault = end.shm.listen(&ShmAddress::new(at).unwrap()).unwrap_err();
        assert_eq!(fault, FabricFault::Os(why.raw_os_error()));
    }
}

#[test]
fn messages_of_every_length_arrive_as_they_are() {
    let place = SocketHome::new("lengths");
    let (mut server, at_server, mut client, at_client) = meet(&place, false);
    let (mut room, mut looked_at) = ([0; 4096], 0);
    for len in (0..700).chain(4000..=4096) {
        let message: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        assert!(client.shm.send_inline(at_client, &message, None), "{len} octets");
        let heard = match server.shm.look_once(server.now, &mut room).look() {
            Look::Message { qp, len } => {
                looked_at += 1;
                (qp, room[..len].to_vec())
            }
            _ => match server.poll() {
                Some(Event::Received { qp, buf, .. }) => {
                    let heard = (qp, buf.to_vec());
                    server.shm.post_receive(buf).unwrap();
                    heard
                }
                other => panic!("{len} octets: {other:?}"),
            },
        };
        assert!(heard == (at_server, message), "{len} octets");
    }
    assert!(looked_at > 700, "most are told by a look: {looked_at}");
    let too_long = vec![0; RING_LEN / 8 + 1];
    assert!(!client.shm.send_inline(at_client, &too_long, None));
}

#[test]
fn a_user_leaves_links_to_others_that_may_connect() {
    let place = SocketHome::new("shares");
    let mut server = ShmEnd::new(false, LIMITS);
    let own = rustix::process::geteuid().as_raw();
    server.shm.shared.config.allow = vec![own, own + 1, own + 2, own + 3];
    let at = server.shm.listen(&place.address(false)).unwrap();
    let most = server.shm.shared.config.links_of_user();
    assert!(most < server.shm.shared.config.links);
    let connect = || {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            None,
        )
        .unwrap();
        let address = rustix::net::SocketAddrUnix::new(at.path()).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        socket
    };
    let mut silent = Vec::new();
    for count in 0..most + 8 {
        silent.push(connect());
        server.shm.look();
        assert_eq!(server.shm.links(), (count + 1).min(most));
    }
    assert_eq!(server.shm.stats().turned_away, 8);
}
