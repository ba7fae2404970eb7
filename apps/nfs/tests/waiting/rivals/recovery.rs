//! A client that has lost its session: it makes another one, reclaims its state, and finds out
//! which state was revoked.

use super::{
    player::{Delegated, Gone, Locked, OPENER, Opened, Player, given_of, lock_request},
    world::LEASE,
};
use crate::waiting::client4::{put, session_args};
use stag_protocol::nfs::v4::{
    Answer, Array, BindConnArgs, ChannelWish, ClientOwner, CreateSessionArgs, DelegationType,
    ExchangeIdArgs, Open4Args, OpenClaim, OpenDelegation, OpenHow, Request, StateProtection,
    Stateid, Status4, Text, session_flag,
};
use stag_verbs::Time;

impl Player {
    /// Makes a session if there is none, and reclaims its state.
    pub async fn recover(&self) {
        while self.state.borrow().session.is_none() {
            self.begin().await;
        }
        let (is_unreachable, has_revoked) = {
            let state = self.state.borrow();
            (state.is_unreachable, state.has_revoked)
        };
        if is_unreachable {
            self.bind().await;
        }
        if has_revoked {
            let _ = self.sort_out().await;
        }
    }

    async fn begin(&self) {
        let (life, former) = {
            let state = self.state.borrow();
            (state.life, state.client_id)
        };
        let owner = [self.number as u8; 4];
        let args = ExchangeIdArgs {
            client: ClientOwner { verifier: [life; 8], owner: Text(&owner) },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        };
        let Some(reply) = self.send(&[Request::ExchangeId(args)]).await else {
            return self.rest(500).await;
        };
        let known = match reply.last() {
            Answer::ExchangeId(Ok(known)) => (known.client_id, known.sequence),
            Answer::ExchangeId(Err(Status4::Delay)) => return self.rest(500).await,
            other => panic!("{other:?}\n{}", self.story()),
        };
        let flags = session_flag::CONN_BACK_CHAN;
        let create = CreateSessionArgs { flags, ..session_args(known.0, known.1) };
        let create = [Request::CreateSession(create)];
        let session = loop {
            let Some(reply) = self.send(&create).await else {
                self.rest(500).await;
                continue;
            };
            match reply.last() {
                Answer::CreateSession(Ok(made)) => break made.session,
                Answer::CreateSession(Err(Status4::Delay)) => self.rest(500).await,
                Answer::CreateSession(Err(Status4::StaleClientid | Status4::SeqMisordered)) => {
                    return self.rest(500).await;
                }
                other => panic!("{other:?}\n{}", self.story()),
            }
        };
        {
            let state = &mut *self.state.borrow_mut();
            (state.client_id, state.session, state.sequences) = (known.0, Some(session), [0; 2]);
            (state.is_unreachable, state.has_revoked) = (false, false);
        }
        self.tell(format_args!("has a session of {:x}", known.0));
        if known.0 != former && self.reclaim().await.is_err() {
            self.state.borrow_mut().session = None;
        }
    }

    /// Takes back what the client had at the last server.
    async fn reclaim(&self) -> Result<(), Gone> {
        let mut had = std::mem::take(&mut self.state.borrow_mut().opens);
        let delegations = std::mem::take(&mut self.state.borrow_mut().delegations);
        self.mail.borrow_mut().known.clear();
        self.mail.borrow_mut().held.clear();
        let outcome = self.reclaim_all(&mut had, delegations).await;
        // What was not asked for yet is kept for the next session.
        self.state.borrow_mut().opens.append(&mut had);
        outcome?;
        loop {
            let (reply, _) = self.run(0, &[Request::ReclaimComplete(false)]).await?;
            match reply.status() {
                Status4::Ok => return Ok(()),
                Status4::Delay => self.rest(500).await,
                other => panic!("{other:?}\n{}", self.story()),
            }
        }
    }

    async fn reclaim_all(
        &self,
        had: &mut Vec<Opened>,
        delegations: Vec<Delegated>,
    ) -> Result<(), Gone> {
        while let Some(open) = had.last().cloned() {
            let wanted = delegations.iter().find(|it| it.file == open.file);
            let kind = match wanted {
                Some(Delegated { writes: true, .. }) => DelegationType::Write,
                Some(_) => DelegationType::Read,
                None => DelegationType::None,
            };
            let claim = Open4Args {
                seqid: 0,
                share_access: open.access,
                share_deny: open.deny,
                owner: OPENER,
                how: OpenHow::NoCreate,
                claim: OpenClaim::Previous(kind),
            };
            let is_sure = self.is_certain(open.right);
            self.mail.borrow_mut().is_opening = true;
            let asked = self.run(0, &[put(&open.file), Request::Open(claim)]).await;
            self.mail.borrow_mut().is_opening = false;
            let (reply, first) = match asked {
                Ok(asked) => asked,
                Err(Gone) => {
                    // Delegations without an open that is left cannot be asked for again.
                    self.state.borrow_mut().delegations.extend(delegations);
                    return Err(Gone);
                }
            };
            match reply.last() {
                Answer::Open(Ok(opened)) => {
                    had.pop();
                    self.take_back(open, wanted, &opened.delegation, opened.stateid, first).await?;
                }
                Answer::Open(Err(Status4::Delay)) => self.rest(300).await,
                Answer::Open(Err(status)) => {
                    self.tell(format_args!("{status:?} for its reclaim"));
                    // The file may have been removed.
                    let is_sure = is_sure && status != Status4::Stale;
                    assert!(!is_sure, "{status:?} for {open:?}\n{}", self.story());
                    let is_usual = matches!(
                        status,
                        Status4::NoGrace | Status4::ReclaimConflict | Status4::Stale
                    );
                    assert!(is_usual, "{status:?}\n{}", self.story());
                    had.pop();
                    self.release(open.right);
                    open.lock.iter().for_each(|lock| self.release(lock.right));
                    self.scene.ledger.borrow_mut().counts.refused_reclaims += 1;
                }
                other => panic!("{other:?}\n{}", self.story()),
            }
        }
        // Those of files that are not open cannot be claimed by OPEN: they are given up.
        let kept: Vec<_> =
            self.state.borrow().delegations.iter().map(|delegated| delegated.right).collect();
        for delegated in delegations.iter().filter(|it| !kept.contains(&it.right)) {
            self.release(delegated.right);
        }
        Ok(())
    }

    /// An open was reclaimed: so are its delegation and its lock.
    async fn take_back(
        &self,
        mut open: Opened,
        wanted: Option<&Delegated>,
        given: &OpenDelegation<'_>,
        stateid: Stateid,
        first: Time,
    ) -> Result<(), Gone> {
        open.stateid = stateid;
        let until = first + LEASE;
        self.scene.ledger.borrow_mut().renew(open.right, until);
        self.scene.ledger.borrow_mut().counts.reclaimed += 1;
        if let Some(former) = wanted {
            match given_of(given) {
                Some(given) => {
                    self.tell(format_args!("{:?} is reclaimed, {}", former.right, given.is_due));
                    self.scene.ledger.borrow_mut().renew(former.right, until);
                    self.keep(Delegated { right: former.right, file: open.file, ..given });
                }
                None => {
                    assert!(!self.is_certain(former.right), "{former:?}\n{}", self.story());
                    self.release(former.right);
                }
            }
        }
        let lock = open.lock.take();
        let (file, mut lost) = (open.file, lock);
        let open_stateid = open.stateid;
        self.state.borrow_mut().opens.push(open);
        while let Some(lock) = lost {
            let is_sure = self.is_certain(lock.right);
            let reclaim = lock_request(open_stateid, lock.excludes, true);
            let asked = self.run(0, &[put(&file), reclaim]).await;
            let keep = |lock: Locked| {
                let state = &mut *self.state.borrow_mut();
                let open = state.opens.iter_mut().find(|open| open.stateid == open_stateid);
                match open {
                    Some(open) => open.lock = Some(lock),
                    // The client has booted anew.
                    None => self.release(lock.right),
                }
            };
            let Ok((reply, first)) = asked else {
                // It is asked for again in the next session.
                keep(lock);
                return Err(Gone);
            };
            match reply.last() {
                Answer::Lock(Ok(stateid)) => {
                    self.scene.ledger.borrow_mut().renew(lock.right, first + LEASE);
                    keep(Locked { stateid, ..lock });
                    lost = None;
                }
                _ if reply.status() == Status4::Delay => self.rest(300).await,
                Answer::Lock(Err(_)) => {
                    let status = reply.status();
                    let is_sure = is_sure && status != Status4::Stale;
                    assert!(!is_sure, "{status:?} for {lock:?}\n{}", self.story());
                    self.release(lock.right);
                    lost = None;
                }
                other => panic!("{other:?}\n{}", self.story()),
            }
        }
        Ok(())
    }

    /// Binds a connection to the back channel.
    pub async fn bind(&self) {
        let Some(session) = self.state.borrow().session else { return };
        let wish = ChannelWish::BackOrBoth;
        let bind = BindConnArgs { session, wish, rdma_mode: false };
        match self.send(&[Request::BindConnToSession(bind)]).await {
            Some(reply) if reply.status() == Status4::Ok => {
                self.state.borrow_mut().is_unreachable = false;
            }
            _ => self.rest(300).await,
        }
    }

    /// Finds out which state was revoked.
    async fn sort_out(&self) -> Result<(), Gone> {
        let all: Vec<Stateid> = {
            let state = self.state.borrow();
            let opens = state.opens.iter().flat_map(|open| {
                [Some(open.stateid), open.lock.map(|lock| lock.stateid)].into_iter().flatten()
            });
            opens.chain(state.delegations.iter().map(|delegated| delegated.stateid)).collect()
        };
        self.state.borrow_mut().has_revoked = false;
        if all.is_empty() {
            return Ok(());
        }
        let test = Request::TestStateid(Array::of(&all));
        let (reply, _) = self.run(0, &[test]).await?;
        let Answer::TestStateid(Ok(statuses)) = reply.last() else { panic!("{reply:?}") };
        for (stateid, status) in all.iter().zip(statuses.items()) {
            if status != Status4::Ok {
                self.lose(stateid.other, status);
                self.run(0, &[Request::FreeStateid(*stateid)]).await?;
            }
        }
        Ok(())
    }
}
