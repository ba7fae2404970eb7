//! The RPC messages of a capture: over TCP with record marking, and over RDMA by the model of both
//! ends' memory in `calls.rs`.

use stag_protocol::{
    rpc::{MessageType, Xid, record::Fragment},
    rpcrdma::{Body, Direction, Side},
    xdr::Reader,
};

use crate::{
    calls::{self, Call},
    pcap::{Conversation, conversations, segments},
};

/// A call and its reply, each in one piece. Items that travelled in chunks of their own are left
/// out: no checksum covers them.
pub struct Exchange {
    pub call: Vec<u8>,
    pub reply: Vec<u8>,
}

/// All exchanges of a capture, connection by connection, in the order of their replies. A server
/// over RDMA grants `grant` credits.
pub fn exchanges(file: &[u8], grant: u32) -> Vec<Exchange> {
    let all = conversations(&segments(file));
    let is_rdma = |conversation: &Conversation| conversation[0].1.starts_with(b"MPA ID Req Frame");
    all.into_iter()
        .flat_map(|conversation| match is_rdma(&conversation) {
            true => calls::follow(conversation, grant).calls.iter().map(of_rdma).collect(),
            false => of_tcp(&conversation),
        })
        .collect()
}

fn of_rdma(call: &Call) -> Exchange {
    assert!(call.direction == Direction::Forward || call.pulled.is_empty());
    let whole = match call.call.header.body {
        Body::NoMsg => {
            let position = call.call.lists.reads().next().unwrap().position;
            assert_eq!((position.octets(), call.pulled.len()), (0, 1));
            call.pulled[0].clone()
        }
        _ => call.call.inline().to_vec(),
    };
    let reply = match call.reply.header.body {
        Body::NoMsg => call.long_reply.clone(),
        _ => call.reply.inline().to_vec(),
    };
    Exchange { call: whole, reply }
}

/// Messages of one connection: records of both directions, matched by their XIDs.
fn of_tcp(conversation: &Conversation) -> Vec<Exchange> {
    let (mut outstanding, mut done) = (Vec::<(Side, Xid, Vec<u8>)>::new(), Vec::new());
    let mut streams = [Vec::new(), Vec::new()];
    for (from, octets) in conversation {
        let stream = &mut streams[usize::from(*from == Side::Server)];
        stream.extend_from_slice(octets);
        while let Some(record) = take_record(stream) {
            let (xid, kind) = MessageType::peek(&Reader::new(&record)).unwrap();
            if kind == MessageType::Call {
                outstanding.push((*from, xid, record));
                continue;
            }
            let own = |(caller, of, _): &(Side, Xid, Vec<u8>)| caller != from && *of == xid;
            let at = outstanding.iter().position(own).expect("a call of this XID");
            done.push(Exchange { call: outstanding.remove(at).2, reply: record });
        }
    }
    assert!(outstanding.is_empty() && streams.iter().all(Vec::is_empty), "all is whole");
    done
}

/// The first record of a stream, if it is whole.
fn take_record(stream: &mut Vec<u8>) -> Option<Vec<u8>> {
    let (mut record, mut at) = (Vec::new(), 0);
    loop {
        let fragment = Fragment::parse(*stream.get(at..)?.first_chunk()?);
        let end = at + Fragment::LEN + fragment.octets() as usize;
        record.extend_from_slice(stream.get(at + Fragment::LEN..end)?);
        at = end;
        if fragment.last {
            stream.drain(..at);
            return Some(record);
        }
    }
}
