//! The calling side: it makes calls of NFS and keeps their outcomes.

use stag_engine::{
    App, Call as Inbound, CallFault, Cause, Cx, Outcome, PeerId, Request, RequestItem, Token,
};
use stag_protocol::{
    nfs::{
        Bulk,
        binding::result_len_max,
        v3::{Call, WriteArgs},
    },
    rpc::{Accepted, Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader},
    rpcrdma::Xid,
    xdr::{Writer, pad},
};
use std::{collections::VecDeque, time::Duration};

/// Time that a call may take, all reconnections included: longer than any call here takes.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Default)]
pub struct Requester {
    /// The whole replies, with their items in place.
    done: VecDeque<(Token, Result<Vec<u8>, CallFault>)>,
    /// Connections that ended or could not be made.
    losses: u64,
    /// The gateway may call back: it is refused.
    refuses_calls: bool,
}

impl Requester {
    pub fn take(&mut self) -> Option<(Token, Result<Vec<u8>, CallFault>)> {
        self.done.pop_front()
    }

    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Refuses calls of the gateway, which else makes none.
    #[allow(dead_code)]
    pub const fn refuse_calls(&mut self) {
        self.refuses_calls = true;
    }
}

impl App for Requester {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Inbound<'_>) {
        assert!(self.refuses_calls, "the gateway calls nobody");
        cx.refuse(&call, Accepted::ProgUnavail);
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let reply = outcome.reply.map(|reply| {
            let mut reply = reply.to_vec();
            if let Some(item) = &outcome.result {
                reply.extend_from_slice(item);
                reply.extend(std::iter::repeat_n(0, pad(item.len())));
            }
            reply
        });
        self.done.push_back((outcome.token, reply));
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _cause: Cause) {
        self.losses += 1;
    }
}

/// A call as the engine takes it: the octets of a WRITE and the room for those of a READ are items.
pub fn request(cx: &Cx<'_>, token: Token, call: &Call<'_>) -> Request {
    let (call, item) = match *call {
        Call::Write(args) => {
            let data = Bulk::Apart(args.data.len() as u32);
            (Call::Write(WriteArgs { data, ..args }), args.data.octets())
        }
        call => (call, None),
    };
    let gids = Gids::new(&[1000]).unwrap();
    let sys = AuthSys { stamp: 1, machine_name: b"client", uid: 1000, gid: 1000, gids };
    let header = CallHeader {
        xid: Xid(0),
        program: 100_003,
        version: 3,
        procedure: call.procedure().number(),
        credential: Credential::Sys(sys),
        verifier: Auth::NONE,
    };
    let mut message = cx.message(1_024).unwrap();
    let mut writer = Writer::new(message.spare_mut());
    header.emit(&mut writer).unwrap();
    call.emit(&mut writer).unwrap();
    let position = writer.len();
    message.extend(position);
    let item = item.map(|item| {
        let mut octets = cx.take(item.len()).unwrap();
        octets.append(item).unwrap();
        RequestItem { position, octets }
    });
    let len = result_len_max(&call);
    let result = (len.item > 0).then(|| cx.room(len.item).unwrap());
    let reply_max = (ReplyHeader::LEN + len.inline).max(ReplyHeader::REFUSAL_LEN_MAX);
    Request { message, item, reply_max, result, timeout: PATIENCE, token }
}
