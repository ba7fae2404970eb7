//! A client of RPCSEC_GSS whose messages are made by hand, and an acceptor that needs no Kerberos.

use stag_echo::{PROGRAM, VERSION};
use stag_engine::{
    PeerAddress,
    gss::{AcceptedContext, ContextAcceptor, RefusedContext},
};
use stag_gss::{AcceptorContext, ContextKey, Enctype, InitiatorContext, Protection};
use stag_protocol::{
    rpc::{
        Accepted, Auth, AuthStatus, CallHeader, Credential, Denied, Gids, Outcome, ReplyHeader,
        UnixUser,
        gss::{
            CREDENTIAL_MAX, GssCredential, GssData, GssService, InitResults, MajorStatus,
            signed_header,
        },
    },
    rpcrdma::Xid,
    xdr::{Codec as _, Reader, Writer, padded},
};
use std::time::Duration;

pub const SERVICES: [GssService; 3] =
    [GssService::None, GssService::Integrity, GssService::Privacy];

/// The principal whose requests take a while.
pub const SLOW: &str = "slow@REALM";

/// The key of all contexts of these tests.
fn key_octets(enctype: Enctype) -> Vec<u8> {
    (0..enctype.key_len()).map(|at| at as u8 ^ 0x5a).collect()
}

/// Takes the name of a principal for a token; refuses an empty one. The end of the ticket follows
/// a name after a space.
#[derive(Debug)]
pub struct NamedAcceptor(pub Enctype);

impl ContextAcceptor for NamedAcceptor {
    fn accept(&mut self, token: &[u8], _: PeerAddress) -> Result<AcceptedContext, RefusedContext> {
        let text = String::from_utf8(token.to_vec()).unwrap();
        let (name, ends) = text.split_once(' ').unwrap_or((&text, "32503680000"));
        if name == SLOW {
            std::thread::sleep(Duration::from_millis(30));
        }
        if name.is_empty() {
            let (major, token) = (MajorStatus::NO_CRED, b"why".to_vec());
            return Err(RefusedContext { major, minor: 7, token });
        }
        let octets = key_octets(self.0);
        let key = ContextKey { enctype: self.0, octets: &octets, acceptor_subkey: true };
        Ok(AcceptedContext {
            context: AcceptorContext::new(&key).unwrap(),
            token: b"answer".to_vec(),
            principal: name.to_owned(),
            unix: Some(UnixUser { uid: 7, gid: 8, gids: Gids::new(&[9]).unwrap() }),
            ends: ends.parse().unwrap(),
        })
    }
}

fn call_of(procedure: u32, xid: u32, credential: &GssCredential<'_>) -> Vec<u8> {
    let mut body = [0; CREDENTIAL_MAX];
    let body = credential.emit(&mut body).unwrap();
    let header = CallHeader {
        xid: Xid(xid),
        program: PROGRAM,
        version: VERSION,
        procedure,
        credential: Credential::Other(Auth::gss(body)),
        verifier: Auth::NONE,
    };
    let mut octets = vec![0; 256];
    let mut writer = Writer::new(&mut octets);
    header.emit(&mut writer).unwrap();
    let len = writer.len();
    octets.truncate(len);
    octets
}

/// An INIT with this token.
pub fn init(xid: u32, token: &[u8]) -> Vec<u8> {
    let mut octets = call_of(0, xid, &GssCredential::Init);
    octets.extend((token.len() as u32).to_be_bytes());
    octets.extend(token);
    octets.resize(padded(octets.len()), 0);
    octets
}

/// The results of an INIT, and the verifier of their reply.
pub fn init_results(reply: &[u8]) -> (InitResults<'_>, Auth<'_>) {
    let mut reader = Reader::new(reply);
    let header = ReplyHeader::parse(&mut reader).unwrap();
    let Outcome::Accepted { verifier, status: Accepted::Success } = header.outcome else {
        panic!("{header:?}");
    };
    (InitResults::parse(&mut reader).unwrap(), verifier)
}

/// The status of a denied reply.
pub fn denied(reply: &[u8]) -> AuthStatus {
    let header = ReplyHeader::parse(&mut Reader::new(reply)).unwrap();
    let Outcome::Denied(Denied::AuthError(status)) = header.outcome else { panic!("{header:?}") };
    status
}

/// A client that has a context.
pub struct Client {
    pub context: InitiatorContext,
    pub handle: Vec<u8>,
}

impl Client {
    /// The client whose INIT got this reply.
    pub fn of(enctype: Enctype, reply: &[u8]) -> Self {
        let octets = key_octets(enctype);
        let key = ContextKey { enctype, octets: &octets, acceptor_subkey: true };
        let context = InitiatorContext::new(&key, 1).unwrap();
        let (results, verifier) = init_results(reply);
        assert_eq!((results.major, results.token), (MajorStatus::COMPLETE, &b"answer"[..]));
        context.verify_window(results.window, &verifier).unwrap();
        Self { context, handle: results.handle.to_vec() }
    }

    /// The header of a call, with its verifier.
    pub fn signed(&self, xid: u32, procedure: u32, credential: &GssCredential<'_>) -> Vec<u8> {
        let mut octets = call_of(procedure, xid, credential);
        let signed = signed_header(&Reader::new(&octets)).unwrap();
        let mic = self.context.sign_call(signed, 1);
        octets.truncate(signed.len());
        let mut verifier = vec![0; 64];
        let mut writer = Writer::new(&mut verifier);
        Auth::gss(&mic).emit(&mut writer).unwrap();
        octets.extend(writer.written());
        octets
    }

    pub fn data(&self, sequence: u32, service: GssService) -> GssData<'_> {
        GssData { sequence, service, handle: &self.handle }
    }

    /// A call with protected arguments.
    pub fn call(
        &self,
        (xid, sequence): (u32, u32),
        service: GssService,
        procedure: u32,
        arguments: &[u8],
    ) -> Vec<u8> {
        let credential = GssCredential::Data(self.data(sequence, service));
        let mut octets = self.signed(xid, procedure, &credential);
        octets.extend(self.body(sequence, service, arguments));
        octets
    }

    /// Protected arguments.
    pub fn body(&self, sequence: u32, service: GssService, arguments: &[u8]) -> Vec<u8> {
        let room = self.context.keys().room(service);
        let mut body = [&vec![0; room.front], arguments, &vec![0; room.back]].concat();
        let protection = Protection { service, sequence, token_sequence: 1 };
        self.context.protect_arguments(&protection, &mut body, &[7; 16]).unwrap();
        body.resize(padded(body.len()), 0);
        body
    }

    /// The status of an accepted reply, whose verifier is checked, and its opened results.
    pub fn open(&self, sequence: u32, service: GssService, reply: &[u8]) -> (Accepted, Vec<u8>) {
        let mut reader = Reader::new(reply);
        let header = ReplyHeader::parse(&mut reader).unwrap();
        let Outcome::Accepted { verifier, status } = header.outcome else { panic!("{header:?}") };
        assert_eq!(self.context.verify_reply(&verifier, &[sequence]), Ok(sequence));
        let mut body = reply[reply.len() - reader.remaining()..].to_vec();
        if status != Accepted::Success {
            return (status, body);
        }
        let range = self.context.open_results(service, sequence, &mut body).unwrap();
        (status, body[range].to_vec())
    }
}
