//! Tests of sessions between two ends in memory: octets in portions of any size, failing
//! handshakes, changing files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use stag_tls::{
    ClientTls, HANDSHAKE_MAX, Intake, ServerFiles, ServerTls, TlsError, TlsProbe, TlsSession,
};
use std::{
    collections::VecDeque,
    fs,
    io::{self, IoSlice, Read, Write},
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
};
use support::Authority;

/// No server answers it here.
const PROBE: TlsProbe = TlsProbe { program: 1, version: 1 };

/// One direction between two ends, which delivers `portion` octets at a time.
struct Pipe {
    octets: VecDeque<u8>,
    portion: usize,
}

impl Pipe {
    fn new(portion: usize) -> Self {
        Self { octets: VecDeque::new(), portion }
    }
}

impl Read for Pipe {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.octets.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = room.len().min(self.portion).min(self.octets.len());
        for (place, octet) in room.iter_mut().zip(self.octets.drain(..len)) {
            *place = octet;
        }
        Ok(len)
    }
}

impl Write for Pipe {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.octets.extend(octets);
        Ok(octets.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One end, its input, and the octets that it has decrypted.
struct End {
    session: TlsSession,
    inbox: Pipe,
    came: Vec<u8>,
    is_over: bool,
}

impl End {
    fn new(session: TlsSession, portion: usize) -> Self {
        Self { session, inbox: Pipe::new(portion), came: Vec::new(), is_over: false }
    }

    /// Sends to `other`, and receives the input, at most `room` octets at a time.
    fn turn(&mut self, other: &mut Pipe, room: usize) -> Result<(), TlsError> {
        while self.session.wants_send() {
            self.session.send(other).unwrap();
        }
        let (mut cipher, mut plain) = (vec![0; 1 << 16], vec![0; room]);
        while let Ok(intake) = self.session.receive(&mut self.inbox, &mut cipher, &mut plain)? {
            let Intake { len, is_over, .. } = intake;
            self.came.extend_from_slice(&plain[..len]);
            self.is_over |= is_over;
            if is_over {
                break;
            }
        }
        while self.session.wants_send() {
            self.session.send(other).unwrap();
        }
        Ok(())
    }
}

fn turns(client: &mut End, server: &mut End, room: usize) -> Result<(), TlsError> {
    for _ in 0..6 {
        client.turn(&mut server.inbox, room)?;
        server.turn(&mut client.inbox, room)?;
    }
    Ok(())
}

fn client_of(tls: &ClientTls, portion: usize) -> End {
    End::new(tls.session(Ipv4Addr::LOCALHOST.into()).unwrap(), portion)
}

fn pair(authority: &Authority, files: ServerFiles, portion: usize) -> (End, End) {
    let server = ServerTls::open(files, false).unwrap();
    let client = ClientTls::open(&authority.client(), PROBE).unwrap();
    (client_of(&client, portion), End::new(server.session().unwrap(), portion))
}

#[test]
fn octets_arrive_in_order_whatever_the_portions_and_the_room() {
    let authority = Authority::new();
    let files = authority.server();
    let sent: Vec<u8> = (0..200_000_u32).map(|i| (i * 7 + i / 251) as u8).collect();
    for (portion, room) in [(1 << 20, 1 << 18), (1_000, 1 << 18), (40_000, 5_000), (17, 7_777)] {
        let (mut client, mut server) = pair(&authority, files.clone(), portion);
        turns(&mut client, &mut server, room).unwrap();
        assert!(!client.session.is_handshaking() && !server.session.is_handshaking());
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let (front, back) = rest.split_at(rest.len() / 2);
            let taken = client.session.encrypt(&[IoSlice::new(front), IoSlice::new(back)]);
            assert!(taken > 0, "there is room once everything was sent");
            rest = &rest[taken..];
            turns(&mut client, &mut server, room).unwrap();
        }
        assert!(server.came == sent, "{portion} {room}");
        assert!(!server.session.has_more());
        client.session.close();
        turns(&mut client, &mut server, room).unwrap();
        assert!(server.is_over && !client.is_over);
        let secured = client.session.secured();
        assert!(secured.suite.starts_with("TLS13_") && secured.names_protocol);
        assert_eq!(secured.certificate.map(|it| it.len()), Some(64));
        assert_eq!(server.session.secured().certificate, None);
    }
}

#[test]
fn octets_for_which_there_is_no_room_are_told_of_and_kept() {
    let authority = Authority::new();
    let (mut client, mut server) = pair(&authority, authority.server(), 1 << 20);
    turns(&mut client, &mut server, 1 << 16).unwrap();
    client.session.encrypt(&[IoSlice::new(&[7; 10_000])]);
    client.turn(&mut server.inbox, 1 << 16).unwrap();
    let (mut cipher, mut plain) = (vec![0; 1 << 16], [0; 1_000]);
    let mut take = || {
        let intake = server.session.receive(&mut server.inbox, &mut cipher, &mut plain).unwrap();
        (intake.unwrap().len, server.session.has_more())
    };
    // The record comes in portions, and is decrypted once it is complete.
    let (mut first, mut portions) = (take(), 0);
    while first.0 == 0 {
        (first, portions) = (take(), portions + 1);
        assert!(portions < 10, "a record of 10,000 octets is whole at last");
    }
    for left in (1_000..10_000).step_by(1_000).rev() {
        assert_eq!(first, (1_000, true), "{left} octets are left");
        first = take();
    }
    assert_eq!(first.0, 1_000);
    let nothing = server.session.receive(&mut server.inbox, &mut cipher, &mut plain).unwrap();
    assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(!server.session.has_more());
}

#[test]
fn a_server_that_proves_nothing_is_not_believed() {
    let (authority, other) = (Authority::new(), Authority::new());
    let elsewhere = ServerFiles {
        identity: authority.certify("elsewhere", &["10.0.0.1", "*.test"]),
        client_authorities: None,
    };
    for files in [other.server(), elsewhere] {
        let (mut client, mut server) = pair(&authority, files, 1 << 20);
        let error = turns(&mut client, &mut server, 1 << 16).unwrap_err();
        assert!(error.to_string().contains("invalid peer certificate"), "{error}");
        assert!(client.session.wants_send(), "an alert says why");
    }
}

#[test]
fn the_name_that_is_expected_counts_and_not_the_address() {
    let authority = Authority::new();
    let server = ServerTls::open(authority.server(), false).unwrap();
    for (name, is_believed) in [("host.test", true), ("other.test", false)] {
        let files =
            stag_tls::ClientFiles { server_name: Some(name.to_owned()), ..authority.client() };
        let tls = ClientTls::open(&files, PROBE).unwrap();
        let mut client = client_of(&tls, 1 << 20);
        let mut end = End::new(server.session().unwrap(), 1 << 20);
        assert_eq!(turns(&mut client, &mut end, 1 << 16).is_ok(), is_believed, "{name}");
    }
    let files =
        stag_tls::ClientFiles { server_name: Some("no name".to_owned()), ..authority.client() };
    let error = ClientTls::open(&files, PROBE).unwrap_err();
    assert!(error.to_string().contains("no name of a host"), "{error}");
}

#[test]
fn clients_show_a_certificate_of_the_authority_where_one_is_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files =
        ServerFiles { client_authorities: Some(authority.certificate()), ..authority.server() };
    let server = ServerTls::open(files, true).unwrap();
    assert!(server.asks_for_certificates() && server.is_required());
    let identities = [
        (Some(authority.certify("client", &["client.test"])), true),
        (Some(other.certify("client", &["client.test"])), false),
        (None, false),
    ];
    for (identity, is_believed) in identities {
        let files = stag_tls::ClientFiles { identity, ..authority.client() };
        let tls = ClientTls::open(&files, PROBE).unwrap();
        let mut client = client_of(&tls, 1 << 20);
        let mut end = End::new(server.session().unwrap(), 1 << 20);
        assert_eq!(turns(&mut client, &mut end, 1 << 16).is_ok(), is_believed);
        assert_eq!(end.session.secured().certificate.is_some(), is_believed);
    }
}

#[test]
fn a_handshake_without_end_is_given_up() {
    let authority = Authority::new();
    let server = ServerTls::open(authority.server(), false).unwrap();
    let mut end = End::new(server.session().unwrap(), 1 << 20);
    // A ClientHello of 60,000 octets, each in a record of its own.
    let message = [&[1, 0, 0xea, 0x60][..], &[0; 60_000]].concat();
    for octet in &message {
        end.inbox.write_all(&[22, 3, 1, 0, 1, *octet]).unwrap();
    }
    let octets = end.inbox.octets.len();
    let error = end.turn(&mut Pipe::new(1), 1 << 16).unwrap_err();
    let sentence = error.to_string();
    assert!(sentence.contains("too long") || sentence.contains("cannot be taken"), "{sentence}");
    assert!(octets - end.inbox.octets.len() <= HANDSHAKE_MAX + (1 << 16));
}

#[test]
fn no_octets_instead_of_a_handshake_do_harm() {
    let authority = Authority::new();
    let server = ServerTls::open(authority.server(), false).unwrap();
    for octets in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 100], &[0x80, 0, 0, 40, 0, 0, 0, 1]] {
        let mut end = End::new(server.session().unwrap(), 1 << 20);
        end.inbox.write_all(octets).unwrap();
        let _ = end.turn(&mut Pipe::new(1), 1 << 16);
        assert!(end.session.is_handshaking() && end.came.is_empty());
    }
}

/// A ClientHello (RFC 5246 §7.4.1.2) without the extension that names later versions.
fn hello_of_tls_1_2() -> Vec<u8> {
    let extensions: [&[u8]; 2] = [&[0, 10, 0, 4, 0, 2, 0, 29], &[0, 13, 0, 6, 0, 4, 4, 3, 8, 4]];
    let extensions = extensions.concat();
    // Version 3.3, a random, no session, one cipher suite, no compression.
    let mut body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0]].concat();
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let handshake = [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
    [&[22, 3, 1][..], &(handshake.len() as u16).to_be_bytes(), &handshake].concat()
}

#[test]
fn a_client_that_speaks_an_earlier_version_gets_an_alert() {
    let authority = Authority::new();
    let server = ServerTls::open(authority.server(), false).unwrap();
    let mut end = End::new(server.session().unwrap(), 1 << 20);
    end.inbox.write_all(&hello_of_tls_1_2()).unwrap();
    let mut answer = Pipe::new(1 << 20);
    end.turn(&mut answer, 1 << 16).unwrap_err();
    while end.session.wants_send() {
        end.session.send(&mut answer).unwrap();
    }
    // RFC 8446 §6: a fatal alert, protocol_version.
    let alert: Vec<u8> = answer.octets.iter().copied().collect();
    assert_eq!((alert[0], &alert[5..]), (21, &[2, 70][..]), "{alert:?}");
}

#[test]
fn sessions_are_not_resumed() {
    let authority = Authority::new();
    let server = ServerTls::open(authority.server(), false).unwrap();
    let tls = ClientTls::open(&authority.client(), PROBE).unwrap();
    let mut lengths = Vec::new();
    for _ in 0..3 {
        let mut client = client_of(&tls, 1 << 20);
        let mut end = End::new(server.session().unwrap(), 1 << 20);
        client.turn(&mut end.inbox, 1 << 16).unwrap();
        lengths.push(end.inbox.octets.len());
        turns(&mut client, &mut end, 1 << 16).unwrap();
        assert!(client.session.secured().certificate.is_some(), "each proves itself anew");
    }
    // A ClientHello that offered a ticket, or early data after it, would be longer.
    assert!(lengths.iter().all(|len| *len == lengths[0]), "{lengths:?}");
}

#[test]
fn files_are_read_again_and_bad_ones_change_nothing() {
    let authority = Authority::new();
    let files = authority.server();
    let server = ServerTls::open(files.clone(), false).unwrap();
    let tls = ClientTls::open(&authority.client(), PROBE).unwrap();
    let shown = || {
        let mut client = client_of(&tls, 1 << 20);
        let mut end = End::new(server.session().unwrap(), 1 << 20);
        turns(&mut client, &mut end, 1 << 16).unwrap();
        client.session.secured().certificate.unwrap()
    };
    let first = shown();
    let _ = authority.server();
    assert_eq!(shown(), first, "nobody asked for the files to be read again");
    server.reload().unwrap();
    let second = shown();
    assert_ne!(second, first);
    fs::write(&files.identity.certificate, "no certificate").unwrap();
    let error = server.reload().unwrap_err().to_string();
    assert!(error.contains("server.crt") && error.contains("BEGIN CERTIFICATE"), "{error}");
    assert_eq!(shown(), second);
}

#[test]
fn files_that_are_not_what_they_should_be_are_named() {
    let authority = Authority::new();
    let (files, other) = (authority.server(), authority.certify("other", &["other.test"]));
    let open = |change: &dyn Fn(&mut ServerFiles)| {
        let mut files = files.clone();
        change(&mut files);
        ServerTls::open(files, false).unwrap_err().to_string()
    };
    let error = open(&|files| files.identity.key = other.key.clone());
    assert!(error.contains("server.crt") && error.contains("other.key"), "{error}");
    let error = open(&|files| files.identity.certificate = "/no/such.pem".into());
    assert!(error.contains("cannot read /no/such.pem"), "{error}");
    let error = open(&|files| files.identity.key = files.identity.certificate.clone());
    assert!(error.contains("every user") || error.contains("BEGIN PRIVATE KEY"), "{error}");
    let error = open(&|files| files.client_authorities = Some(other.key.clone()));
    assert!(error.contains("has no certificate"), "{error}");
    fs::set_permissions(&files.identity.key, fs::Permissions::from_mode(0o644)).unwrap();
    let error = open(&|_| {});
    assert!(error.contains("chmod 600"), "{error}");
}
