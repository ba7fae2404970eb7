//! Shares of a core in time, where what costs is to send: RDMA Writes of 64 KiB to one client, next
//! to fifteen whose calls have no data. The core's time is virtual.

use crate::support::{
    Raw,
    attacks::{CLIENTS, GRANT, Sender, server_config, server_limits},
    message,
    refusing::{Refusing, SentBy},
    rpc,
};
use stag_engine::{Answer, AnswerItem, App, Call, Config, Cx, ExtentLists, Extents, Meter, Shard};
use stag_pools::{Access, Class, Pool};
use stag_protocol::{
    rpc::Accepted,
    rpcrdma::{ChunkLists, Segment},
    xdr::Writer,
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Provider as _, Time};
use std::{
    cell::Cell,
    rc::Rc,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
};

/// Virtual time that is measured.
const MEASURED: u64 = 100_000_000;
/// Octets of the data.
const DATA: usize = 64 << 10;
/// Procedures with and without data.
const WITH_DATA: u32 = 2;
const PLAIN: u32 = 1;
/// Nanoseconds of a call, and of each event beyond it.
const CALL: u64 = 2_000;
const EVENT: u64 = 500;
const ONE_WAY: Faults =
    Faults { delay: 10_000..10_001, completion_delay: 100..101, ..Faults::NONE };

#[derive(Debug, Default)]
struct VirtualCore(AtomicU64);

impl VirtualCore {
    fn spend(&self, nanoseconds: u64) {
        self.0.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Meter for VirtualCore {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

/// Answers every call after the same time, with data if it is asked for.
struct WithData {
    time: Arc<VirtualCore>,
    data: Extents,
    lists: ExtentLists,
}

impl App for WithData {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.time.spend(CALL);
        if call.header.procedure == PLAIN {
            cx.answer_short(call.id, call.header.reply(Accepted::Success), |_| Ok(())).unwrap();
            return;
        }
        let mut message = cx.message(64).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        writer.u32(DATA as u32).unwrap();
        let position = writer.len();
        message.extend(position);
        let mut parts = self.lists.take();
        self.data.iter().for_each(|part| parts.push(part.clone()).unwrap());
        cx.answer(call.id, Answer { message, item: Some(AnswerItem::new(position, parts)) });
    }
}

/// A client of calls with data, whose window stays open: it does not announce that the server may
/// invalidate it.
struct Reader {
    raw: Raw,
    target: Option<Segment>,
    outstanding: usize,
    xid: u32,
    answered: u64,
}

impl Reader {
    fn new(fabric: &Fabric, port: Port) -> Self {
        let mut raw = Raw::new(fabric);
        let mut says = Raw::private_data();
        says[5] = 0;
        raw.qp = raw.end.connect(&port, &says).ok();
        Self { raw, target: None, outstanding: 0, xid: 0, answered: 0 }
    }

    fn turn(&mut self, now: Time) -> bool {
        let mut worked = self.raw.poll(now);
        assert_eq!(self.raw.ended, None, "the server keeps the connection");
        let answers = self.raw.received.len();
        self.raw.received.clear();
        self.answered += answers as u64;
        self.outstanding -= answers;
        if self.target.is_none() && now.0 > 1_000_000 {
            self.target = Some(self.raw.window(&[0; DATA], Access::RemoteWrite));
        }
        let Some(target) = self.target else { return worked };
        while self.outstanding < GRANT {
            self.xid += 1;
            let mut lists = ChunkLists::new();
            lists.set_only_write(target);
            self.raw.send(&message(self.xid, &lists, &rpc(self.xid, WITH_DATA, &[])), None);
            self.outstanding += 1;
            worked = true;
        }
        worked
    }
}

fn plain(xid: u32) -> Vec<u8> {
    message(xid, &ChunkLists::new(), &rpc(xid, PLAIN, &[]))
}

/// Calls of the clients in the measured time, and of a reader next to them if `has_reader`, where
/// the data of a call takes `per_write` nanoseconds of a doorbell or a poll.
fn measure(has_reader: bool, per_write: u64, sent_by: SentBy) -> (u64, u64) {
    let (fabric, time) = (Fabric::new(5, ONE_WAY), Arc::new(VirtualCore::default()));
    let config = Config { meter: Some(Arc::clone(&time) as Arc<dyn Meter>), ..server_config() };
    let pool = Pool::new(&[Class { slot_len: DATA, count: 1 }]).unwrap();
    let mut data = pool.take(DATA).unwrap();
    data.extend(DATA);
    let lists = ExtentLists::new(1);
    let mut parts = lists.take();
    parts.push(data.freeze()).unwrap();
    let app = WithData { time: Arc::clone(&time), data: parts, lists: ExtentLists::new(64) };
    let spent = Rc::new(Cell::new(0));
    let (of_ring, noted) = (Arc::clone(&time), Rc::clone(&spent));
    let end = Refusing::spending(fabric.end("server", server_limits()), sent_by, move |octets| {
        let nanoseconds = octets * per_write / DATA as u64;
        noted.set(noted.get() + nanoseconds);
        of_ring.spend(nanoseconds);
    });
    let mut server = Shard::new(end, app, config, Box::new(|_| true)).unwrap();
    let port = server.listen(&Port(0)).unwrap();
    let mut clients: Vec<Sender<Sim>> = (0..CLIENTS)
        .map(|_| Sender::new(Raw::new(&fabric), port, (plain, GRANT, u64::MAX)))
        .collect();
    let mut reader = has_reader.then(|| Reader::new(&fabric, port));
    let answered = |clients: &[Sender<Sim>]| clients.iter().map(|it| it.answered).sum::<u64>();
    let mut before = None;
    while time.now().0 < MEASURED * 5 / 4 {
        if before.is_none() && time.now().0 >= MEASURED / 4 {
            before = Some((answered(&clients), reader.as_ref().map_or(0, |it| it.answered)));
        }
        let mut worked = server.pass(time.now());
        for client in &mut clients {
            worked |= client.turn(time.now());
        }
        if let Some(reader) = &mut reader {
            worked |= reader.turn(time.now());
        }
        if worked {
            time.spend(EVENT);
        } else {
            let due = fabric.next_due().map_or(u64::MAX, |due| due.0);
            time.spend(due.saturating_sub(time.now().0).clamp(1, 10_000));
        }
    }
    assert!(!has_reader || per_write == 0 || spent.get() > 0, "sending took its time");
    let (clients_before, reader_before) = before.unwrap();
    let of_reader = reader.map_or(0, |it| it.answered) - reader_before;
    (answered(&clients) - clients_before, of_reader)
}

#[test]
fn fifteen_clients_keep_nine_tenths_of_their_share_next_to_one_that_is_sent_much() {
    keep_nine_tenths(SentBy::Doorbell);
}

#[test]
fn they_also_keep_it_when_polls_send_what_it_is_slow_to_take() {
    keep_nine_tenths(SentBy::Poll);
}

fn keep_nine_tenths(sent_by: SentBy) {
    let (alone, _) = measure(false, 0, sent_by);
    let share = alone as f64 * CLIENTS as f64 / (CLIENTS + 1) as f64;
    let ratios: Vec<f64> = [0, 10_000, 100_000]
        .into_iter()
        .map(|per_write| {
            let (calls, of_reader) = measure(true, per_write, sent_by);
            assert!(of_reader > 0, "{per_write} ns: the reader is served, too");
            let ratio = calls as f64 / share;
            println!("{per_write} ns: the clients keep {ratio:.3}; {of_reader} calls with data");
            // The reader has its own share, too.
            let took = of_reader * (CALL + per_write) * (CLIENTS as u64 + 1);
            let of_own = took as f64 / MEASURED as f64;
            assert!((0.8..1.25).contains(&of_own), "{per_write} ns: {of_own:.2} of its share");
            ratio
        })
        .collect();
    assert!(ratios.iter().all(|ratio| (0.9..1.05).contains(ratio)), "{ratios:?}");
}
