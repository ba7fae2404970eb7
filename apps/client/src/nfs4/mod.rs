//! Calls by NFS version 4.1 and 4.2 (RFC 8881, RFC 7862): each call of version 3 is made as one
//! compound of a session, so that the methods of [`NfsClient`] serve servers of both.
//!
//! Files are read and written without an open, by the anonymous stateid (RFC 8881 §8.2.3): nothing
//! is left at the server but the session, which [`NfsClient::end_version4`] ends.

mod answers;
mod callbacks;
mod listing;
mod other;
mod requests;
pub(crate) mod session;

use crate::{Error, NfsClient, nfs3::JUKEBOX};
use stag_protocol::{
    nfs::{
        v3::{self, FileHandle, Procedure},
        v4::{
            self, Answer, AnswerSet as _, CompoundReply, Request, Status4, Text, Verifier4,
            session_flag,
        },
    },
    xdr::{self, Reader},
};
use stag_rpc::{FinishedCall, Provider, RawCall, Token};

pub(crate) use callbacks::BackChannels;
pub use callbacks::HeldAttributes;
pub use other::OtherClient;
use requests::results_len_max;
pub(crate) use session::Session4;

impl<P: Provider> NfsClient<P> {
    /// Calls by minor version `minor` of version 4 from now on: makes a client and a session.
    ///
    /// # Errors
    /// [`Error`] says which call failed; calls are then made by version 3 as before.
    pub fn begin_version4(&mut self, minor: u32) -> Result<(), Error> {
        self.four = None;
        self.begin_session4(minor, session::owner(), false)
    }

    /// Makes a session for the client of this name; with a back channel if `is_called`.
    fn begin_session4(&mut self, minor: u32, owner: Vec<u8>, is_called: bool) -> Result<(), Error> {
        let session = self.make_session4(minor, owner, session::FIRST, is_called)?;
        self.four = Some(session);
        let done = self.run4(&[Request::ReclaimComplete(false)], |_| Ok(()));
        match (&done, &mut self.four) {
            (Ok(()), Some(session)) => session.has_served = false,
            // After a fatal error no call can succeed: the session is then just dropped.
            (Err(error), Some(_)) if !error.is_fatal() => self.end_version4(),
            _ => self.four = None,
        }
        done
    }

    /// Makes a session for this incarnation of the client of this name. That ends the state of
    /// earlier incarnations (RFC 8881 §18.35.4).
    fn make_session4(
        &mut self,
        minor: u32,
        owner: Vec<u8>,
        incarnation: Verifier4,
        is_called: bool,
    ) -> Result<Session4, Error> {
        let mut exchange = session::exchange_id(&owner);
        exchange.client.verifier = incarnation;
        let arguments = requests::alone(minor, &[Request::ExchangeId(exchange)]);
        let (client, sequence) = self.ask(&arguments, |answer| match answer {
            Answer::ExchangeId(done) => done.map(|ok| (ok.client_id, ok.sequence)),
            _ => Err(Status4::ServerFault),
        })?;
        let mut create =
            session::create_session(client, sequence, session::MESSAGE_MAX, session::REQUESTS_MAX);
        if is_called {
            create.flags = session_flag::CONN_BACK_CHAN;
        }
        let arguments = requests::alone(minor, &[Request::CreateSession(create)]);
        let made = self.ask(&arguments, |answer| match answer {
            Answer::CreateSession(done) => done,
            _ => Err(Status4::ServerFault),
        })?;
        let mut session = Session4::new(minor, client, made.session, made.fore.requests_max);
        session.owner = owner;
        session.is_called = is_called && made.flags & session_flag::CONN_BACK_CHAN != 0;
        if session.is_called {
            self.note_back_channel(&session);
        }
        Ok(session)
    }

    /// Makes a session again after a call ended with `error`, which says that the server does not
    /// know it: the server has started again, or the lease was over. True if the call can be made
    /// again; the session is a new one of the same client then (RFC 8881 §8.4.2.1), unless an
    /// earlier call had it made. A call that must not be executed twice may find that the server
    /// had executed it before it started again, as by version 3: `reconnections` and `recovery`
    /// report losses.
    pub(crate) fn recovers4(&mut self, error: Error) -> bool {
        let is_unknown = matches!(error, Error::Nfs4(Status4::BadSession | Status4::DeadSession));
        let Some(session) = self.four.as_ref().filter(|_| is_unknown) else { return false };
        if !session.is_lost {
            return true;
        }
        // Retries end for a server that makes sessions and then does not know them.
        if !session.has_served {
            return false;
        }
        let (minor, owner, earlier) = (session.minor, session.owner.clone(), self.four.take());
        self.keeps_outcomes = true;
        let begun = self.begin_session4(minor, owner, false);
        self.keeps_outcomes = false;
        if begun.is_err() {
            self.four = earlier;
        }
        begun.is_ok()
    }

    /// The minor version of version 4 that calls are made by; none while they are made by version
    /// 3.
    pub fn minor_version(&self) -> Option<u32> {
        self.four.as_ref().map(|session| session.minor)
    }

    /// Ends the session and the client at the server, as far as there is a connection. Calls are
    /// made by version 3 again.
    pub fn end_version4(&mut self) {
        let Some(session) = self.four.take() else { return };
        let alone = |request| requests::alone(session.minor, &[request]);
        for arguments in [
            alone(Request::DestroySession(session.id)),
            alone(Request::DestroyClientid(session.client)),
        ] {
            // Whatever becomes of it, the lease ends them at last.
            let _ = self.ask(&arguments, |_| Ok(()));
        }
    }

    /// Makes a call that needs no session, and takes the results of its one operation.
    fn ask<T>(
        &mut self,
        arguments: &[u8],
        take: impl FnOnce(Answer<'_>) -> Result<T, Status4>,
    ) -> Result<T, Error> {
        let call = raw_call(2_048, 0, None);
        self.call(
            &call,
            |writer| writer.fixed(arguments),
            |results| {
                let mut reply = CompoundReply::parse(results).map_err(Error::Garbled)?;
                let answer = reply.next().ok_or(EMPTY)?.map_err(Error::Garbled)?;
                answers::check(&answer)?;
                take(answer).map_err(answers::error)
            },
        )
    }

    /// Runs operations in the session, and gives the results after SEQUENCE's to `read`.
    fn run4<T>(
        &mut self,
        requests: &[Request<'_>],
        read: impl FnOnce(CompoundReply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let octets = requests::emitted(requests);
        let token = self.send4(requests.len(), &octets, 80_000, 0, None)?;
        let done = self.await4(token)?;
        self.conclude4(done, read)
    }

    /// A call of version 3, made by version 4.
    pub(crate) fn nfs4<T>(
        &mut self,
        call: &v3::Call<'_>,
        item: Option<&[u8]>,
        read: impl FnOnce(v3::Reply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if matches!(call, v3::Call::Null) {
            let null = RawCall::new(v3::PROGRAM, v4::VERSION, 0);
            return self.call(&null, |_| Ok(()), |_| read(v3::Reply::Null));
        }
        let mut read = Some(read);
        loop {
            let called = self.begin4(call, item).and_then(|token| self.await4(token));
            let called = called.and_then(|done| {
                self.conclude_procedure4(call.procedure(), done, |reply| {
                    read.take().map_or(Err(TWICE), |read| read(reply))
                })
            });
            match called {
                // RFC 8881 §15.1.1.3: after NFS4ERR_DELAY a client waits, then calls again
                Err(JUKEBOX) if read.is_some() && self.waits() => {}
                Err(error) if read.is_some() && self.recovers(error) => {}
                called => {
                    self.end_wait();
                    return called;
                }
            }
        }
    }

    /// Gives the results of a call of version 3 that was made by version 4 to `read`.
    pub(crate) fn conclude_procedure4<T>(
        &mut self,
        procedure: Procedure,
        done: FinishedCall,
        read: impl FnOnce(v3::Reply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.conclude4(done, |reply| answers::reply(procedure, reply).and_then(read))
    }

    /// Begins a call of version 3, made by version 4.
    pub(crate) fn begin4(
        &mut self,
        call: &v3::Call<'_>,
        item: Option<&[u8]>,
    ) -> Result<Token, Error> {
        let (count, octets) = requests::operations(call)?;
        let (results_max, item_max) = results_len_max(call);
        self.send4(count, &octets, results_max, item_max, item)
    }

    fn send4(
        &mut self,
        count: usize,
        operations: &[u8],
        results_max: usize,
        item_max: usize,
        item: Option<&[u8]>,
    ) -> Result<Token, Error> {
        let session = self.four.as_ref().ok_or(NO_SESSION)?;
        let (slot, sequence) = session.next_request().ok_or(Error::NoMemory)?;
        let arguments = requests::in_session(session.minor, &sequence, count, operations);
        let call = raw_call(results_max, item_max, item);
        let token = self.send(&call, |writer| writer.fixed(&arguments))?;
        if let Some(session) = &mut self.four {
            session.begin(slot, token);
        }
        Ok(token)
    }

    fn await4(&mut self, token: Token) -> Result<FinishedCall, Error> {
        loop {
            let done = self.next_outcome()?;
            if done.token == token {
                return Ok(done);
            }
            self.finish4(&done);
            self.set_aside(done);
        }
    }

    /// The request of a call's slot is over.
    fn finish4(&mut self, done: &FinishedCall) {
        if let Some(session) = &mut self.four {
            session.finish(done.token);
        }
    }

    /// Gives the results after SEQUENCE's to `read`.
    fn conclude4<T>(
        &mut self,
        done: FinishedCall,
        read: impl FnOnce(CompoundReply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let is_of_session = self.four.as_ref().is_some_and(|session| session.has(done.token));
        self.finish4(&done);
        let mut sequenced = None;
        let concluded = self.conclude(done, |results: Reader<'_>| {
            let mut reply = CompoundReply::parse(results).map_err(Error::Garbled)?;
            let sequence = reply.next().ok_or(EMPTY)?.map_err(Error::Garbled)?;
            sequenced = Some(sequence.status());
            answers::check(&sequence)?;
            read(reply)
        });
        if let Some(session) = self.four.as_mut().filter(|_| is_of_session) {
            session.has_served |= sequenced == Some(Status4::Ok);
            session.is_lost |=
                matches!(sequenced, Some(Status4::BadSession | Status4::DeadSession));
        }
        concluded
    }

    /// The handle of a path from the root of all exports on.
    pub(crate) fn mount4(&mut self, path: &str) -> Result<FileHandle, Error> {
        let names = path.split('/').filter(|name| !name.is_empty());
        let mut requests = vec![Request::PutRootFh(())];
        requests.extend(names.map(|name| Request::Lookup(Text(name.as_bytes()))));
        requests.push(Request::GetFh(()));
        self.run4(&requests, answers::handle).map_err(answers::of_mount)
    }
}

/// A COMPOUND with results of at most `results_max` octets.
fn raw_call(results_max: usize, item_max: usize, item: Option<&[u8]>) -> RawCall<'_> {
    let compound = RawCall::new(v3::PROGRAM, v4::VERSION, v4::COMPOUND);
    RawCall { results_max, item_max, item, ..compound }
}

const TWICE: Error = Error::Nonsense("two replies to one call");
const EMPTY: Error = Error::Garbled(xdr::Error::Short);
const NO_SESSION: Error = Error::Nonsense("there is no session of version 4");
