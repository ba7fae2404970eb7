//! Credentials of another user, sent from a port that any user can take: a server accepts them only
//! if it is configured to.

use crate::support::{Home, PATIENCE, Server};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{PermissionsExt, chown},
};

/// The user that is named.
const VICTIM: u32 = 4_242;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NFS3_OK: u32 = 0;
const NFS3ERR_PERM: u32 = 1;
const NFS3ERR_ACCES: u32 = 13;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(octets: &[u8]) -> Vec<u8> {
    let mut all = words(&[octets.len() as u32]);
    all.extend(octets);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// Calls a procedure as [`VICTIM`] (RFC 5531 §9, §11); the results, or none when the server closes
/// the connection.
fn call(server: &Server, program: u32, procedure: u32, arguments: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(server.line("TCP")).unwrap();
    assert!(stream.local_addr().unwrap().port() >= 1_024);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let sys = [words(&[0]), opaque(b"forged"), words(&[VICTIM, VICTIM, 0])].concat();
    let header = words(&[7, 0, 2, program, 3, procedure, 1]);
    let message = [header, opaque(&sys), words(&[0, 0]), arguments.to_vec()].concat();
    let mark = words(&[0x8000_0000 | message.len() as u32]);
    // A server that closed already resets the connection on a write.
    stream.write_all(&[mark, message].concat()).ok()?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).ok()?;
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).ok()?;
    // XID, REPLY, MSG_ACCEPTED, an empty verifier, SUCCESS.
    assert_eq!(reply[4..24], words(&[1, 0, 0, 0, 0]));
    Some(reply[24..].to_vec())
}

fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}

/// Reads `secret` of an export as [`VICTIM`]. Returns the status, or none without a reply.
fn read_secret(server: &Server, export: &str) -> Option<u32> {
    let mounted = call(server, MOUNT, 1, &opaque(format!("/{export}").as_bytes()))?;
    if word(&mounted, 0) != 0 {
        return Some(word(&mounted, 0));
    }
    let len = word(&mounted, 4) as usize;
    let root = opaque(&mounted[8..8 + len]);
    let found = call(server, NFS, 3, &[root, opaque(b"secret")].concat())?;
    if word(&found, 0) != NFS3_OK {
        return Some(word(&found, 0));
    }
    let len = word(&found, 4) as usize;
    let file = opaque(&found[8..8 + len]);
    let read = call(server, NFS, 6, &[file, words(&[0, 0, 64])].concat())?;
    let status = word(&read, 0);
    if status == NFS3_OK {
        assert!(read.windows(9).any(|octets| octets == b"my secret"));
    }
    Some(status)
}

/// A home in which two directories have a file that only [`VICTIM`] may read.
fn home() -> Option<Home> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root serves callers as themselves");
        return None;
    }
    let home = Home::new();
    for directory in ["data", "open"] {
        fs::create_dir_all(home.path(directory)).unwrap();
        let file = home.path(directory).join("secret");
        fs::write(&file, b"my secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(VICTIM), Some(VICTIM)).unwrap();
    }
    Some(home)
}

#[test]
fn who_names_another_user_is_not_believed_by_a_server_that_was_told_nothing() {
    let Some(home) = home() else { return };
    let server = home.serve_as_given(&["data"]);
    assert_eq!(read_secret(&server, "data"), Some(NFS3ERR_ACCES));
    let said = "every caller acts as the anonymous user: --mode privileged lets each act as";
    server.wait_for_err(said);
}

#[test]
fn who_names_another_user_from_a_high_port_is_not_even_let_in_where_names_count() {
    let Some(home) = home() else { return };
    let server = home.serve_as_given(&["data", "--mode", "privileged"]);
    assert_eq!(read_secret(&server, "data"), None);
    server.wait_for_err("refused: its port is above 1023");
}

#[test]
fn who_names_another_user_is_believed_where_the_server_is_insecure() {
    let Some(home) = home() else { return };
    let server = home.serve_as_given(&["data", "--mode", "privileged", "--insecure"]);
    assert_eq!(read_secret(&server, "data"), Some(NFS3_OK));
}

#[test]
fn who_names_another_user_is_believed_by_the_insecure_export_and_refused_by_the_one_beside_it() {
    let Some(home) = home() else { return };
    let settings = "listen = [\"iwarp://127.0.0.1:0\"]\ntcp = \"127.0.0.1:0\"\n\
                    mode = \"privileged\"\n[[export]]\npath = \"data\"\n\
                    [[export]]\npath = \"open\"\ninsecure = true\n";
    fs::write(home.path("stag.toml"), settings).unwrap();
    let server = Server::start(&home, home.stag(&["serve", "--config", "stag.toml"]));
    assert_eq!(read_secret(&server, "open"), Some(NFS3_OK), "{}", server.err());
    assert_eq!(read_secret(&server, "data"), Some(NFS3ERR_PERM), "{}", server.err());
    server.wait_for_err("and the export is not insecure");
}
