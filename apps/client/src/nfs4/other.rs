//! Additional clients of version 4 on the connection of a [`NfsClient`], each with a name and a
//! session of its own (RFC 8881 §2.10.3.1). State of one conflicts with another's, so that checks
//! need several.

use super::{NO_SESSION, Session4, requests, session};
use crate::{Error, NfsClient};
use stag_protocol::nfs::v4::{CompoundReply, Request};
use stag_rpc::Provider;
use std::mem;

/// A client of version 4 with a session.
#[derive(Debug)]
pub struct OtherClient(pub(super) Option<Session4>);

impl OtherClient {
    /// Returns true if its session has a back channel for calls of the server.
    pub fn is_called(&self) -> bool {
        self.0.as_ref().is_some_and(|session| session.is_called)
    }
}

impl<P: Provider> NfsClient<P> {
    /// Makes one more client and its session, of minor version `minor`.
    ///
    /// # Errors
    /// [`Error`] says which call failed.
    pub fn other_client(&mut self, minor: u32) -> Result<OtherClient, Error> {
        let own = self.four.take();
        let begun = self.begin_session4(minor, session::owner(), false);
        let other = mem::replace(&mut self.four, own);
        begun.map(|()| OtherClient(other))
    }

    /// Runs operations in the session of another client, and gives the results after SEQUENCE's to
    /// `read`.
    ///
    /// # Errors
    /// SEQUENCE failed, or `read`, or there is no reply.
    pub fn compound<T>(
        &mut self,
        client: &mut OtherClient,
        requests: &[Request<'_>],
        read: impl FnOnce(CompoundReply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        mem::swap(&mut self.four, &mut client.0);
        let done = self.run4(requests, read);
        mem::swap(&mut self.four, &mut client.0);
        done
    }

    /// Ends a client and its session.
    ///
    /// # Errors
    /// The server refuses, as it does while the client has files open: NFS4ERR_CLIENTID_BUSY.
    pub fn end_client(&mut self, client: OtherClient) -> Result<(), Error> {
        self.end_session(&client.0.ok_or(NO_SESSION)?)
    }

    /// Ends a client in spite of its state. A server does not destroy a client that has state (RFC
    /// 8881 §18.50.3); the next incarnation of the client ends that state, and has none.
    ///
    /// # Errors
    /// [`Error`] says which call failed: the lease ends the client then.
    pub fn abandon_client(&mut self, client: OtherClient) -> Result<(), Error> {
        let session = client.0.ok_or(NO_SESSION)?;
        self.forget_back_channel(&session);
        let Session4 { minor, owner, .. } = session;
        let session = self.make_session4(minor, owner, session::NEXT, false)?;
        self.end_session(&session)
    }

    fn end_session(&mut self, session: &Session4) -> Result<(), Error> {
        self.forget_back_channel(session);
        for request in
            [Request::DestroySession(session.id), Request::DestroyClientid(session.client)]
        {
            self.ask(&requests::alone(session.minor, &[request]), |_| Ok(()))?;
        }
        Ok(())
    }
}
