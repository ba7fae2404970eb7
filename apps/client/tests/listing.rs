//! Calls of our client to a server whose directory gives one name at a time, and a verifier that
//! has to come back with each cookie.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_client::{ClientConfig, NfsClient};
use stag_engine::{Answer, App, Call, Cx, Shard};
use stag_protocol::{
    nfs::v3::{
        self, Entry, EntryPlus, Failure, FileHandle, Name, PlusLimits, Procedure,
        ReadDirPlusWriter, ReadDirResult, ReadDirWriter, Status,
    },
    rpc::{Accepted, Auth, Credential},
    xdr::{Codec, Writer},
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{cell::RefCell, rc::Rc};

const AT: Port = Port(700);
const VERIFIER: [u8; 8] = *b"verifier";
const NAMES: [&[u8]; 4] = [b".", b"..", b"a", b"b"];

/// Lists [`NAMES`]; refuses a cookie without its verifier, and a verifier without a cookie.
#[derive(Debug, Default)]
struct Strict {
    /// The callers that calls named.
    callers: Rc<RefCell<Vec<CallKeeper>>>,
    /// After the last name the first follows, without end.
    is_endless: bool,
}

/// User, group, the length of the machine's name, and whether the verifier is AUTH_NONE.
type CallKeeper = (u32, u32, usize, bool);

impl Strict {
    fn list(
        &self,
        writer: &mut Writer<'_>,
        (cookie, verifier): (u64, [u8; 8]),
        is_plus: bool,
    ) -> Result<(), Status> {
        if verifier != if cookie == 0 { [0; 8] } else { VERIFIER } {
            return Err(Status::BadCookie);
        }
        let next = usize::try_from(cookie).unwrap();
        let is_last = next + 1 == NAMES.len();
        let cookie = if is_last && self.is_endless { 1 } else { cookie + 1 };
        let entry = Entry { fileid: cookie, name: Name(NAMES[next]), cookie };
        let is_last = is_last && !self.is_endless;
        if is_plus {
            let mut list = ReadDirPlusWriter::begin(
                writer,
                None,
                VERIFIER,
                PlusLimits { dir_count: 4096, max_count: 4096 },
            )?;
            list.push(&EntryPlus { entry, attributes: None, handle: None }).unwrap();
            list.finish(is_last).map(drop)
        } else {
            let mut list = ReadDirWriter::begin(writer, None, VERIFIER, 4096)?;
            list.push(&entry).unwrap();
            list.finish(is_last).map(drop)
        }
    }
}

impl App for Strict {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let Credential::Sys(sys) = call.header.credential else { panic!("{:?}", call.header) };
        let caller = (sys.uid, sys.gid, sys.machine_name.len(), call.header.verifier == Auth::NONE);
        self.callers.borrow_mut().push(caller);
        let procedure = Procedure::new(call.header.procedure).unwrap();
        let mut message = cx.message(2_048).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        let listed = match v3::Call::parse(procedure, call.arguments).unwrap() {
            v3::Call::ReadDir(args) => self.list(&mut writer, (args.cookie, args.verifier), false),
            v3::Call::ReadDirPlus(args) => {
                self.list(&mut writer, (args.cookie, args.verifier), true)
            }
            call => panic!("{call:?} is not expected"),
        };
        if let Err(status) = listed {
            let failed: ReadDirResult<'_> = Err(Failure { status, attributes: None });
            failed.emit(&mut writer).unwrap();
        }
        let len = writer.len();
        message.extend(len);
        cx.answer(call.id, Answer { message, item: None });
    }
}

fn client() -> (NfsClient<Sim>, Rc<RefCell<Vec<CallKeeper>>>) {
    client_of(false)
}

fn client_of(is_endless: bool) -> (NfsClient<Sim>, Rc<RefCell<Vec<CallKeeper>>>) {
    let fabric = Fabric::new(1, Faults::NONE);
    let limits = Limits { windows: 256, receives: 256, ..stag_sim::LIMITS };
    let config = stag_engine::Config { grant: 8, ..stag_engine::Config::small() };
    let callers = Rc::default();
    let app = Strict { callers: Rc::clone(&callers), is_endless };
    let mut server =
        Shard::new(fabric.end("server", limits), app, config, Box::new(|_| true)).unwrap();
    server.listen(&AT).unwrap();
    let config = ClientConfig { user: (1001, 7), ..ClientConfig::new(7) };
    let (mut time, end) = (0, fabric.end("client", config.limits()));
    let now = move || {
        time += 500;
        server.pass(Time(time));
        Time(time)
    };
    let mut client = NfsClient::new(end, config, now).unwrap();
    client.connect(&AT).unwrap();
    (client, callers)
}

#[test]
fn a_listing_goes_on_with_the_cookie_and_the_verifier_that_came() {
    let ((mut client, _), dir) = (client(), FileHandle::new(b"it").unwrap());
    for listed in [client.readdir(dir, 4096).unwrap(), client.readdirplus(dir).unwrap()] {
        let names: Vec<&[u8]> = listed.iter().map(|entry| &entry.name[..]).collect();
        assert_eq!(names, NAMES);
    }
}

#[test]
fn a_listing_that_repeats_its_cookies_ends_with_an_error_that_says_so() {
    let ((mut client, _), dir) = (client_of(true), FileHandle::new(b"it").unwrap());
    for listed in [client.readdir(dir, 4096), client.readdirplus(dir)] {
        let refused = listed.unwrap_err().to_string();
        assert!(refused.contains("a directory repeats a cookie"), "{refused}");
    }
}

#[test]
fn a_call_names_its_user_and_proves_nothing() {
    let (mut client, callers) = client();
    client.readdir(FileHandle::new(b"it").unwrap(), 4096).unwrap();
    let callers = callers.borrow();
    assert!(callers.len() >= NAMES.len());
    for (uid, gid, name_len, is_unproved) in callers.iter() {
        assert!((*uid, *gid, *is_unproved) == (1001, 7, true) && *name_len <= 255, "{callers:?}");
    }
}
