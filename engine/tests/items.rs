//! An app whose results are in several extents, and which keeps arguments where they were pulled.

use stag_echo::{Caller, ECHO_MAX};
use stag_engine::{Answer, AnswerItem, App, Call, Config, Cx, ExtentLists, Shard, Token};
use stag_pools::{Buf, Class, Pool};
use stag_protocol::{
    rpc::{Accepted, ReplyHeader},
    rpcrdma::responder::ReplyPolicy,
    xdr::Writer,
};
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::{Limits, Time};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const SLOT: usize = 1 << 17;

/// Echoes every argument in parts of `part` octets, from where it was pulled when it has memory for
/// it.
struct Keeper {
    pool: Pool,
    lists: ExtentLists,
    part: usize,
    /// Arguments that lay in its own memory, and others.
    kept: (u32, u32),
}

impl App for Keeper {
    type Report = (u32, u32);

    fn report(&self) -> (u32, u32) {
        self.kept
    }

    fn sink(&mut self, len: usize) -> Option<Buf> {
        self.pool.take(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let octets = call.arguments.clone().item(ECHO_MAX).unwrap();
        let own = call.pulled.share(octets);
        *if own.is_some() { &mut self.kept.0 } else { &mut self.kept.1 } += 1;
        let whole = own.unwrap_or_else(|| {
            let mut copy = cx.take(octets.len()).unwrap();
            copy.append(octets).unwrap();
            copy.freeze()
        });
        let mut parts = self.lists.take();
        for from in (0..octets.len()).step_by(self.part) {
            parts.push(whole.slice(from..octets.len().min(from + self.part))).unwrap();
        }
        let mut message = cx.message(64).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        writer.u32(octets.len() as u32).unwrap();
        let position = writer.len();
        assert!(position > ReplyHeader::LEN);
        message.extend(position);
        cx.answer(call.id, Answer { message, item: Some(AnswerItem::new(position, parts)) });
    }
}

fn echo(seed: u64, reply_policy: ReplyPolicy, part: usize, lens: &[usize]) -> (u32, u32) {
    let fabric = Fabric::new(seed, Faults::DELAYS);
    let config = Config { grant: 8, calls_max: 8, reply_policy, ..crate::support::small() };
    let pool = Pool::new(&[Class { slot_len: SLOT, count: 2 }]).unwrap();
    let keeper = Keeper { pool: pool.clone(), lists: ExtentLists::new(2), part, kept: (0, 0) };
    let admit = || Box::new(|_| true) as Box<_>;
    let mut server =
        Shard::new(fabric.end("server", LIMITS), keeper, config.clone(), admit()).unwrap();
    let caller = Caller::with_capacity(64);
    let mut client = Shard::new(fabric.end("client", LIMITS), caller, config, admit()).unwrap();
    let port = server.listen(&Port(0)).unwrap();
    client.connect(&port).unwrap();
    let mut now = Time(0);
    let mut settle = |client: &mut Shard<_, Caller>| {
        crate::support::settle(&fabric, &mut now, &mut server, client);
        (server.buffers_in_use(), server.app().kept)
    };
    settle(&mut client);
    let peer = client.app().peers()[0];
    let mut kept = (0, 0);
    for len in lens {
        let octets: Vec<u8> = (0..*len).map(|i| (i * 31 + i / 251) as u8).collect();
        assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(&octets))));
        let (held, counted) = settle(&mut client);
        let done = client.with_app(|app, _| app.take()).unwrap();
        assert!(done.echo.unwrap().unwrap()[..] == octets[..], "{len} octets in parts of {part}");
        assert_eq!((held, client.buffers_in_use(), pool.taken()), (0, 0, 0));
        kept = counted;
    }
    kept
}

#[test]
fn a_result_in_many_parts_arrives_as_one_inline_and_in_chunks() {
    for (seed, policy) in [(1, ReplyPolicy::Inline), (2, ReplyPolicy::Chunk)] {
        for (part, lens) in [
            (1, &[0, 1, 2, 3, 5, 16, 17][..]),
            (100, &[99, 100, 101, 1024, 1700]),
            (7_001, &[4000, 4096, 70_000, 7_001 * 17]),
            (65_536, &[65_535, 65_536, 65_537, 131_072, 600_001, 1 << 20]),
        ] {
            echo(seed, policy, part, lens);
        }
    }
}

#[test]
fn an_argument_is_kept_where_it_was_pulled() {
    let (kept, copied) = echo(3, ReplyPolicy::Inline, 10_000, &[10, 5_000, 70_001, SLOT]);
    assert_eq!((kept, copied), (3, 1), "ten octets came with the message");
    // What is longer than the app's slots is pulled to the shard's memory: it can be shared, but
    // not for long.
    let (kept, copied) = echo(4, ReplyPolicy::Inline, 65_536, &[SLOT + 1]);
    assert_eq!((kept, copied), (1, 0));
}
