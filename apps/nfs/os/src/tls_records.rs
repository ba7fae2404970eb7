//! TLS records in the kernel (module `tls`; Documentation/networking/tls.rst in its sources). After
//! its session was handed over, a socket is written and read as one without TLS, except for
//! non-data records: alerts, and messages of the handshake.

use rustix::{fd::AsFd, io::Errno};
use std::{
    mem::{self, offset_of},
    os::fd::AsRawFd as _,
    ptr,
};

/// Bytes of an initialisation vector (RFC 8446 §5.3).
pub const NONCE_LEN: usize = 12;
/// `TLS_1_3_VERSION` of linux/tls.h, the version on the wire.
const TLS_1_3: u16 = 0x0304;

/// The direction of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordDirection {
    /// Records sent by this host.
    Send,
    /// Records sent by the peer.
    Receive,
}

fn done(code: libc::c_int) -> rustix::io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(last()),
    }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Enables kernel TLS on a connected socket. Until keys are set, nothing changes.
///
/// # Errors
/// As setsockopt(2) fails: `ENOENT` if the kernel has no TLS.
pub fn enable(socket: impl AsFd) -> rustix::io::Result<()> {
    let (name, fd) = (b"tls", socket.as_fd().as_raw_fd());
    // SAFETY: the name is there, and as long as is said.
    done(unsafe {
        libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_ULP,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    })
}

/// Makes the kernel protect records of one direction by AES-GCM as TLS 1.3 does. The `key` has 16
/// or 32 bytes, equal in both directions; `sequence` is the number of the next record.
///
/// # Errors
/// As setsockopt(2) fails; `EINVAL` for a key of another length.
pub fn set_key(
    socket: impl AsFd,
    direction: RecordDirection,
    key: &[u8],
    nonce: &[u8; NONCE_LEN],
    sequence: u64,
) -> rustix::io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let (salt, iv) = nonce.split_at(4);
    let salt = salt.try_into().map_err(|_| Errno::INVAL)?;
    let iv = iv.try_into().map_err(|_| Errno::INVAL)?;
    let rec_seq = sequence.to_be_bytes();
    let info = |cipher_type| libc::tls_crypto_info { version: TLS_1_3, cipher_type };
    if let Ok(key) = key.try_into() {
        let info = info(libc::TLS_CIPHER_AES_GCM_128);
        set(fd, direction, &libc::tls12_crypto_info_aes_gcm_128 { info, iv, key, salt, rec_seq })
    } else if let Ok(key) = key.try_into() {
        let info = info(libc::TLS_CIPHER_AES_GCM_256);
        set(fd, direction, &libc::tls12_crypto_info_aes_gcm_256 { info, iv, key, salt, rec_seq })
    } else {
        Err(Errno::INVAL)
    }
}

fn set<I: Copy>(fd: libc::c_int, direction: RecordDirection, info: &I) -> rustix::io::Result<()> {
    let name = match direction {
        RecordDirection::Send => libc::TLS_TX,
        RecordDirection::Receive => libc::TLS_RX,
    };
    let (at, len) = (ptr::from_ref(info).cast(), size_of::<I>() as libc::socklen_t);
    // SAFETY: `at` points to a value of that length, which lives through the call.
    done(unsafe { libc::setsockopt(fd, libc::SOL_TLS, name, at, len) })
}

/// A control message of one byte, the type of a record (cmsg(3)).
#[repr(C)]
struct RecordKind {
    header: libc::cmsghdr,
    kind: u8,
    rest: [u8; 7],
}

// SAFETY: it computes a number.
const KIND_LEN: usize = unsafe { libc::CMSG_LEN(1) } as usize;
const _: () = assert!(offset_of!(RecordKind, kind) + 1 == KIND_LEN);

impl RecordKind {
    fn new(kind: u8) -> Self {
        // SAFETY: it is made of integers, for which zero is a value.
        let mut this: Self = unsafe { mem::zeroed() };
        this.header.cmsg_level = libc::SOL_TLS;
        this.header.cmsg_type = libc::TLS_SET_RECORD_TYPE;
        this.header.cmsg_len = KIND_LEN as _;
        this.kind = kind;
        this
    }
}

/// A message that points to these bytes and to that control message.
fn message(octets: &mut libc::iovec, kind: &mut RecordKind) -> libc::msghdr {
    // SAFETY: it is made of integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = octets;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(kind).cast();
    message.msg_controllen = size_of::<RecordKind>() as _;
    message
}

/// Sends one non-data record: `kind` is its type (RFC 8446 §5.1).
///
/// # Errors
/// As sendmsg(2) fails.
pub fn send_record(socket: impl AsFd, kind: u8, octets: &[u8]) -> rustix::io::Result<()> {
    let (fd, start) = (socket.as_fd().as_raw_fd(), octets.as_ptr().cast_mut());
    let mut part = libc::iovec { iov_base: start.cast(), iov_len: octets.len() };
    let mut kind = RecordKind::new(kind);
    let message = message(&mut part, &mut kind);
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the message points to octets of the caller, which are read, and to its own control
    // message; both live through the call.
    let sent = unsafe { libc::sendmsg(fd, &raw const message, flags) };
    if sent < 0 { Err(last()) } else { Ok(()) }
}

/// Takes the next record, on which a read failed with `EIO` because it is not data. Returns its
/// type and the number of its bytes; bytes beyond the room are left for the next call.
///
/// # Errors
/// As recvmsg(2) fails; `EBADMSG` for a record that is not the peer's.
pub fn receive_record(socket: impl AsFd, room: &mut [u8]) -> rustix::io::Result<(u8, usize)> {
    let fd = socket.as_fd().as_raw_fd();
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut kind = RecordKind::new(0);
    let mut message = message(&mut part, &mut kind);
    // SAFETY: the message points to octets of the caller and to its own control message, which are
    // written; both live through the call.
    let taken = unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) };
    let Ok(taken) = usize::try_from(taken) else { return Err(last()) };
    let told = (kind.header.cmsg_level, kind.header.cmsg_type);
    // Otherwise it is as it was made, for the other direction.
    let is_told = told == (libc::SOL_TLS, libc::TLS_GET_RECORD_TYPE);
    if is_told { Ok((kind.kind, taken)) } else { Err(Errno::BADMSG) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{Ipv4Addr, TcpListener, TcpStream},
    };

    fn pair() -> [TcpStream; 2] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [one, listener.accept().unwrap().0]
    }

    /// On a kernel without TLS this only shows that probing changes nothing; `tests/guest/tls` runs
    /// it on one with TLS.
    #[test]
    fn records_of_data_and_others_travel_between_two_sockets_of_the_kernel() {
        let [mut one, mut other] = pair();
        if let Err(why) = enable(&one) {
            println!("skipped: the kernel has no TLS: {why}");
            assert_eq!(why, Errno::NOENT);
            one.write_all(b"clear").unwrap();
            let mut octets = [0; 5];
            other.read_exact(&mut octets).unwrap();
            assert_eq!(&octets, b"clear");
            return;
        }
        exchange(&[9; 16]);
        exchange(&[9; 32]);
    }

    fn exchange(key: &[u8]) {
        let [mut one, mut other] = pair();
        let nonce = [7; NONCE_LEN];
        enable(&one).unwrap();
        enable(&other).unwrap();
        assert_eq!(set_key(&one, RecordDirection::Send, &key[..8], &nonce, 0), Err(Errno::INVAL));
        for (from, to) in [(&one, &other), (&other, &one)] {
            set_key(from, RecordDirection::Send, key, &nonce, 5).unwrap();
            set_key(to, RecordDirection::Receive, key, &nonce, 5).unwrap();
        }
        let mut octets = [0; 64];
        one.write_all(b"there").unwrap();
        assert_eq!(other.read(&mut octets).unwrap(), 5);
        other.write_all(b"and back").unwrap();
        assert_eq!(one.read(&mut octets).unwrap(), 8);
        assert_eq!(&octets[..8], b"and back");
        send_record(&one, 21, &[1, 0]).unwrap();
        let error = other.read(&mut octets).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(receive_record(&other, &mut octets), Ok((21, 2)));
        assert_eq!(octets[..2], [1, 0]);
    }
}
