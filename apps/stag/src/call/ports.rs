//! NFS and MOUNT ports of a server, from its port mapper (RFC 1833).

use crate::{Error, caller};
use stag_protocol::{
    nfs::{mount, v3},
    rpc::portmap,
    rpcrdma::Versions,
};
use std::{net::SocketAddr, time::Duration};

/// Time that the port mapper may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The ports of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Of NFS.
    pub nfs: u16,
    /// Of MOUNT.
    pub mount: u16,
}

/// Asks the port mapper of a host.
pub fn ask(host: SocketAddr) -> Result<Ports, Error> {
    ask_at(with_port(host, portmap::PORT))
}

/// Asks the port mapper of a host where MOUNT is.
pub fn ask_for_mount(host: SocketAddr) -> Result<SocketAddr, Error> {
    let [mount] = of(with_port(host, portmap::PORT), [MOUNT])?;
    Ok(with_port(host, mount))
}

/// Another port of the same host, whose address may have a scope.
fn with_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

/// Asks the port mapper that listens at `mapper`.
fn ask_at(mapper: SocketAddr) -> Result<Ports, Error> {
    let [nfs, mount] = of(mapper, [("NFS", v3::PROGRAM, v3::VERSION), MOUNT])?;
    Ok(Ports { nfs, mount })
}

/// A program by name, number and version.
type Program = (&'static str, u32, u32);
const MOUNT: Program = ("MOUNT", mount::PROGRAM, mount::VERSION);

/// Asks the port mapper at `mapper` for each of `programs`.
fn of<const COUNT: usize>(
    mapper: SocketAddr,
    programs: [Program; COUNT],
) -> Result<[u16; COUNT], Error> {
    let instead = "give the ports, as in tcp://HOST:2049/EXPORT?mountport=20048";
    let wrong = |error: stag_client::Error| {
        Error::failure(format!(
            "the port mapper at tcp://{mapper} does not answer: {error}; {instead}"
        ))
    };
    let (mut client, _) = caller::client(None, 1, TIMEOUT, Versions::One, None)?;
    client.connect_tcp(mapper).map_err(wrong)?;
    let mut ports = [0; COUNT];
    for (port, (name, program, version)) in ports.iter_mut().zip(programs) {
        *port = client.port_of(program, version).map_err(wrong)?.ok_or_else(|| {
            Error::failure(format!(
                "the port mapper at tcp://{mapper} knows no {name} version {version} on TCP: \
                 {instead}"
            ))
        })?;
    }
    client.disconnect();
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        thread,
    };

    /// A port mapper that answers one caller, by hand: it knows these ports of NFS and MOUNT.
    fn mapper(nfs: u32, mount: u32) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while let Some(call) = record(&mut stream) {
                let word = |at: usize| u32::from_be_bytes(*call[at..].first_chunk().unwrap());
                assert_eq!((word(12), word(16), word(20)), (100_000, 2, 3), "GETPORT of version 2");
                let arguments = call.len() - 16;
                assert_eq!((word(arguments + 4), word(arguments + 8)), (3, 6), "version 3 on TCP");
                let port = match word(arguments) {
                    100_003 => nfs,
                    100_005 => mount,
                    other => panic!("{other}"),
                };
                let words = [0x8000_001c, word(0), 1, 0, 0, 0, 0, port];
                stream.write_all(&words.map(u32::to_be_bytes).concat()).unwrap();
            }
        });
        at
    }

    fn record(stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut record).ok()?;
        Some(record)
    }

    #[test]
    fn both_ports_are_asked_for() {
        assert_eq!(ask_at(mapper(2_049, 20_048)), Ok(Ports { nfs: 2_049, mount: 20_048 }));
    }

    #[test]
    fn what_the_mapper_does_not_know_is_named() {
        for (nfs, mount, part) in [
            (0, 20_048, "knows no NFS version 3"),
            (2_049, 0, "knows no MOUNT version 3"),
            (65_536 + 2_049, 20_048, "beyond 65,535"),
        ] {
            let error = ask_at(mapper(nfs, mount)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("?mountport="), "{error}");
        }
    }

    #[test]
    fn where_no_mapper_is_the_ports_have_to_be_given() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = ask_at(closed).unwrap_err().to_string();
        assert!(error.contains("does not answer") && error.contains("?mountport="), "{error}");
    }
}
