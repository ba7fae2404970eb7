//! A server of RPCSEC_GSS that misbehaves on demand, as an app of the engine, and the tickets that
//! it takes.

pub mod over_both;

use over_both::{Refusal, Wishes};
use stag_engine::{Answer, AnswerItem, App, Call, Cx, Over};
use stag_gss::{AcceptorContext, ContextKey, Enctype, InitiatorContext, VerifiedCall};
use stag_pools::Buf;
use stag_protocol::{
    rpc::{
        Accepted, Auth, AuthStatus, CallHeader, Denied, Outcome, ReplyHeader,
        gss::{GssCredential, GssService, InitArguments, InitResults, MajorStatus},
    },
    xdr::{Codec as _, Reader, Writer, padded},
};
use stag_rpc::gss::{ContextFault, ContextSource, PendingSetup};
use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, Mutex},
};

pub const PROGRAM: u32 = 0x3f53_54ff;
/// Octets of the longest item.
pub const ITEM_MAX: usize = 100_000;
const ENCTYPE: Enctype = Enctype::Aes256Sha384;

pub fn key(octets: &[u8]) -> ContextKey<'_> {
    ContextKey { enctype: ENCTYPE, octets, acceptor_subkey: true }
}

/// Tickets that the server takes. Each context begins with this number.
pub struct Tickets(pub u32);

struct Asked(u32);

impl ContextSource for Tickets {
    fn begin(&mut self) -> Result<(Vec<u8>, Box<dyn PendingSetup>), ContextFault> {
        Ok((b"ask".to_vec(), Box::new(Asked(self.0))))
    }
}

impl PendingSetup for Asked {
    fn finish(self: Box<Self>, token: &[u8]) -> Result<InitiatorContext, ContextFault> {
        match token {
            b"granted" => Ok(InitiatorContext::new(&key(&[7; 32]), self.0).unwrap()),
            token => Err(ContextFault(String::from_utf8_lossy(token).into_owned())),
        }
    }
}

/// A defect of the server, in its replies from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Defect {
    #[default]
    None,
    /// The creation of a context fails.
    RefusedContext,
    /// The verifier of a creation signs another window.
    OtherWindow,
    /// The verifier of a reply is AUTH_NONE.
    NoVerifier,
    /// The verifier of a reply signs the number of another call.
    OtherNumber,
    /// One octet of the verifier is another one.
    WrongMic,
    /// Results are in the clear.
    ClearResults,
    /// One octet of the results is another one.
    WrongResults,
    /// The context is unknown, always.
    NoContext(AuthStatus),
    /// The connection ends without an answer, once.
    Disconnects,
}

/// The server's state, which a test sees.
#[derive(Debug, Default)]
pub struct State {
    pub defect: Defect,
    /// Contexts by number; None after their end.
    pub contexts: Vec<Option<AcceptorContext>>,
    /// XIDs and sequence numbers of verified calls.
    pub seen: Vec<(u32, u32)>,
    pub destroyed: usize,
    /// Of a server over iWARP and TCP.
    pub wishes: Option<Arc<Mutex<Wishes>>>,
}

impl State {
    /// The answer to a creation over this transport.
    fn refusal(&self, over: Over) -> Refusal {
        let Some(wishes) = &self.wishes else { return Refusal::None };
        let (mut wishes, place) = (wishes.lock().unwrap(), usize::from(over == Over::Tcp));
        wishes.asked[place] += 1;
        wishes.refusals[place]
    }

    fn forget_if_asked(&mut self) {
        let Some(wishes) = &self.wishes else { return };
        if std::mem::take(&mut wishes.lock().unwrap().forgets) {
            self.contexts.iter_mut().for_each(|context| *context = None);
        }
    }
}

#[derive(Debug)]
pub struct Server(pub Rc<RefCell<State>>);

impl App for Server {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let state = &mut *self.0.borrow_mut();
        state.forget_if_asked();
        let Some(credential) = call.header.credential.gss() else {
            return deny(cx, &call, AuthStatus::TOO_WEAK);
        };
        match credential.unwrap() {
            GssCredential::Init => {
                let (_, over) = cx.whereabouts(call.peer).unwrap();
                match state.refusal(over) {
                    Refusal::None => init(cx, &call, state),
                    Refusal::Denied => deny(cx, &call, AuthStatus::TOO_WEAK),
                    Refusal::Garbage => cx.refuse(&call, Accepted::GarbageArgs),
                    Refusal::Ends => cx.disconnect(call.peer),
                }
            }
            GssCredential::Data(data) => serve(cx, &call, state, data.handle),
            GssCredential::Destroy(data) => {
                serve(cx, &call, state, data.handle);
                state.destroyed += 1;
                state.contexts[usize::from(data.handle[0])] = None;
            }
            other => panic!("{other:?} is not expected"),
        }
    }
}

fn send(cx: &mut Cx<'_>, call: &Call<'_>, octets: &[u8]) {
    let mut message: Buf = cx.message(octets.len()).unwrap();
    message.append(octets).unwrap();
    cx.answer(call.id, Answer { message, item: None });
}

fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut octets = vec![0; ITEM_MAX + 2_048];
    let mut writer = Writer::new(&mut octets);
    write(&mut writer);
    let len = writer.len();
    octets.truncate(len);
    octets
}

fn deny(cx: &mut Cx<'_>, call: &Call<'_>, status: AuthStatus) {
    let header = call.header.deny(Denied::AuthError(status));
    send(cx, call, &written(|to| header.emit(to).unwrap()));
}

fn header(call: &Call<'_>, verifier: Auth<'_>) -> Vec<u8> {
    let outcome = Outcome::Accepted { verifier, status: Accepted::Success };
    written(|to| ReplyHeader { xid: call.header.xid, outcome }.emit(to).unwrap())
}

fn init(cx: &mut Cx<'_>, call: &Call<'_>, state: &mut State) {
    let arguments = InitArguments::parse(&mut call.arguments.clone()).unwrap();
    assert_eq!((arguments.token, call.header.procedure), (&b"ask"[..], 0));
    if state.defect == Defect::RefusedContext {
        let results = InitResults::failed(MajorStatus::FAILURE, 37, b"the clock is wrong");
        let mut reply = header(call, Auth::NONE);
        reply.extend(written(|to| results.emit(to).unwrap()));
        return send(cx, call, &reply);
    }
    let context = AcceptorContext::new(&key(&[7; 32])).unwrap();
    let mic = context.sign_window(0);
    let window = if state.defect == Defect::OtherWindow { 1 } else { stag_gss::WINDOW };
    let handle = [state.contexts.len() as u8, 1, 2, 3, 4];
    state.contexts.push(Some(context));
    let results = InitResults {
        handle: &handle,
        major: MajorStatus::COMPLETE,
        minor: 0,
        window,
        token: b"granted",
    };
    let mut reply = header(call, Auth::gss(&mic));
    reply.extend(written(|to| results.emit(to).unwrap()));
    send(cx, call, &reply);
}

/// The octets that the verifier covers.
fn signed(header: &CallHeader<'_>) -> Vec<u8> {
    let octets = written(|to| header.emit(to).unwrap());
    let verifier = 8 + padded(header.verifier.body.len());
    octets[..octets.len() - verifier].to_vec()
}

fn serve(cx: &mut Cx<'_>, call: &Call<'_>, state: &mut State, handle: &[u8]) {
    if let Defect::NoContext(status) = state.defect {
        return deny(cx, call, status);
    }
    let place = usize::from(handle[0]);
    let Some(Some(context)) = state.contexts.get(place) else {
        return deny(cx, call, AuthStatus::GSS_CREDENTIAL_PROBLEM);
    };
    let verified = context.verify_call(&signed(&call.header), &call.header.verifier);
    let verified = match verified {
        Ok(verified) => verified,
        Err(fault) => {
            let status = fault.status().expect("a number is seen once");
            return deny(cx, call, status);
        }
    };
    state.seen.push((call.header.xid.0, verified.sequence()));
    if state.defect == Defect::Disconnects {
        state.defect = Defect::None;
        return cx.disconnect(call.peer);
    }
    let mut mic = context.sign_reply(&verified, 0).to_vec();
    match state.defect {
        Defect::OtherNumber => {
            let keys = context.keys();
            mic = keys.mic(0, [&(verified.sequence() + 1).to_be_bytes()[..]]).to_vec();
        }
        Defect::WrongMic => mic[39] ^= 1,
        _ => {}
    }
    let is_signed = state.defect != Defect::NoVerifier;
    let head = header(call, if is_signed { Auth::gss(&mic) } else { Auth::NONE });
    if call.header.procedure == 0 && verified.service() == GssService::None {
        return send(cx, call, &head);
    }
    match verified.service() {
        GssService::None => answer_reduced(cx, call, head),
        _ => answer_whole(cx, call, head, context, &verified, state.defect),
    }
}

/// Sends the item back, in a chunk if there is one.
fn answer_reduced(cx: &mut Cx<'_>, call: &Call<'_>, mut head: Vec<u8>) {
    let item = call.arguments.clone().item(ITEM_MAX).unwrap();
    head.extend((item.len() as u32).to_be_bytes());
    let mut message = cx.message(head.len()).unwrap();
    message.append(&head).unwrap();
    let mut octets = cx.take(item.len()).unwrap();
    octets.append(item).unwrap();
    let item = AnswerItem::new(head.len(), octets.freeze());
    cx.answer(call.id, Answer { message, item: Some(item) });
}

/// Sends the arguments back as results, protected as they are.
fn answer_whole(
    cx: &mut Cx<'_>,
    call: &Call<'_>,
    mut head: Vec<u8>,
    context: &AcceptorContext,
    verified: &VerifiedCall,
    defect: Defect,
) {
    let len = call.arguments.remaining();
    let mut body = call.arguments.clone().fixed(len).unwrap().to_vec();
    let arguments = context.open_arguments(verified, &mut body).unwrap();
    let arguments = body[arguments].to_vec();
    if defect == Defect::ClearResults {
        head.extend(arguments);
        return send(cx, call, &head);
    }
    let room = context.keys().room(verified.service());
    let mut body = vec![0; room.front + arguments.len() + room.back];
    body[room.front..room.front + arguments.len()].copy_from_slice(&arguments);
    context.protect_results(verified, 0, &mut body, &[3; 16]).unwrap();
    if defect == Defect::WrongResults {
        body[room.front] ^= 1;
    }
    head.extend(body);
    send(cx, call, &head);
}

/// Reads the item of an answer.
pub fn item<'a>(mut results: Reader<'a>) -> Result<&'a [u8], stag_rpc::CallError> {
    results.item(ITEM_MAX).map_err(stag_rpc::CallError::Garbled)
}
