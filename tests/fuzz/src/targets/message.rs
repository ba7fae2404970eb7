//! One message through all layers: transport header, chunks, RPC header, NFS arguments or results.
//!
//! The properties that hold there are written once, in the tests of the captures.

use std::cell::RefCell;

use stag_protocol::{
    rpc::CallHeader,
    rpcrdma::{
        Body, ChunkLists, Connection, Direction, InlineSize, PrivateData, Setup, Side, Xid, v1,
    },
    xdr::Reader,
};

use super::InputVerdict;
use crate::mutate::parts;

#[allow(dead_code, missing_docs, unreachable_pub, reason = "written for the tests of the captures")]
#[path = "../../../../protocol/tests/captures/receive.rs"]
pub mod receive;

use receive::{Context, Outcome, PULL_MAX, Scratch};

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(scratch());
}

fn scratch() -> Scratch {
    let mut scratch = Scratch::new();
    scratch.zeros_in_names = true;
    scratch
}

/// Content of the first chunk of every message.
static MEMORY: [u8; PULL_MAX as usize] = [0; PULL_MAX as usize];

/// Two parts: a call, and a message that may be its reply. Each begins with four octets: of the
/// second, the last one says which side receives it, and the rest is ignored.
pub fn message(input: &[u8]) -> InputVerdict {
    let mut parts = parts(input);
    let (Some(call), Some(reply)) = (parts.next(), parts.next()) else {
        return InputVerdict::Refused(0);
    };
    let (Some(call), Some(([.., who], message))) = (call.get(4..), reply.split_first_chunk::<4>())
    else {
        return InputVerdict::Refused(1);
    };
    let mut offered = ChunkLists::new();
    let (xid, called) = match v1::parse(call, &mut offered) {
        Ok((header, at)) if header.body == Body::Msg => {
            (header.xid, CallHeader::parse(&mut Reader::new(&call[at..])).ok())
        }
        _ => (Xid(0), None),
    };
    // We never offer more than we have.
    if offered.writes().chain(offered.reply()).any(|chunk| chunk.total() > u64::from(PULL_MAX)) {
        return InputVerdict::Refused(2);
    }
    let called =
        called.map_or((100_003, 3, 0), |call| (call.program, call.version, call.procedure % 22));
    let side = if who & 1 == 0 { Side::Client } else { Side::Server };
    let direction = if who & 2 == 0 { Direction::Forward } else { Direction::Reverse };
    let context = Context { direction, xid, called, offered: &offered, memory: &MEMORY };
    let outcomes = SCRATCH.with_borrow_mut(|scratch| {
        let call = receive::receive(&mut end(Side::Server), call, &context, scratch);
        (call, receive::receive(&mut end(side), message, &context, scratch))
    });
    let class = (format!("{:?}", outcomes.0), format!("{:?}", outcomes.1));
    match outcomes {
        (Outcome::Called(_), _) | (_, Outcome::Called(_) | Outcome::Replied) => {
            InputVerdict::accepted(class)
        }
        _ => InputVerdict::Refused(super::class(class)),
    }
}

fn end(side: Side) -> Connection {
    let offer = PrivateData {
        remote_invalidation: true,
        send: InlineSize::at_most(4096),
        receive: InlineSize::at_most(4096),
    };
    let (calls_max, grant) = match side {
        Side::Client => (128, crate::calls::CLIENT_GRANT),
        Side::Server => (2, crate::calls::SERVER_GRANT),
    };
    Connection::new(Setup { side, own: offer, peer: offer, calls_max, grant })
}
