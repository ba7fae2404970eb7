//! Names that one server gave, mapped to the names that another gave for the same things.

use std::collections::BTreeMap;

use stag_protocol::nfs::v4::*;

/// Names that the captured server gave, each with that of ours in its place.
#[derive(Default)]
pub struct Names {
    handles: BTreeMap<Vec<u8>, Vec<u8>>,
    stateids: BTreeMap<[u8; 12], [u8; 12]>,
    session: SessionId,
    client: u64,
    /// Cookie and verifier with which the listing of a directory goes on, at ours; none at its end.
    pub listed: Option<(u64, [u8; 8])>,
}

impl Names {
    fn stateid(&self, captured: Stateid) -> Stateid {
        match self.stateids.get(&captured.other) {
            Some(other) if *other == Stateid::ANONYMOUS.other => Stateid::ANONYMOUS,
            Some(other) => Stateid { other: *other, ..captured },
            None => captured,
        }
    }

    /// A request as it has to be for our server.
    pub fn translated<'a>(&'a self, request: &Request<'a>) -> Request<'a> {
        let mut request = request.clone();
        match &mut request {
            Request::Sequence(args) => args.session = self.session,
            Request::DestroySession(session) => *session = self.session,
            Request::CreateSession(args) => args.client_id = self.client,
            Request::DestroyClientid(client) => *client = self.client,
            Request::PutFh(handle) => {
                let ours = self.handles.get(handle.0);
                *handle = Text(ours.expect("the capture says where the handle is from"));
            }
            Request::Read(args) => args.stateid = self.stateid(args.stateid),
            Request::Write(args) => args.stateid = self.stateid(args.stateid),
            Request::SetAttr(args) => args.stateid = self.stateid(args.stateid),
            Request::Close(args) => args.open = self.stateid(args.open),
            Request::LockU(args) => args.stateid = self.stateid(args.stateid),
            Request::FreeStateid(stateid) => *stateid = self.stateid(*stateid),
            Request::Lock(args) => match &mut args.locker {
                Locker::New(new) => new.open = self.stateid(new.open),
                Locker::Known(known) => known.stateid = self.stateid(known.stateid),
            },
            // There is none here.
            Request::Open(args) if matches!(args.claim, OpenClaim::DelegCurFh(_)) => {
                args.claim = OpenClaim::Fh;
            }
            Request::ReadDir(args) if args.cookie != 0 => {
                let next = self.listed.expect("our pages are no longer than the captured ones");
                (args.cookie, args.verifier) = next;
            }
            _ => {}
        }
        request
    }

    /// Learns from two answers to one request.
    pub fn learn(&mut self, captured: &Answer<'_>, ours: &Answer<'_>) {
        match (captured, ours) {
            (Answer::GetFh(Ok(theirs)), Answer::GetFh(Ok(handle))) => {
                self.handles.insert(theirs.0.to_vec(), handle.0.to_vec());
            }
            (Answer::ExchangeId(Ok(_)), Answer::ExchangeId(Ok(ok))) => self.client = ok.client_id,
            (Answer::CreateSession(Ok(_)), Answer::CreateSession(Ok(ok))) => {
                self.session = ok.session;
            }
            (Answer::Open(Ok(theirs)), Answer::Open(Ok(ok))) => {
                self.learn_stateid(theirs.stateid, ok.stateid);
                // There are none here: what was read under one is read without any.
                if let OpenDelegation::Read(held) = &theirs.delegation {
                    self.stateids.insert(held.stateid.other, Stateid::ANONYMOUS.other);
                }
            }
            (Answer::Lock(Ok(theirs)), Answer::Lock(Ok(ours)))
            | (Answer::LockU(Ok(theirs)), Answer::LockU(Ok(ours))) => {
                self.learn_stateid(*theirs, *ours);
            }
            (Answer::ReadDir(Ok(theirs)), Answer::ReadDir(Ok(ok))) => {
                let (theirs, ours) = (handles_of(theirs), handles_of(ok));
                for (name, handle) in theirs {
                    if let Some(ours) = ours.get(&name) {
                        self.handles.insert(handle, ours.clone());
                    }
                }
                let last = ok.entries.clone().last().map_or(0, |entry| entry.cookie);
                self.listed = (!ok.eof).then_some((last, ok.verifier));
            }
            _ => {}
        }
    }

    fn learn_stateid(&mut self, theirs: Stateid, ours: Stateid) {
        self.stateids.insert(theirs.other, ours.other);
    }
}

/// The handles in a listing, by name.
fn handles_of(listing: &ReadDir4Ok<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = listing.entries.clone().filter_map(|entry| {
        let handle = entry.attributes.values().unwrap().filehandle?;
        Some((entry.name.0.to_vec(), handle.0.to_vec()))
    });
    entries.collect()
}
