//! An app that keeps the outcomes of its calls, and calls of any shape.

use super::{AtClient, config, pattern};
use stag_engine::{App, Call, CallFault, Cx, Outcome, Request, RequestItem, Room, Token};
use stag_pools::Buf;
use stag_protocol::rpcrdma::{ChunkLists, Header};
use stag_sim::Port;
use stag_verbs::Provider;
use std::time::Duration;

/// An app that keeps what its calls end with.
#[derive(Default)]
pub struct Keeper(pub Vec<Kept>);

pub struct Kept {
    pub reply: Result<Vec<u8>, CallFault>,
    pub item: Option<Vec<u8>>,
    pub result: Option<Vec<u8>>,
}

impl App for Keeper {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, _: &mut Cx<'_>, _: Call<'_>) {}

    fn on_reply(&mut self, _: &mut Cx<'_>, outcome: Outcome<'_>) {
        let reply = outcome.reply.map(<[u8]>::to_vec);
        let octets = |buf: Option<Buf>| buf.map(|buf| buf.to_vec());
        self.0.push(Kept {
            reply,
            item: octets(outcome.item),
            result: octets(outcome.result.map(Room::into_buf)),
        });
    }
}

/// A call of our requester: `head` octets in front of its item, the item, and the longest reply.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub head: usize,
    pub item: Option<&'a [u8]>,
    pub reply_max: usize,
    pub result_max: usize,
}

/// Makes the call, and returns what arrives at the other end.
pub fn ask<P: Provider<Address = Port>>(
    at: &mut AtClient<Keeper, P>,
    wanted: Wanted<'_>,
) -> (Header, ChunkLists, Vec<u8>) {
    start(at, wanted);
    at.next_call()
}

/// Makes the call.
pub fn start<P: Provider<Address = Port>>(at: &mut AtClient<Keeper, P>, wanted: Wanted<'_>) {
    let peer = at.peer;
    at.shard.with_app(|_, cx| {
        let request = request(cx, wanted);
        cx.call(peer, request);
    });
}

/// The call.
pub fn request(cx: &Cx<'_>, wanted: Wanted<'_>) -> Request {
    let Wanted { head, item, reply_max, result_max } = wanted;
    let mut message = cx.message(head).unwrap();
    message.append(&pattern(head)).unwrap();
    let item = item.map(|octets| {
        let mut buf = cx.take(octets.len()).unwrap();
        buf.append(octets).unwrap();
        RequestItem { position: head, octets: buf }
    });
    let result = (result_max > 0).then(|| cx.room(result_max).unwrap());
    Request { message, item, reply_max, result, timeout: Duration::from_secs(10), token: Token(0) }
}

/// A requester of version 1.
pub fn requester() -> AtClient<Keeper> {
    AtClient::new(Keeper::default(), config())
}
