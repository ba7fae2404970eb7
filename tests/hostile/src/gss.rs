//! RPCSEC_GSS without Kerberos (RFC 2203): a server of ours accepts contexts whose key both ends
//! derive from the token, and a client with such a context writes each field of a call at will.

use crate::{
    answer::{AnswerPattern, SeenAnswers},
    judge::Family,
    play::{Defect, DefectTable, observe, over_tcp},
    record::RecordStream,
    wire::{NFS, RawHeader, Xdr, auth, record, word, word_at},
    world::HostileWorld,
};
use stag_engine::{
    PeerAddress,
    gss::{AcceptedContext, ContextAcceptor, RefusedContext},
};
use stag_gss::{
    AcceptorContext, ContextKey, ContextKeys, Enctype, GssRole, InitiatorContext, Protection,
    WrongKeyLen,
};
use stag_protocol::rpc::{
    Gids, UnixUser,
    gss::{GssService, MajorStatus},
};
use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Instant,
};

const ENCTYPE: Enctype = Enctype::Aes256Sha384;
/// Start of a token that is accepted; the rest is the principal's name, and decides the key.
const TOKEN: &[u8] = b"key of ";
/// The flavor of RPCSEC_GSS.
pub const GSS: u32 = 6;

/// DATA, INIT, CONTINUE_INIT and DESTROY (RFC 2203 §5).
pub const DATA: u32 = 0;
/// The first request for a context.
pub const INIT: u32 = 1;
/// A later request for a context.
pub const CONTINUE_INIT: u32 = 2;
/// The end of a context.
pub const DESTROY: u32 = 3;

/// The services of RPCSEC_GSS: header alone, integrity, privacy.
pub const SERVICES: [(&str, u32); 3] = [("krb5", 1), ("krb5i", 2), ("krb5p", 3)];

/// Accepts contexts by keys that are no secret.
#[derive(Debug)]
pub struct KnownKeyAcceptor;

impl ContextAcceptor for KnownKeyAcceptor {
    fn accept(&mut self, token: &[u8], _: PeerAddress) -> Result<AcceptedContext, RefusedContext> {
        let refused = RefusedContext {
            major: MajorStatus::DEFECTIVE_TOKEN,
            minor: 0,
            token: b"no such token".to_vec(),
        };
        let name = token.strip_prefix(TOKEN).and_then(|name| std::str::from_utf8(name).ok());
        let context = with_key(token, AcceptorContext::new);
        let (Some(name), Ok(context)) = (name, context) else { return Err(refused) };
        Ok(AcceptedContext {
            context,
            token: Vec::new(),
            principal: format!("{name}@HOSTILE"),
            unix: Gids::new(&[]).map(|gids| UnixUser { uid: 0, gid: 0, gids }),
            ends: u64::from(u32::MAX),
        })
    }
}

/// The result of `make` for the key that a token decides.
fn with_key<T>(
    token: &[u8],
    make: impl FnOnce(&ContextKey<'_>) -> Result<T, WrongKeyLen>,
) -> Result<T, WrongKeyLen> {
    let octets: Vec<u8> = token.iter().copied().cycle().take(ENCTYPE.key_len()).collect();
    make(&ContextKey { enctype: ENCTYPE, octets: &octets, acceptor_subkey: true })
}

/// A credential of RPCSEC_GSS with any words.
#[derive(Clone, Debug)]
pub struct GssWords {
    /// The version, which is 1.
    pub version: u32,
    /// The procedure of RPCSEC_GSS.
    pub procedure: u32,
    /// The sequence number.
    pub sequence: u32,
    /// The service.
    pub service: u32,
    /// The context's name.
    pub handle: Vec<u8>,
}

impl GssWords {
    /// The credential's body.
    pub fn body(&self) -> Vec<u8> {
        let Self { version, procedure, sequence, service, handle } = self;
        Xdr::new().words(&[*version, *procedure, *sequence, *service]).opaque(handle).0
    }
}

/// The first request for a context.
pub fn init_words() -> GssWords {
    GssWords { version: 1, procedure: INIT, sequence: 0, service: 0, handle: Vec::new() }
}

/// A call of NFS version 3 up to its credential, whose body is this one.
pub fn header(xid: u32, procedure: u32, credential: &[u8]) -> Vec<u8> {
    let fixed = Xdr::new().words(&[xid, 0, 2, NFS, 3, procedure]);
    auth(fixed, GSS, word(credential.len()), credential).0
}

/// A call that asks for a context with this token, unsigned.
pub fn init(xid: u32, token: &[u8]) -> Vec<u8> {
    let header = header(xid, 0, &init_words().body());
    Xdr(header).words(&[0, 0]).opaque(token).0
}

/// A context that this client has.
#[derive(Debug)]
pub struct HostileContext {
    context: InitiatorContext,
    token: Vec<u8>,
    /// The context's name.
    pub handle: Vec<u8>,
}

impl HostileContext {
    /// Sets one up over TCP, for a principal that no other context has. Comes again where the
    /// server had no place for the request, as clients do.
    pub fn open(world: &HostileWorld) -> io::Result<Self> {
        let until = Instant::now() + world.target.patience;
        loop {
            match Self::attempt(world) {
                Err(_) if Instant::now() < until => thread::sleep(world.target.pause),
                done => return done,
            }
        }
    }

    fn attempt(world: &HostileWorld) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let token = [TOKEN, format!("user{number:08}").as_bytes()].concat();
        let patience = world.target.patience;
        let mut stream = RecordStream::open(world.target.tcp, patience)?;
        let results = stream.results(&init(world.xid(), &token), patience)?;
        let len = word_at(&results, 0) as usize;
        let handle = results.get(4..4 + len).unwrap_or_default().to_vec();
        let major = word_at(&results, 4 + len.next_multiple_of(4));
        if handle.is_empty() || major != 0 {
            return Err(io::Error::other("the server does not grant a context"));
        }
        let context = with_key(&token, |key| InitiatorContext::new(key, 1));
        let context = context.map_err(io::Error::other)?;
        Ok(Self { context, token, handle })
    }

    /// The credential of a call of this context.
    pub fn words(&self, sequence: u32, service: u32) -> GssWords {
        GssWords { version: 1, procedure: DATA, sequence, service, handle: self.handle.clone() }
    }

    /// A call's header with the right checksum for a verifier.
    pub fn signed(&self, header: &[u8]) -> Vec<u8> {
        let mic = self.context.sign_call(header, 1).to_vec();
        verified(header, GSS, &mic)
    }

    /// A call's header with the checksum of a server for a verifier: that of a reflected message.
    pub fn signed_as_server(&self, header: &[u8]) -> Vec<u8> {
        let mic = with_key(&self.token, |key| ContextKeys::new(key, GssRole::Acceptor));
        let mic = mic.map_or_else(|_| Vec::new(), |keys| keys.mic(1, [header]).to_vec());
        verified(header, GSS, &mic)
    }

    /// The signed header of a call.
    pub fn head(&self, xid: u32, procedure: u32, words: &GssWords) -> Vec<u8> {
        self.signed(&header(xid, procedure, &words.body()))
    }

    /// A correct call with any service.
    pub fn call(&self, xid: u32, words: &GssWords, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let head = self.head(xid, procedure, words);
        [head, self.body(words.sequence, words.service, arguments)].concat()
    }

    /// Arguments as a service protects them.
    pub fn body(&self, sequence: u32, service: u32, arguments: &[u8]) -> Vec<u8> {
        self.body_by(GssRole::Initiator, sequence, service, arguments)
    }

    /// The same by the keys of either end.
    pub fn body_by(&self, role: GssRole, sequence: u32, service: u32, arguments: &[u8]) -> Vec<u8> {
        let service = match service {
            2 => GssService::Integrity,
            3 => GssService::Privacy,
            _ => GssService::None,
        };
        let room = self.context.keys().room(service);
        let mut body = [&vec![0; room.front], arguments, &vec![0; room.back]].concat();
        let protection = Protection { service, sequence, token_sequence: 1 };
        let done = with_key(&self.token, |key| ContextKeys::new(key, role))
            .map(|keys| keys.protect(&protection, &mut body, &[7; 16]).is_ok());
        debug_assert_eq!(done, Ok(true), "the room is that of the service");
        body.resize(body.len().next_multiple_of(4), 0);
        body
    }

    /// Returns true if a call of this context is served that has this number and no protection of
    /// its arguments.
    pub fn is_served(&self, world: &HostileWorld, sequence: u32) -> io::Result<bool> {
        let patience = world.target.patience;
        let mut stream = world.stream()?;
        let root = Xdr::new().opaque(&world.root).0;
        let message = self.call(world.xid(), &self.words(sequence, 1), GETATTR, &root);
        Ok(stream.results(&message, patience).is_ok_and(|results| word_at(&results, 0) == 0))
    }
}

/// The procedure of NFS version 3 that most calls here have.
pub const GETATTR: u32 = 1;

/// A header with a verifier of any flavor and body.
pub fn verified(header: &[u8], flavor: u32, body: &[u8]) -> Vec<u8> {
    Xdr(header.to_vec()).u32(flavor).opaque(body).0
}

impl DefectTable {
    /// A call of a client that has a context, over both transports. The context has to serve the
    /// next call afterwards.
    pub(crate) fn protected(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        message: impl Fn(&HostileContext, &HostileWorld, u32) -> Vec<u8> + Send + Sync + 'static,
    ) -> &mut Defect {
        self.scene(name, clause, expect, move |world| play_protected(world, expect, &message))
    }
}

/// Both transports, each with a context of its own. Its call of number 2 has to be served
/// afterwards: the defect has neither ended the context nor moved its window.
fn play_protected(
    world: &HostileWorld,
    expect: &str,
    message: &impl Fn(&HostileContext, &HostileWorld, u32) -> Vec<u8>,
) -> io::Result<SeenAnswers> {
    let family = Family::Rpc;
    let play = |over: fn(&HostileWorld, &[u8], u32, Family) -> io::Result<SeenAnswers>| {
        let context = HostileContext::open(world)?;
        let xid = world.xid();
        let seen = over(world, &message(&context, world, xid), xid, family)?;
        match context.is_served(world, 2)? {
            true => Ok(seen),
            false => Ok(AnswerPattern::ContextLost.into()),
        }
    };
    let streamed = play(|world, call, xid, family| over_tcp(world, &record(call), xid, family))?;
    if !streamed.is_in(expect) {
        return Ok(streamed);
    }
    play(|world, call, xid, family| {
        let mut fabric = world.fabric()?;
        let octets = RawHeader::msg(xid).with(call);
        fabric.send(&octets)?;
        observe(&mut fabric, world, &octets, family)
    })
}
