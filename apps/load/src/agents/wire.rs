//! Control connection between a coordinator and an agent: JSON objects on lines over TCP, after
//! each has shown the other that it has the token. The token itself is never sent. The rest,
//! parameters and figures, is not encrypted.

use super::{AgentError, plain};
use crate::{RunOutcome, report::model::SecondFigures};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::{
    fmt, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

/// The form of the messages. Another one is refused.
pub const SCHEMA: &str = "stag-agent/1";
/// Most octets of one line: a second with its histograms has about ten thousand.
const LINE_MAX: u64 = 4 << 20;
/// Octets of the token at least and at most.
const TOKEN_LEN: std::ops::RangeInclusive<usize> = 16..=4_096;
/// Time that the other side may take to show that it has the token.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The length of a block of SHA-256, in octets (FIPS 180-4).
const BLOCK: usize = 64;

/// Words of a coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum CoordinatorWord {
    /// The coordinator has the token, and asks for proof that the agent has it.
    Hello { schema: String, nonce: String, proof: String },
    /// Asks for the time there.
    Clock,
    /// Get ready for a run with these arguments of `stag bench`.
    Run { words: Vec<String> },
    /// The first call goes out at this time of the agent's clock, in nanoseconds since 1970.
    Begin { at_unix_ns: u64 },
    /// End the run early.
    Stop,
}

/// Words of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum AgentWord {
    /// The coordinator has to show that it has the token.
    Challenge { schema: String, nonce: String },
    /// The coordinator has it, and so has the agent.
    Welcome { proof: String },
    /// The time, in nanoseconds since 1970.
    Clock { unix_ns: u64 },
    /// All is connected.
    Ready,
    /// A second is over.
    Second { figures: Box<SecondFigures> },
    /// The run is over; its seconds were sent before.
    Over { outcome: Box<RunOutcome> },
    /// Nothing was measured.
    Failed { why: String },
}

/// Something that both sides know.
pub struct SharedToken(Vec<u8>);

impl fmt::Debug for SharedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedToken")
    }
}

impl SharedToken {
    /// Reads the token in `file`, which no other user may be able to read; `-` is the first line of
    /// standard input.
    ///
    /// # Errors
    /// A sentence about the file, and how to make one.
    pub fn read(file: &Path) -> Result<Self, AgentError> {
        let shown = file.display();
        let wrong = |why: String| AgentError::usage(format!("--token-file {shown}: {why}"));
        let mut text = String::new();
        if file == Path::new("-") {
            let stdin = io::stdin().lock();
            stdin
                .take(*TOKEN_LEN.end() as u64)
                .read_line(&mut text)
                .map_err(|error| wrong(error.to_string()))?;
        } else {
            let mode = fs::metadata(file).map_err(|error| wrong(plain(&error)))?.mode();
            if mode & 0o077 != 0 {
                return Err(wrong(format!(
                    "others can read it (mode {:04o}): chmod 600 {shown}",
                    mode & 0o7777
                )));
            }
            text = fs::read_to_string(file).map_err(|error| wrong(plain(&error)))?;
        }
        let token = text.trim().as_bytes().to_vec();
        match TOKEN_LEN.contains(&token.len()) {
            true => Ok(Self(token)),
            false => Err(wrong(format!(
                "a token has {} to {} octets: (umask 077; openssl rand -hex 32 > {shown})",
                TOKEN_LEN.start(),
                TOKEN_LEN.end()
            ))),
        }
    }

    /// The token, for an agent that is started with it.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// A digest of `parts` that only a holder of the token can make, in hexadecimal digits.
    fn proof(&self, parts: [&str; 3]) -> String {
        let mut message = Vec::new();
        for part in parts {
            message.extend_from_slice(&(part.len() as u64).to_be_bytes());
            message.extend_from_slice(part.as_bytes());
        }
        hmac(&self.0, &message)
    }
}

/// HMAC-SHA-256 (RFC 2104), in hexadecimal digits.
fn hmac(secret: &[u8], message: &[u8]) -> String {
    let hashed = Sha256::digest(secret);
    let secret = if secret.len() > BLOCK { &hashed[..] } else { secret };
    let mut key = [0; BLOCK];
    key.iter_mut().zip(secret).for_each(|(to, octet)| *to = *octet);
    let inner = Sha256::new().chain_update(key.map(|octet| octet ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(key.map(|octet| octet ^ 0x5c));
    hex(&outer.chain_update(inner.finalize()).finalize())
}

/// Sixteen random octets, in hexadecimal digits.
fn nonce() -> Result<String, String> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|error| format!("the system gives no random numbers: {error}"))?;
    Ok(hex(&random))
}

/// Compares in constant time.
fn is_equal(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |sum, (one, other)| sum | (one ^ other));
    one.len() == other.len() && differs == 0
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Why nothing came over a control connection.
#[derive(Debug)]
pub enum LineFault {
    /// Nothing yet.
    Silent,
    /// The other side is gone.
    Ended,
    /// It said something that is no message.
    Garbled(String),
    /// The network failed.
    Network(io::Error),
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("it said nothing in time"),
            Self::Ended => f.write_str("its control connection ended"),
            Self::Garbled(why) => write!(f, "it said something that is no message: {why}"),
            Self::Network(error) => write!(f, "its control connection failed: {error}"),
        }
    }
}

/// One end of a control connection.
#[derive(Debug)]
pub struct ControlLine {
    reader: BufReader<TcpStream>,
    /// A line whose end has not come yet.
    begun: Vec<u8>,
}

impl ControlLine {
    /// The end of `stream`.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(HANDSHAKE))?;
        Ok(Self { reader: BufReader::new(stream), begun: Vec::new() })
    }

    /// Another handle of the same end, to send while this one receives.
    pub fn speaker(&self) -> io::Result<TcpStream> {
        self.reader.get_ref().try_clone()
    }

    /// Sends a message.
    pub fn say(&self, word: &impl Serialize) -> io::Result<()> {
        say(self.reader.get_ref(), word)
    }

    /// Waits until `deadline` for a message.
    pub fn hear<T: DeserializeOwned>(&mut self, deadline: Instant) -> Result<T, LineFault> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LineFault::Silent);
            }
            self.reader.get_ref().set_read_timeout(Some(left)).map_err(LineFault::Network)?;
            let room = LINE_MAX.saturating_sub(self.begun.len() as u64);
            let read = (&mut self.reader).take(room).read_until(b'\n', &mut self.begun);
            match read {
                Err(error) if is_patience(&error) => continue,
                Err(error) => return Err(LineFault::Network(error)),
                Ok(_) if self.begun.ends_with(b"\n") => {
                    let line = std::mem::take(&mut self.begun);
                    return serde_json::from_slice(&line)
                        .map_err(|error| LineFault::Garbled(error.to_string()));
                }
                Ok(0) if room == 0 => {
                    return Err(LineFault::Garbled(format!("a line above {LINE_MAX} octets")));
                }
                Ok(0) => return Err(LineFault::Ended),
                Ok(_) => {}
            }
        }
    }

    /// Shows, as an agent, that both sides have the token.
    pub fn accept(&mut self, token: &SharedToken) -> Result<(), String> {
        let ours = nonce()?;
        let challenge = AgentWord::Challenge { schema: SCHEMA.to_owned(), nonce: ours.clone() };
        self.say(&challenge).map_err(|error| error.to_string())?;
        let deadline = Instant::now() + HANDSHAKE;
        match self.hear(deadline).map_err(|fault| fault.to_string())? {
            CoordinatorWord::Hello { schema, .. } if schema != SCHEMA => {
                Err(format!("its messages are {schema:?}, and these are {SCHEMA:?}"))
            }
            CoordinatorWord::Hello { nonce, proof, .. } => {
                if !is_equal(&proof, &token.proof(["coordinator", &ours, &nonce])) {
                    let why = "the token of the coordinator is another one".to_owned();
                    let _ = self.say(&AgentWord::Failed { why: why.clone() });
                    return Err(why);
                }
                let proof = token.proof(["agent", &ours, &nonce]);
                self.say(&AgentWord::Welcome { proof }).map_err(|error| error.to_string())
            }
            _ => Err("it did not say hello".to_owned()),
        }
    }

    /// The same as a coordinator.
    pub fn greet(&mut self, token: &SharedToken) -> Result<(), String> {
        let deadline = Instant::now() + HANDSHAKE;
        let theirs = match self.hear(deadline).map_err(|fault| fault.to_string())? {
            AgentWord::Challenge { schema, nonce } if schema == SCHEMA => nonce,
            AgentWord::Challenge { schema, .. } => {
                return Err(format!("its messages are {schema:?}, and these are {SCHEMA:?}"));
            }
            _ => return Err("it is no agent".to_owned()),
        };
        let ours = nonce()?;
        let proof = token.proof(["coordinator", &theirs, &ours]);
        let hello =
            CoordinatorWord::Hello { schema: SCHEMA.to_owned(), nonce: ours.clone(), proof };
        self.say(&hello).map_err(|error| error.to_string())?;
        match self.hear(deadline).map_err(|fault| fault.to_string())? {
            AgentWord::Welcome { proof }
                if is_equal(&proof, &token.proof(["agent", &theirs, &ours])) =>
            {
                Ok(())
            }
            AgentWord::Failed { why } => Err(why),
            _ => Err("the token of the agent is another one".to_owned()),
        }
    }
}

/// Sends a message over `stream`.
pub fn say(mut stream: &TcpStream, word: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(word)? + "\n";
    stream.write_all(line.as_bytes())
}

fn is_patience(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, os::unix::fs::PermissionsExt, thread};

    fn pair() -> [ControlLine; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [one, listener.accept().unwrap().0].map(|stream| ControlLine::new(stream).unwrap())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn digests_under_a_key_are_those_of_rfc_4231() {
        for (key, message, digest) in [
            (
                b"Jefe".to_vec(),
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hmac(&key, message.as_bytes()), digest);
        }
        let token = SharedToken(b"Jefe".to_vec());
        assert_ne!(token.proof(["a", "", "b"]), token.proof(["", "a", "b"]), "parts are framed");
    }

    #[test]
    fn both_sides_have_to_have_the_token() {
        let token = |text: &str| SharedToken(text.as_bytes().to_vec());
        let meet = |one: &'static str, other: &'static str| {
            let [mut coordinator, mut agent] = pair();
            let there = thread::spawn(move || agent.accept(&token(other)));
            let here = coordinator.greet(&token(one));
            drop(coordinator);
            (here, there.join().unwrap())
        };
        assert_eq!(meet("a secret of sixteen", "a secret of sixteen"), (Ok(()), Ok(())));
        let (here, there) = meet("a secret of sixteen", "another of sixteen");
        assert!(here.unwrap_err().contains("another one"));
        assert!(there.unwrap_err().contains("another one"));
    }

    #[test]
    fn an_agent_that_has_no_token_is_found_out() {
        let [mut coordinator, mut agent] = pair();
        let there = thread::spawn(move || {
            let (schema, nonce) = (SCHEMA.to_owned(), "00".to_owned());
            agent.say(&AgentWord::Challenge { schema, nonce }).unwrap();
            let _: CoordinatorWord = agent.hear(soon()).unwrap();
            agent.say(&AgentWord::Welcome { proof: "00".repeat(32) }).unwrap();
        });
        let why = coordinator.greet(&SharedToken(b"a secret of sixteen".to_vec())).unwrap_err();
        assert!(why.contains("another one"), "{why}");
        there.join().unwrap();
    }

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let [mut hears, says] = pair();
        let mut stream = says.speaker().unwrap();
        stream.write_all(b"{\"say\":\"clo").unwrap();
        let early = hears.hear::<CoordinatorWord>(Instant::now() + Duration::from_millis(20));
        assert!(matches!(early, Err(LineFault::Silent)));
        stream.write_all(b"ck\"}\n{\"say\":\"begin\",\"at_unix_ns\":7}\nnonsense\n").unwrap();
        assert!(matches!(hears.hear(soon()), Ok(CoordinatorWord::Clock)));
        assert!(matches!(hears.hear(soon()), Ok(CoordinatorWord::Begin { at_unix_ns: 7 })));
        assert!(matches!(hears.hear::<CoordinatorWord>(soon()), Err(LineFault::Garbled(_))));
        drop((says, stream));
        assert!(matches!(hears.hear::<CoordinatorWord>(soon()), Err(LineFault::Ended)));
    }

    #[test]
    fn a_line_without_an_end_is_refused_at_its_limit() {
        let [mut hears, says] = pair();
        let mut stream = says.speaker().unwrap();
        let writer = thread::spawn(move || {
            let line = vec![b'x'; 1 << 16];
            while stream.write_all(&line).is_ok() {}
        });
        let heard = hears.hear::<CoordinatorWord>(soon());
        assert!(matches!(heard, Err(LineFault::Garbled(_))), "{heard:?}");
        drop((hears, says));
        writer.join().unwrap();
    }

    #[test]
    fn a_token_that_others_can_read_is_refused_with_the_command() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("token");
        fs::write(&file, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        let refused = SharedToken::read(&file).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(SharedToken::read(&file).unwrap().octets(), b"0123456789abcdef");
        fs::write(&file, "short").unwrap();
        assert!(SharedToken::read(&file).unwrap_err().to_string().contains("openssl rand"));
    }
}
