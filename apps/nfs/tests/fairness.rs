//! Shares of the core next to a client that makes one kind of operation as fast as it can: each
//! operation of versions 3 and 4, over memory and over a directory. The operations are real, and
//! the time of the core is virtual: each operation takes a price that is fixed. Every measurement
//! has a server and a store of its own, so it gives the same number in every run.

mod later;
mod units;
mod world;

use crate::gateway::{
    client as v3,
    nfs4::client::{Reply4, encode, open_args, session_args, write_args},
};
use stag_engine::{App, Token};
use stag_nfs_store::Store;
use stag_protocol::nfs::{
    Bulk,
    v3::{Call as Call3, FileHandle, GetAttrArgs, Procedure},
    v4::*,
};
use std::collections::BTreeSet;
use units::{Unit, calls, encode3, units};
use world::{World, on_directory, on_memory, with_another_shard, with_helpers};

/// Clients next to the one.
const CLIENTS: usize = 15;
/// Calls that each client has outstanding, and those of the one.
const DEPTH: usize = 8;
const SLOTS: usize = 8;
/// Operations of a compound in addition to SEQUENCE and PUTFH, at most.
const OPERATIONS: usize = 14;
/// Nanoseconds of the core for a call of a client, and for a pass.
const PRICE: u64 = 2_000;
const PASS: u64 = 100;
/// Virtual time for which the clients call before the one begins, and from there until the
/// measurement.
const ALONE: u64 = 1_000_000;
const BEFORE: u64 = 2_000_000;
/// Prices of the operation in the table, in nanoseconds.
const PRICES: [u64; 2] = [600_000, 5_000];

/// The session of the one, and what its operations are about.
struct Attack {
    session: SessionId,
    /// A client ID without a session.
    client: u64,
    sequences: [u32; SLOTS],
    root: Vec<u8>,
    file: Vec<u8>,
    open: Stateid,
    lock: Stateid,
    /// Another file, and a symbolic link.
    other: Vec<u8>,
    other_open: Stateid,
    link: Vec<u8>,
    /// Stateids that it has.
    states: Vec<Stateid>,
}

fn sequence(session: SessionId, slot: usize, sequence: u32) -> Request<'static> {
    let (slot, highest_slot) = (slot as u32, SLOTS as u32 - 1);
    Request::Sequence(SequenceArgs { session, sequence, slot, highest_slot, cache_this: false })
}

fn handle(octets: &[u8]) -> Request<'_> {
    Request::PutFh(Text(octets))
}

impl Attack {
    fn new<S: Store>(world: &mut World<S>) -> Self {
        let (client, _) = Self::introduce(world, b"another");
        let (id, sequence) = Self::introduce(world, b"the one");
        let made = world.exchange(&[Request::CreateSession(session_args(id, sequence))]);
        let Answer::CreateSession(Ok(made)) = made.last() else { panic!("{made:?}") };
        let mut this = Self {
            session: made.session,
            client,
            sequences: [0; SLOTS],
            root: Vec::new(),
            file: Vec::new(),
            open: Stateid::ANONYMOUS,
            lock: Stateid::ANONYMOUS,
            other: Vec::new(),
            other_open: Stateid::ANONYMOUS,
            link: Vec::new(),
            states: Vec::new(),
        };
        assert_eq!(this.run(world, vec![Request::ReclaimComplete(false)]).status(), Status4::Ok);
        let name = if world.home.is_some() { &b"data"[..] } else { b"memory" };
        let export = Request::Lookup(Text(name));
        let walk = vec![Request::PutRootFh(()), export, Request::GetFh(())];
        let root = this.run(world, walk);
        let Answer::GetFh(Ok(found)) = root.last() else { panic!("{root:?}") };
        this.root = found.0.to_vec();
        let root = this.root.clone();
        for name in [&b"f"[..], b"other", b"f3"] {
            let open = Request::Open(open_args(name, share::BOTH, true));
            let opened = this.run(world, vec![handle(&root), open, Request::GetFh(())]);
            let answers = opened.answers();
            let [.., Answer::Open(Ok(open)), Answer::GetFh(Ok(found))] = &answers[..] else {
                panic!("{opened:?}")
            };
            // Whatever its sequence is when it is used.
            let open = Stateid { seqid: 0, ..open.stateid };
            let found = found.0.to_vec();
            let write = write_args(open, 0, &[7; 2_000]);
            let written = this.run(world, vec![handle(&found), write]);
            assert_eq!(written.status(), Status4::Ok);
            match name {
                b"f" => (this.open, this.file) = (open, found),
                b"other" => (this.other_open, this.other) = (open, found),
                _ => {}
            }
        }
        let (open, file) = (this.open, this.file.clone());
        let owner = StateOwner { client_id: 0, owner: Text(b"one") };
        let new = NewLockOwner { open_seqid: 0, open, lock_seqid: 0, owner };
        let locker = Locker::New(new);
        let (kind, reclaim, offset, length) = (LockType::Write, false, 0, 10);
        let lock = Request::Lock(Lock4Args { kind, reclaim, offset, length, locker });
        let locked = this.run(world, vec![handle(&file), lock]);
        let Answer::Lock(Ok(lock)) = locked.last() else { panic!("{locked:?}") };
        this.lock = Stateid { seqid: 0, ..lock };
        this.states = vec![this.open, this.lock];
        let kind = CreateKind::Link(Bulk::Inline(b"f"));
        let attributes = RawAttributes::default();
        let link = Request::Create(Create4Args { kind, name: Text(b"link"), attributes });
        let linked = this.run(world, vec![handle(&root), link, Request::GetFh(())]);
        let Answer::GetFh(Ok(found)) = linked.last() else { panic!("{linked:?}") };
        this.link = found.0.to_vec();
        this
    }

    /// EXCHANGE_ID: client ID, and the sequence ID for CREATE_SESSION.
    fn introduce<S: Store>(world: &mut World<S>, owner: &[u8]) -> (u64, u32) {
        let client = ClientOwner { verifier: [1; 8], owner: Text(owner) };
        let protection = StateProtection::None;
        let args = ExchangeIdArgs { client, flags: 0, protection, implementation: None };
        let known = world.exchange(&[Request::ExchangeId(args)]);
        let Answer::ExchangeId(Ok(known)) = known.last() else { panic!("{known:?}") };
        (known.client_id, known.sequence)
    }

    /// A compound after a SEQUENCE of the first slot.
    fn run<S: Store>(&mut self, world: &mut World<S>, requests: Vec<Request<'_>>) -> Reply4 {
        self.sequences[0] += 1;
        let first = sequence(self.session, 0, self.sequences[0]);
        world.exchange(&[vec![first], requests].concat())
    }

    /// The next compound in a slot: as many repetitions of the unit as there is room.
    fn compound(&mut self, slot: usize, which: usize) -> Vec<u8> {
        let number = self.sequences[slot] + 1;
        let unit = units(self).swap_remove(which);
        if unit.is_alone {
            return encode(v3::user(), 2, &unit.requests);
        }
        let first = sequence(self.session, slot, number);
        let times = OPERATIONS / unit.requests.len().max(1);
        let repeated = unit.requests.iter().cycle().take(unit.requests.len() * times);
        let head = [first, handle(&self.file)];
        let all: Vec<_> = head.into_iter().chain(repeated.cloned()).collect();
        let octets = encode(v3::user(), 2, &all);
        self.sequences[slot] = number;
        octets
    }
}

/// A row of the table.
#[derive(Clone, Copy)]
enum Row {
    /// The operations of version 4 at this place of [`units`].
    Unit(usize),
    /// The call of version 3 at this place of [`calls`].
    Call(usize),
}

impl Row {
    fn name(self, attack: &Attack) -> String {
        match self {
            Self::Unit(place) => units(attack)[place].name.to_owned(),
            Self::Call(place) => calls(attack).swap_remove(place).0,
        }
    }

    /// Returns true if what it is answered depends on the file system of a directory.
    fn may_lack_support(self, attack: &Attack) -> bool {
        match self {
            Self::Unit(place) => units(attack)[place].may.contains(&Status4::NotSupp),
            Self::Call(_) => false,
        }
    }

    /// The next call in a slot.
    fn call(self, attack: &mut Attack, slot: usize) -> Vec<u8> {
        match self {
            Self::Unit(place) => attack.compound(slot, place),
            Self::Call(place) => encode3(&calls(attack)[place].1),
        }
    }

    /// Makes one call, which succeeds.
    fn try_out<S: Store>(self, world: &mut World<S>, attack: &mut Attack) {
        let octets = self.call(attack, 0);
        world.send(0, 0, &octets);
        let reply = loop {
            match world.take(0) {
                Some((_, reply)) => break reply,
                None => world.step(),
            }
        };
        if let Self::Unit(place) = self {
            let Unit { name, may, .. } = units(attack).swap_remove(place);
            let reply = Reply4(reply[24..].to_vec());
            let status = reply.status();
            assert!(
                status == Status4::Ok || may.contains(&status),
                "{name}: {:?}",
                reply.answers()
            );
        }
    }
}

/// Calls that the one makes, and the price of an operation.
type Load = Option<(Row, u64)>;

/// Time that is measured next to operations of a price: 19.2 ms, or two rounds if these are longer.
/// In a round the one has one operation, and fifteen others have as much time each.
fn measured(price: u64) -> u64 {
    2 * (CLIENTS as u64 + 1) * price.max(PRICES[0])
}

/// Has the clients of a new server call all the time, and the one as well: replies to the clients
/// in the measured time.
fn replies<S: Store>(mut world: World<S>, load: Load, measured: u64) -> u64 {
    let mut attack = Attack::new(&mut world);
    if let Some((row, price)) = load {
        row.try_out(&mut world, &mut attack);
        world.server.with_app(|app, _| app.price = price);
    }
    let root = FileHandle::new(&attack.root).unwrap();
    let look = encode3(&Call3::GetAttr(GetAttrArgs { object: root }));
    for client in 1..=CLIENTS {
        (0..DEPTH).for_each(|_| world.send(client, 0, &look));
    }
    let starts = world.time.at().0 + ALONE;
    let begins = starts + BEFORE;
    let mut idle_slots: Vec<_> = (0..SLOTS).collect();
    let (mut replies, mut of_it) = (0, 0);
    while world.time.at().0 < begins + measured {
        let now = world.time.at().0;
        let counts = u64::from(now >= begins);
        if let Some((row, _)) = load.filter(|_| now >= starts) {
            for slot in idle_slots.drain(..) {
                let octets = row.call(&mut attack, slot);
                world.send(0, slot as u64, &octets);
            }
        }
        world.step();
        for client in 1..=CLIENTS {
            while world.take(client).is_some() {
                replies += counts;
                world.send(client, 0, &look);
            }
        }
        while let Some((Token(slot), _)) = world.take(0) {
            of_it += counts;
            idle_slots.push(slot as usize);
        }
    }
    if let Some((_, price)) = load {
        // A compound takes time; its share of service shows in the ratio.
        assert!(of_it > 0 || price > 5_000, "it is served, too");
    }
    replies
}

/// The share of the clients in the time that is measured at each of these prices.
fn shares<S: Store>(fresh: fn() -> World<S>, prices: &[u64]) -> Vec<(u64, f64)> {
    let share = |&price: &u64| {
        let alone = replies(fresh(), None, measured(price));
        assert!(alone > measured(price) / PRICE / 2, "the core is busy: {alone}");
        (price, alone as f64 * CLIENTS as f64 / (CLIENTS + 1) as f64)
    };
    prices.iter().map(share).collect()
}

/// The ratio between what the clients keep next to a row and their share, at each price.
fn ratios<S: Store>(fresh: fn() -> World<S>, row: Row, shares: &[(u64, f64)]) -> Vec<f64> {
    let kept = |price| replies(fresh(), Some((row, price)), measured(price)) as f64;
    shares.iter().map(|&(price, share)| kept(price) / share).collect()
}

/// All prices in continuous integration, and `few` of them elsewhere.
fn some<T>(all: &[T], few: usize) -> &[T] {
    if std::env::var_os("CI").is_some() { all } else { &all[..few] }
}

/// The row of this name.
fn row_of(name: &str) -> Row {
    let attack = Attack::new(&mut on_memory());
    Row::Unit(units(&attack).iter().position(|unit| unit.name == name).unwrap())
}

/// A row of the table in docs/security.md, in one column.
struct Measured {
    name: String,
    ratios: Vec<f64>,
    may_lack_support: bool,
}

/// The rows of a store.
fn table<S: Store>(fresh: fn() -> World<S>) -> Vec<Measured> {
    let attack = Attack::new(&mut fresh());
    let of_four = (0..units(&attack).len()).map(Row::Unit);
    let of_three = (0..calls(&attack).len()).map(Row::Call);
    let shares = shares(fresh, some(&PRICES, 1));
    let measured = |row: Row| Measured {
        name: row.name(&attack),
        ratios: ratios(fresh, row, &shares),
        may_lack_support: row.may_lack_support(&attack),
    };
    of_four.chain(of_three).map(measured).collect()
}

/// Requires that each ratio is at least 0.9, and is the one in this column of the table in
/// docs/security.md; there it may differ where the file system may lack the operation.
fn assert_fair(column: usize, rows: &[Measured]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
    let page = std::fs::read_to_string(path).unwrap();
    let table = page.lines().skip_while(|line| !line.starts_with(TABLE)).skip(2);
    let printed: Vec<Vec<_>> = table
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut wrong = Vec::new();
    for (place, Measured { name, ratios, may_lack_support }) in rows.iter().enumerate() {
        let cell: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let cell = cell.join(", ");
        println!("| {name} | {column} | {cell} |");
        let may_differ = column == ON_DIRECTORY && *may_lack_support;
        let is_printed = printed.get(place).is_some_and(|cells| {
            cells[0] == name && (may_differ || cells[column].starts_with(&cell))
        });
        if !is_printed || ratios.iter().any(|ratio| *ratio < 0.9) {
            wrong.push(format!("{name}: {cell}"));
        }
    }
    assert!(wrong.is_empty(), "unfair, or not as in docs/security.md, column {column}: {wrong:?}");
    assert_eq!(printed.len(), rows.len(), "rows in docs/security.md");
}

/// The beginning of that table.
const TABLE: &str = "| operations of a client | other clients keep, on memory |";
/// Columns of it.
const ON_MEMORY: usize = 1;
const ON_DIRECTORY: usize = 2;
const WITH_HELPERS: usize = 3;

#[test]
fn fifteen_clients_keep_nine_tenths_of_their_share_next_to_any_operation_on_memory() {
    assert_fair(ON_MEMORY, &table(on_memory));
}

#[test]
fn fifteen_clients_keep_nine_tenths_of_their_share_next_to_any_operation_on_a_directory() {
    assert_fair(ON_DIRECTORY, &table(on_directory));
}

#[test]
fn fifteen_clients_keep_nine_tenths_of_their_share_next_to_changes_that_helpers_carry_out() {
    assert_fair(WITH_HELPERS, &table(with_helpers));
}

#[test]
fn each_operation_that_is_served_has_a_row() {
    let attack = Attack::new(&mut on_memory());
    let all = units(&attack).into_iter().flat_map(|unit| unit.requests);
    let mut rows: BTreeSet<_> = all.map(|request| request.operation()).collect();
    rows.insert(Operation::Sequence);
    let served = Operation::ALL.iter().copied().filter(|operation| operation.is_served());
    assert_eq!(rows, served.collect());
    let rows: Vec<_> = calls(&attack).iter().map(|(_, call)| call.procedure()).collect();
    assert_eq!(rows, Procedure::ALL);
}

#[test]
fn next_to_compounds_that_another_shard_forwards_the_clients_keep_their_share() {
    let shares = shares(with_another_shard, some(&PRICES, 1));
    for name in ["GETATTR", "OPEN", "LOCK, LOCKU", "READDIR", "WRITE"] {
        let ratios = ratios(with_another_shard, row_of(name), &shares);
        println!("{name}: {ratios:.2?}");
        assert!(ratios.iter().all(|ratio| *ratio >= 0.9), "{name}: {ratios:?}");
    }
}

/// Prices between those of the table, and beyond them. A turn is 100 µs.
const GRID: [u64; 14] = [
    101_000, 1_000, 2_000_000, 99_000, 2_000, 10_000, 20_000, 40_000, 60_000, 80_000, 150_000,
    250_000, 1_000_000, 4_000_000,
];

#[test]
fn at_any_price_of_an_operation_the_clients_keep_their_share() {
    let prices = some(&GRID, 3);
    let ratios = ratios(on_memory, row_of("GETATTR"), &shares(on_memory, prices));
    for (price, ratio) in prices.iter().zip(&ratios) {
        println!("{price} ns: {ratio:.2}");
    }
    assert!(ratios.iter().all(|ratio| *ratio >= 0.9), "{ratios:.2?}");
}

/// A compound whose every operation is a slice of its own, next to a client that keeps the core
/// measured: its replies.
fn in_slices<S: Store>(mut world: World<S>, price: u64) -> Vec<String> {
    let mut attack = Attack::new(&mut world);
    let root = FileHandle::new(&attack.root).unwrap();
    let look = encode3(&Call3::GetAttr(GetAttrArgs { object: root }));
    let ask = |world: &mut World<S>, octets: &[u8]| {
        world.send(1, 0, &look);
        world.send(0, 0, octets);
        let mut passes = 0;
        loop {
            passes += 1;
            assert!(passes < 1_000_000, "a compound that was put aside goes on");
            if world.take(1).is_some() {
                world.send(1, 0, &look);
            }
            if let Some((_, reply)) = world.take(0) {
                return reply;
            }
            world.step();
        }
    };
    world.server.with_app(|app, _| app.price = price);
    let (file, own) = (attack.file.clone(), attack.root.clone());
    let (open, size) = (attack.open, Request::GetAttr(Bitmap::of([4])));
    let mut replies = Vec::new();
    for round in 0..4_u8 {
        attack.sequences[0] += 1;
        let first = SequenceArgs {
            session: attack.session,
            sequence: attack.sequences[0],
            slot: 0,
            highest_slot: 7,
            cache_this: true,
        };
        let part = [round; 100];
        let compound = encode(
            v3::user(),
            2,
            &[
                Request::Sequence(first),
                handle(&file),
                write_args(open, 0, &part),
                size.clone(),
                write_args(open, 50, &part[..60]),
                Request::Read(Read4Args { stateid: open, offset: 0, count: 120 }),
                handle(&own),
                Request::Lookup(Text(b"f")),
                size.clone(),
                Request::Lookup(Text(b"nothing")),
                size.clone(),
            ],
        );
        let reply = ask(&mut world, &compound);
        // Sent again, it gets the reply that it got.
        assert_eq!(ask(&mut world, &compound)[4..], reply[4..]);
        replies.extend(Reply4(reply[24..].to_vec()).answers().iter().skip(1).map(told));
    }
    let suspended = world.server.app().gateway.report().nfs4.suspensions;
    assert_eq!(suspended, 0, "nothing waits but for its turn");
    let slices = world.server.app().slices;
    assert_eq!(slices >= 4 * 4, price > 0, "{slices} slices");
    replies
}

/// An answer without what differs from server to server.
fn told(answer: &Answer<'_>) -> String {
    match answer {
        Answer::Write(Ok(done)) => format!("{} octets are written", done.count),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_compound_that_goes_on_in_slices_gets_the_reply_of_one_that_goes_on_at_once() {
    let at_once = in_slices(on_memory(), 0);
    assert_eq!(in_slices(on_memory(), 300_000), at_once);
    let at_once = in_slices(on_directory(), 0);
    assert_eq!(in_slices(on_directory(), 300_000), at_once);
}
