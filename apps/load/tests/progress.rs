//! Calls that depend on earlier replies, to servers that answer them wrongly.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_client::Error;
use stag_engine::{Answer, App, Call, Cx};
use stag_load::{LoadFiles, LoadPlan, Pace, Workload};
use stag_protocol::{
    nfs::v3::{
        self, CommitOk, Entry, EntryPlus, FileHandle, Name, PlusLimits, Procedure,
        ReadDirPlusWriter, StableHow, WccData, WriteOk,
    },
    rpc::Accepted,
    xdr::Writer,
};
use stag_sim::Faults;
use world::{World, calls, sum};

mod world;

/// Names in the directory.
const NAMES: u32 = 700;
/// Octets of a page.
const PAGE: usize = 32 << 10;

/// A defect of the server's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Pages lack their last octets.
    Cut(usize),
    /// The second page has no entries, and is not the end.
    EmptyPage,
    /// The directory ends after the first page.
    Short,
    /// The first page comes again and again.
    Endless,
    /// The write verifier changes after this number of replies.
    Restart(u64),
}

/// A directory of [`NAMES`] names and a file.
#[derive(Debug)]
struct Server {
    defect: Defect,
    replies: u64,
    pages: u64,
    commits: u64,
}

impl Server {
    fn new(defect: Defect) -> Self {
        Self { defect, replies: 0, pages: 0, commits: 0 }
    }

    /// A page of READDIRPLUS, as far as it fits.
    fn list(&self, args: &v3::ReadDirPlusArgs, writer: &mut Writer<'_>) {
        let limits = PlusLimits { dir_count: args.dir_count, max_count: args.max_count };
        let mut list = ReadDirPlusWriter::begin(writer, None, *b"verifier", limits).unwrap();
        let expected = if args.cookie == 0 { [0; 8] } else { *b"verifier" };
        assert_eq!(args.verifier, expected, "a cookie comes with its verifier");
        let from = if self.defect == Defect::Endless { 0 } else { args.cookie };
        if self.defect == Defect::EmptyPage && from > 0 {
            list.finish(false).unwrap();
            return;
        }
        for number in from..u64::from(NAMES) + 2 {
            let name = match number {
                0 => ".".to_owned(),
                1 => "..".to_owned(),
                other => format!("a-name-that-is-somewhat-long-{other}"),
            };
            let entry = Entry { fileid: 7, name: Name(name.as_bytes()), cookie: number + 1 };
            let handle = Some(FileHandle::new(&[3; 32]).unwrap());
            if list.push(&EntryPlus { entry, attributes: None, handle }).is_err() {
                list.finish(false).unwrap();
                return;
            }
        }
        list.finish(true).unwrap();
    }

    fn verifier(&self) -> [u8; 8] {
        let is_later = matches!(self.defect, Defect::Restart(after) if self.replies > after);
        [u8::from(is_later); 8]
    }
}

impl App for Server {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let procedure = Procedure::new(call.header.procedure).unwrap();
        let parsed = v3::Call::parse(procedure, call.arguments).unwrap();
        self.replies += 1;
        let mut message = cx.message(PAGE + 1_024).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        let verifier = self.verifier();
        let wcc = WccData::NONE;
        match parsed {
            v3::Call::ReadDirPlus(args) => {
                self.pages += 1;
                self.list(&args, &mut writer);
                if self.defect == Defect::Short {
                    let eof = writer.len() - 4;
                    writer.truncate(eof);
                    writer.bool(true).unwrap();
                }
                if let Defect::Cut(octets) = self.defect {
                    writer.truncate(writer.len() - octets);
                }
            }
            v3::Call::Write(args) => {
                assert_eq!(args.stable, StableHow::Unstable);
                let count = args.data.octets().map_or(64, |data| data.len() as u32);
                let done = WriteOk { wcc, count, committed: args.stable, verifier };
                v3::Reply::Write(Ok(done)).emit(&mut writer).unwrap();
            }
            v3::Call::Commit(args) => {
                assert_eq!((args.offset, args.count), (0, 0), "the whole file");
                self.commits += 1;
                v3::Reply::Commit(Ok(CommitOk { wcc, verifier })).emit(&mut writer).unwrap();
            }
            other => panic!("{other:?} is not expected"),
        }
        let len = writer.len();
        message.extend(len);
        cx.answer(call.id, Answer { message, item: None });
    }
}

fn world(workload: Workload, defect: Defect) -> World<Server> {
    let handle = FileHandle::new(&[1; 32]).unwrap();
    let len = if workload == Workload::Commit { 64 } else { PAGE };
    let mut plan = LoadPlan::new(workload, len, 4);
    plan.is_nfs = true;
    plan.files = Some(LoadFiles { dir: handle, file: handle, blocks: 8, names: NAMES });
    World::with(Server::new(defect), &plan, Faults::DELAYS)
}

/// The failure of a run against a server with this defect.
fn failure(workload: Workload, defect: Defect) -> (&'static str, Error) {
    let mut world = world(workload, defect);
    let span = calls(world.now.0, 100);
    world.try_run(Pace::Closed, span);
    world.load.generator().failure().unwrap()
}

#[test]
fn each_slot_lists_the_directory_from_start_to_end_and_again() {
    let mut world = world(Workload::ReadDirPlus, Defect::None);
    let span = calls(world.now.0, 400);
    let measured = sum(&world.run(Pace::Closed, span));
    assert_eq!((measured.calls, measured.failed), (400, 0));
    assert_eq!(world.server.app().pages, 400);
    // A listing is several pages, all but the last of which are nearly full.
    assert!(measured.octets > 400 * PAGE as u64 / 2, "{}", measured.octets);
    world.assert_idle();
}

#[test]
fn a_page_that_is_cut_anywhere_is_an_error() {
    for octets in [4, 8, 100, 5_000, 20_000] {
        let (call, error) = failure(Workload::ReadDirPlus, Defect::Cut(octets));
        assert_eq!(call, "READDIRPLUS");
        assert!(matches!(error, Error::Garbled(_)), "cut by {octets}: {error}");
    }
}

#[test]
fn a_listing_that_is_not_the_directory_is_an_error() {
    let (call, error) = failure(Workload::ReadDirPlus, Defect::EmptyPage);
    assert!(call == "READDIRPLUS" && error.to_string().contains("empty"), "{error}");
    let (_, error) = failure(Workload::ReadDirPlus, Defect::Short);
    let Error::Listed { names, instead_of } = error else { panic!("{error}") };
    assert!(names > 10 && names < NAMES && instead_of == NAMES, "{error}");
    let (_, error) = failure(Workload::ReadDirPlus, Defect::Endless);
    assert!(error.to_string().contains("more than once"), "{error}");
}

#[test]
fn every_sixteenth_call_of_a_slot_is_a_commit() {
    let mut world = world(Workload::Commit, Defect::None);
    let span = calls(world.now.0, 1_600);
    let measured = sum(&world.run(Pace::Closed, span));
    let commits = world.server.app().commits;
    assert_eq!((measured.calls, measured.failed), (1_600, 0));
    // Slots differ by a few calls.
    assert!((96..=100).contains(&commits), "{commits}");
    assert_eq!(measured.octets, (1_600 - commits) * 64);
    assert!(world.load.generator().written().iter().all(|is_written| *is_written));
    world.assert_idle();
}

#[test]
fn a_server_that_restarts_among_writes_is_named() {
    let (call, error) = failure(Workload::Commit, Defect::Restart(40));
    assert!(matches!(call, "WRITE" | "COMMIT"), "{call}");
    assert!(error.to_string().contains("may be lost (the server restarted"), "{error}");
}
