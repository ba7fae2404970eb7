//! Kernel TLS of Linux for sessions of RPC over TCP (module `tls`).

use stag_engine::tls::{DirectionKey, KernelTls, SessionKeys};
use stag_nfs_os::tls_records::{
    NONCE_LEN, RecordDirection, enable, receive_record, send_record, set_key,
};
use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd},
};

/// The system's TLS, known to be available.
#[derive(Debug)]
pub struct LinuxTls(());

static LINUX: LinuxTls = LinuxTls(());

impl LinuxTls {
    /// Probes for it by connecting this process to itself.
    ///
    /// # Errors
    /// The system's error: `ENOENT` if it has no such module.
    pub fn open() -> io::Result<&'static Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        for key in [&[0; 16][..], &[0; 32]] {
            let socket = TcpStream::connect(listener.local_addr()?)?;
            enable(&socket)?;
            for direction in [RecordDirection::Send, RecordDirection::Receive] {
                set_key(&socket, direction, key, &[0; NONCE_LEN], 0)?;
            }
        }
        Ok(&LINUX)
    }
}

fn set(
    socket: BorrowedFd<'_>,
    direction: RecordDirection,
    key: Option<DirectionKey<'_>>,
) -> io::Result<()> {
    let Some(DirectionKey { key, nonce, sequence }) = key else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    Ok(set_key(socket, direction, key, nonce, sequence)?)
}

impl KernelTls for LinuxTls {
    fn take_over(&self, socket: BorrowedFd<'_>, keys: &SessionKeys) -> io::Result<()> {
        enable(socket.as_fd())?;
        set(socket, RecordDirection::Send, keys.sent())?;
        set(socket, RecordDirection::Receive, keys.received())
    }

    fn receive(&self, socket: BorrowedFd<'_>, octets: &mut [u8]) -> io::Result<(u8, usize)> {
        Ok(receive_record(socket, octets)?)
    }

    fn send(&self, socket: BorrowedFd<'_>, kind: u8, octets: &[u8]) -> io::Result<()> {
        Ok(send_record(socket, kind, octets)?)
    }
}
