//! A port mapper that accepts every registration (RFC 1833), for servers that do not start unless
//! they can register. It listens at a socket of its own, which no other program uses, so that a
//! measurement does not reach the host's port mapper.

use stag_protocol::{
    rpc::{Accepted, CallHeader, portmap, record::Fragment},
    xdr::{Reader, Writer},
};
use std::{
    fs,
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Octets of the longest call that is read.
const CALL_LEN_MAX: usize = 4_096;
/// Time that a connected caller may stay silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// SET and UNSET, which have these numbers in every version (RFC 1833 §2.1, §3.1): what is answered
/// by true.
const SET: u32 = 1;
const UNSET: u32 = 2;

/// The port mapper. Dropping it ends it.
#[derive(Debug)]
pub struct Mapper {
    at: PathBuf,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Mapper {
    /// Listens at a socket that does not exist yet. Fails as `bind(2)` does.
    pub fn listen(at: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(at)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    break;
                }
                // A caller that stays connected must not keep the next one waiting.
                let Ok(stream) = stream else { continue };
                thread::spawn(move || while answer(&stream).is_ok() {});
            }
        });
        Ok(Self { at: at.to_owned(), is_over, listening: Some(listening) })
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // A connection wakes the listening thread, which then sees `is_over`.
        let woken = UnixStream::connect(&self.at).is_ok();
        let listening = self.listening.take().filter(|_| woken);
        listening.into_iter().for_each(|listening| drop(listening.join()));
        let _ = fs::remove_file(&self.at);
    }
}

/// Answers one call.
fn answer(mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut mark = [0; Fragment::LEN];
    stream.read_exact(&mut mark)?;
    let fragment = Fragment::parse(mark);
    let len = usize::try_from(fragment.octets()).unwrap_or(usize::MAX);
    let mut room = [0; CALL_LEN_MAX];
    let call = room.get_mut(..len).filter(|_| fragment.last).ok_or(io::ErrorKind::InvalidData)?;
    stream.read_exact(call)?;
    let mut octets = [0; 64];
    let reply = reply(call, &mut octets).ok_or(io::ErrorKind::InvalidData)?;
    stream.write_all(reply)
}

/// The reply to a call, with its mark. `None` when it is no call of a port mapper.
fn reply<'a>(call: &[u8], octets: &'a mut [u8; 64]) -> Option<&'a [u8]> {
    let header = CallHeader::parse(&mut Reader::new(call)).ok()?;
    let (mark, message) = octets.split_first_chunk_mut()?;
    let mut writer = Writer::new(message);
    let status = match header.program {
        portmap::PROGRAM => Accepted::Success,
        _ => Accepted::ProgUnavail,
    };
    header.reply(status).emit(&mut writer).ok()?;
    match header.procedure {
        _ if status != Accepted::Success => {}
        0 => {}
        procedure => writer.bool(matches!(procedure, SET | UNSET)).ok()?,
    }
    let len = writer.len();
    *mark = Fragment::new(u32::try_from(len).ok()?, true)?.emit();
    octets.get(..Fragment::LEN + len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::rpc::{Auth, Credential, Outcome, ReplyHeader, Xid};

    fn call(program: u32, procedure: u32) -> Vec<u8> {
        let credential = Credential::None;
        let header = CallHeader {
            xid: Xid(9),
            program,
            version: 3,
            procedure,
            credential,
            verifier: Auth::NONE,
        };
        let mut octets = vec![0; 128];
        let mut writer = Writer::new(&mut octets);
        header.emit(&mut writer).unwrap();
        let len = writer.len();
        octets.truncate(len);
        octets
    }

    fn said(stream: &mut UnixStream, call: &[u8]) -> Vec<u8> {
        let mark = Fragment::new(call.len() as u32, true).unwrap().emit();
        stream.write_all(&[&mark, call].concat()).unwrap();
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let mut reply = vec![0; Fragment::parse(mark).octets() as usize];
        stream.read_exact(&mut reply).unwrap();
        reply
    }

    #[test]
    fn whatever_is_set_is_believed_and_nothing_is_known() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("socket");
        let mapper = Mapper::listen(&at).unwrap();
        let _silent = UnixStream::connect(&at).unwrap();
        let mut stream = UnixStream::connect(&at).unwrap();
        for (procedure, words) in [(0, &[][..]), (1, &[1]), (2, &[1]), (3, &[0])] {
            let reply = said(&mut stream, &call(portmap::PROGRAM, procedure));
            let mut reader = Reader::new(&reply);
            let header = ReplyHeader::parse(&mut reader).unwrap();
            assert!(matches!(header.outcome, Outcome::Accepted { status: Accepted::Success, .. }));
            words
                .iter()
                .for_each(|word| assert_eq!(reader.u32(), Ok(*word), "procedure {procedure}"));
            assert_eq!(reader.finish(), Ok(()), "procedure {procedure}");
        }
        let reply = said(&mut stream, &call(100_003, 1));
        let header = ReplyHeader::parse(&mut Reader::new(&reply)).unwrap();
        assert!(matches!(header.outcome, Outcome::Accepted { status: Accepted::ProgUnavail, .. }));
        drop(mapper);
        assert!(!at.exists());
    }

    #[test]
    fn what_is_no_call_ends_its_connection_only() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("socket");
        let _mapper = Mapper::listen(&at).unwrap();
        for octets in [&[0x80, 0, 0, 4, 0, 0, 0, 1][..], &[0xff; 8], &[0, 0, 0, 4, 0, 0, 0, 0]] {
            let mut stream = UnixStream::connect(&at).unwrap();
            stream.write_all(octets).unwrap();
            // What is left unread when it is closed may make it a reset.
            assert!(matches!(stream.read(&mut [0; 4]), Ok(0) | Err(_)), "{octets:x?}");
        }
        let mut stream = UnixStream::connect(&at).unwrap();
        assert!(!said(&mut stream, &call(portmap::PROGRAM, SET)).is_empty());
    }
}
