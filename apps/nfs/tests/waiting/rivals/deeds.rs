//! The deeds of clients, one after the other: they open, lock, read, write and rename the
//! same few files, give delegations back, fall silent, and boot anew.

use super::{
    ledger::{RightKind, short},
    mail::{self, rest},
    player::{Gone, Locked, OPENER, Opened, Player, given_of, lock_request, look, right_of},
    scene::NAMES,
    world::LEASE,
};
use crate::waiting::client4::{Reply4, put};
use stag_protocol::nfs::{
    Bulk,
    v3::{FileHandle, StableHow},
    v4::{
        Answer, Bitmap, Close4Args, CreateHow4, LockType, LockU4Args, Open4Args, OpenClaim,
        OpenHow, RawAttributes, Read4Args, Rename4Args, Request, SetAttr4Args, Stateid, Status4,
        Text, Write4Args, share,
    },
};
use stag_verbs::Time;
use std::{rc::Rc, time::Duration};

/// Time after which a client has certainly lost what it did not renew.
const SILENCE: Duration = Duration::from_secs(30);

/// Statuses of a state that is not there, or not any more.
const fn is_lost(status: Status4) -> bool {
    matches!(
        status,
        Status4::BadStateid
            | Status4::OldStateid
            | Status4::Expired
            | Status4::DelegRevoked
            | Status4::AdminRevoked
            | Status4::StaleStateid
    )
}

impl Player {
    pub fn name(&self) -> &'static [u8] {
        NAMES[self.below(NAMES.len())]
    }

    /// The first process: it does `deeds` random things.
    pub async fn play(self: Rc<Self>, deeds: usize) {
        for _ in 0..deeds {
            self.recover().await;
            let _: Result<(), Gone> = match self.below(100) {
                0..25 => self.open().await,
                25..35 => self.close().await,
                35..47 => self.lock().await,
                47..62 => self.write().await,
                62..70 => self.read().await,
                70..78 => self.set_mode().await,
                78..82 => self.rename().await,
                82..85 => self.remove().await,
                85..95 => self.look().await,
                95 => {
                    self.be_silent().await;
                    Ok(())
                }
                96 => {
                    self.be_deaf().await;
                    Ok(())
                }
                97 if self.below(2) == 0 => {
                    self.reboot();
                    Ok(())
                }
                _ => {
                    self.rest(3_000).await;
                    Ok(())
                }
            };
            self.rest([20, 200, 2_000][self.below(3)]).await;
        }
        // Nothing is returned any more.
        self.doubt();
        self.state.borrow_mut().is_done = true;
    }

    /// The second process: it returns recalled delegations, and renews the lease.
    pub async fn tend(self: Rc<Self>) {
        let mut renewed = Time(0);
        loop {
            rest(&self.mail, Duration::from_millis(50)).await;
            let (is_done, silent_until) = {
                let state = self.state.borrow();
                (state.is_done, state.silent_until)
            };
            if is_done {
                return;
            }
            if self.now() < silent_until {
                continue;
            }
            // The first process may wait for its own call for longer than a lease.
            let is_unreachable = self.state.borrow().is_unreachable;
            if is_unreachable {
                self.bind().await;
            }
            let recalled = self.mail.borrow_mut().recalled.pop_front();
            if let Some(other) = recalled {
                self.rest([10, 300, 3_000][self.below(3)]).await;
                let _ = self.give_back(other).await;
            } else if self.now().since(renewed) > LEASE / 4 {
                renewed = self.now();
                let _ = self.run(1, &[]).await;
            }
        }
    }

    async fn give_back(&self, other: mail::Other) -> Result<(), Gone> {
        let delegated = {
            let state = &mut *self.state.borrow_mut();
            let place = state.delegations.iter().position(|it| it.stateid.other == other);
            let Some(place) = place else { return Ok(()) };
            state.delegations.swap_remove(place)
        };
        self.mail.borrow_mut().known.retain(|known| *known != other);
        let is_sure = self.is_certain(delegated.right);
        self.scene.ledger.borrow_mut().counts.recalled += 1;
        self.release(delegated.right);
        let back = [put(&delegated.file), Request::DelegReturn(delegated.stateid)];
        loop {
            let (reply, _) = self.run(1, &back).await?;
            match reply.status() {
                Status4::Ok => return Ok(()),
                Status4::Delay => self.rest(100).await,
                status => {
                    assert!(!is_sure && is_lost(status), "{status:?}\n{}", self.story());
                    let _ = self.run(1, &[Request::FreeStateid(delegated.stateid)]).await?;
                    return Ok(());
                }
            }
        }
    }

    async fn open(&self) -> Result<(), Gone> {
        let access = [share::READ, share::READ, share::WRITE, share::BOTH, share::BOTH];
        let access = access[self.below(5)];
        let deny = [0, 0, 0, 0, share::READ, share::WRITE, share::BOTH][self.below(7)];
        let raw = RawAttributes::default();
        let cut = RawAttributes { mask: Bitmap::of([4]), octets: &[0; 8] };
        let how = match self.below(9) {
            0..3 => OpenHow::NoCreate,
            3..8 => OpenHow::Create(CreateHow4::Unchecked(raw)),
            _ => OpenHow::Create(CreateHow4::Unchecked(cut)),
        };
        let open = Open4Args {
            seqid: 0,
            share_access: access,
            share_deny: deny,
            owner: OPENER,
            how,
            claim: OpenClaim::Null(Text(self.name())),
        };
        let directory = self.scene.directory;
        let requests = [put(&directory), Request::Open(open), Request::GetFh(()), look()];
        self.mail.borrow_mut().is_opening = true;
        // One that cuts the file changes it.
        let opened = self.act(&requests).await;
        let outcome = opened.map(|(reply, first)| self.take_open((access, deny), &reply, first));
        self.mail.borrow_mut().is_opening = false;
        outcome
    }

    fn take_open(&self, share: (u32, u32), reply: &Reply4, first: Time) {
        let answers = reply.answers();
        let (opened, handle, looked) = match &answers[..] {
            [.., Answer::Open(Ok(opened)), Answer::GetFh(Ok(handle)), looked] => {
                (opened, handle, looked)
            }
            _ => {
                let status = reply.status();
                let is_usual = matches!(
                    status,
                    Status4::Delay
                        | Status4::Grace
                        | Status4::NoEnt
                        | Status4::Exist
                        | Status4::ShareDenied
                        | Status4::Stale
                );
                assert!(is_usual, "{status:?}\n{}", self.story());
                self.scene.ledger.borrow_mut().counts.denied +=
                    u64::from(status == Status4::ShareDenied);
                return;
            }
        };
        let file = FileHandle::new(handle.0).unwrap();
        let until = first + LEASE;
        let (mut access, mut deny) = share;
        let other = opened.stateid.other;
        let former = {
            let state = &mut *self.state.borrow_mut();
            let place = state.opens.iter().position(|open| open.stateid.other == other);
            place.map(|place| state.opens.swap_remove(place))
        };
        let mut lock = None;
        if let Some(former) = former {
            (access, deny, lock) = (access | former.access, deny | former.deny, former.lock);
            self.release(former.right);
        }
        let mut ledger = self.scene.ledger.borrow_mut();
        let right = ledger.grant(self.number, file, RightKind::Open(access, deny), until);
        ledger.counts.opens += 1;
        drop(ledger);
        let stateid = opened.stateid;
        self.state.borrow_mut().opens.push(Opened { file, access, deny, stateid, right, lock });
        let Some(mut given) = given_of(&opened.delegation) else { return };
        given.file = file;
        let is_new = {
            let state = self.state.borrow();
            !state.delegations.iter().any(|it| it.stateid.other == given.stateid.other)
        };
        if is_new {
            let kind = right_of(&given);
            let mut ledger = self.scene.ledger.borrow_mut();
            given.right = ledger.grant(self.number, file, kind, until);
            ledger.counts.delegations += 1;
            drop(ledger);
            self.check_attributes(&file, looked, given.right);
            self.keep(given);
        }
    }

    /// Asserts that attributes read under a certain delegation are the attributes of the file.
    fn check_attributes(
        &self,
        file: &FileHandle,
        looked: &Answer<'_>,
        right: super::ledger::RightId,
    ) {
        let Answer::GetAttr(Ok(attributes)) = looked else { return };
        let [change, size, mode] = [0, 8, 16].map(|from| &attributes.octets[from..]);
        let long = |octets: &[u8]| octets.first_chunk().map(|octets| u64::from_be_bytes(*octets));
        let mode = mode.first_chunk().map(|octets| u32::from_be_bytes(*octets));
        let told = (long(change), long(size), mode);
        let has = (self.scene.look)(file);
        let has = has.map_or((None, None, None), |has| {
            (Some(has.change), Some(has.size), Some(has.mode & 0o7777))
        });
        let is_sure = self.is_certain(right);
        assert!(!is_sure || told == has, "{told:?}, {has:?} of {}\n{}", short(file), self.story());
    }

    fn some_open(&self, fits: impl Fn(&Opened) -> bool) -> Option<Opened> {
        let state = self.state.borrow();
        let all: Vec<_> = state.opens.iter().filter(|open| fits(open)).collect();
        (!all.is_empty()).then(|| all[self.below(all.len())].clone())
    }

    async fn close(&self) -> Result<(), Gone> {
        let Some(open) = self.some_open(|_| true) else { return Ok(()) };
        let is_sure = self.is_certain(open.right);
        self.release(open.right);
        open.lock.iter().for_each(|lock| self.release(lock.right));
        {
            let state = &mut *self.state.borrow_mut();
            state.opens.retain(|it| it.right != open.right);
        }
        if let Some(lock) = open.lock {
            self.give_up(&[put(&open.file), unlock(lock.stateid)], is_sure).await?;
        }
        let close = Request::Close(Close4Args { seqid: 0, open: open.stateid });
        self.give_up(&[put(&open.file), close], is_sure).await
    }

    async fn lock(&self) -> Result<(), Gone> {
        let locked = self.some_open(|open| open.lock.is_some());
        if let Some(open) = locked.filter(|_| self.below(2) == 0) {
            return self.unlock(&open).await;
        }
        let Some(open) = self.some_open(|open| open.lock.is_none()) else { return Ok(()) };
        let excludes = open.access & share::WRITE != 0 && self.below(2) == 0;
        if !excludes && open.access & share::READ == 0 {
            return Ok(());
        }
        let is_sure = self.is_certain(open.right);
        let (reply, first) =
            self.run(0, &[put(&open.file), lock_request(open.stateid, excludes, false)]).await?;
        match reply.last() {
            Answer::Lock(Ok(stateid)) => {
                let mut ledger = self.scene.ledger.borrow_mut();
                let kind = RightKind::Lock(excludes);
                let right = ledger.grant(self.number, open.file, kind, first + LEASE);
                ledger.counts.locks += 1;
                drop(ledger);
                let state = &mut *self.state.borrow_mut();
                match state.opens.iter_mut().find(|it| it.right == open.right) {
                    Some(open) => open.lock = Some(Locked { stateid, excludes, right }),
                    None => self.release(right),
                }
            }
            _ if reply.status() == Status4::Denied => {}
            _ => self.check_refusal(open.stateid, is_sure, reply.status()),
        }
        Ok(())
    }

    async fn unlock(&self, open: &Opened) -> Result<(), Gone> {
        let Some(lock) = open.lock else { return Ok(()) };
        let is_sure = self.is_certain(lock.right);
        self.release(lock.right);
        {
            let state = &mut *self.state.borrow_mut();
            let open = state.opens.iter_mut().find(|it| it.right == open.right);
            open.expect("it is open").lock = None;
        }
        self.give_up(&[put(&open.file), unlock(lock.stateid)], is_sure).await
    }

    /// Makes a compound that gives a state up, until that is done.
    async fn give_up(&self, requests: &[Request<'_>], is_sure: bool) -> Result<(), Gone> {
        loop {
            let (reply, _) = self.run(0, requests).await?;
            match reply.status() {
                Status4::Ok => return Ok(()),
                Status4::Delay | Status4::Grace => self.rest(100).await,
                status => {
                    assert!(!is_sure && is_lost(status), "{status:?}\n{}", self.story());
                    return Ok(());
                }
            }
        }
    }

    /// A state was refused, or something has to be waited for.
    fn check_refusal(&self, stateid: Stateid, was_sure: bool, status: Status4) {
        match status {
            // Where calls may wait, a removed file is not kept for clients that have it open.
            Status4::Delay | Status4::Grace | Status4::Stale => {}
            status if is_lost(status) => {
                assert!(!was_sure, "{status:?} for {stateid:?}\n{}", self.story());
                self.lose(stateid.other, status);
            }
            other => panic!("{other:?}\n{}", self.story()),
        }
    }

    /// A state by which a file may be read or written, and if it is certain.
    fn state_for(&self, access: u32) -> Option<(FileHandle, Stateid, bool)> {
        let open = self.some_open(|open| open.access & access != 0)?;
        let delegated = {
            let state = self.state.borrow();
            let fits = |it: &&super::player::Delegated| {
                it.file == open.file && (it.writes || access == share::READ)
            };
            state.delegations.iter().find(fits).copied()
        };
        let (stateid, right) = match (self.below(3), open.lock, delegated) {
            (0, Some(lock), _) => (lock.stateid, lock.right),
            (1, _, Some(delegated)) => (delegated.stateid, delegated.right),
            _ => (open.stateid, open.right),
        };
        let is_sure = self.is_certain(right);
        Some((open.file, stateid, is_sure))
    }

    /// Makes a compound that changes something.
    async fn act(&self, requests: &[Request<'_>]) -> Result<(Reply4, Time), Gone> {
        self.scene.ledger.borrow_mut().acting.insert(self.number);
        let outcome = self.run(0, requests).await;
        // What it has changed is looked at, and then nothing more.
        let ledger = &mut *self.scene.ledger.borrow_mut();
        ledger.look(&self.scene.look);
        ledger.acting.remove(&self.number);
        outcome
    }

    async fn write(&self) -> Result<(), Gone> {
        let Some((file, stateid, is_sure)) = self.state_for(share::WRITE) else { return Ok(()) };
        let octets = [self.number as u8; 8];
        let data = Bulk::Inline(&octets[..]);
        let stable = StableHow::FileSync;
        let offset = self.scene.ledger.borrow_mut().number();
        let write = Request::Write(Write4Args { stateid, offset, stable, data });
        let (reply, _) = self.act(&[put(&file), write]).await?;
        if reply.status() != Status4::Ok {
            self.check_io(stateid, is_sure, reply.status());
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), Gone> {
        let Some((file, stateid, is_sure)) = self.state_for(share::READ) else { return Ok(()) };
        let read = Request::Read(Read4Args { stateid, offset: 0, count: 8 });
        let (reply, _) = self.run(0, &[put(&file), read]).await?;
        if reply.status() != Status4::Ok {
            self.check_io(stateid, is_sure, reply.status());
        }
        Ok(())
    }

    /// As [`check_refusal`](Self::check_refusal); the second task may have given a delegation back
    /// meanwhile.
    fn check_io(&self, stateid: Stateid, was_sure: bool, status: Status4) {
        let is_known = {
            let state = self.state.borrow();
            state.opens.iter().any(|open| {
                open.stateid.other == stateid.other
                    || open.lock.is_some_and(|lock| lock.stateid.other == stateid.other)
            }) || state.delegations.iter().any(|it| it.stateid.other == stateid.other)
        };
        self.check_refusal(stateid, was_sure && is_known, status);
    }

    /// An operation that needs no state: what it may answer.
    fn check_plain(&self, status: Status4) {
        let usual = [Status4::Ok, Status4::Delay, Status4::Grace, Status4::NoEnt, Status4::Stale];
        assert!(usual.contains(&status), "{status:?}\n{}", self.story());
    }

    async fn set_mode(&self) -> Result<(), Gone> {
        let mode = (0o600 | self.scene.ledger.borrow_mut().number() as u32 & 0o77).to_be_bytes();
        let attributes = RawAttributes { mask: Bitmap::of([33]), octets: &mode };
        let stateid = Stateid::ANONYMOUS;
        let set = Request::SetAttr(SetAttr4Args { stateid, attributes });
        let directory = self.scene.directory;
        let lookup = Request::Lookup(Text(self.name()));
        let (reply, _) = match self.below(2) {
            0 => self.act(&[put(&directory), lookup, set]).await?,
            _ => {
                let file = self.some_open(|_| true).map_or(directory, |open| open.file);
                self.act(&[put(&file), set]).await?
            }
        };
        self.check_plain(reply.status());
        Ok(())
    }

    async fn rename(&self) -> Result<(), Gone> {
        let (old, new) = (Text(self.name()), Text(self.name()));
        let rename = Request::Rename(Rename4Args { old, new });
        let directory = self.scene.directory;
        let requests = [put(&directory), Request::SaveFh(()), rename];
        let (reply, _) = self.act(&requests).await?;
        self.check_plain(reply.status());
        Ok(())
    }

    async fn remove(&self) -> Result<(), Gone> {
        let (directory, name) = (self.scene.directory, self.name());
        let (reply, _) = self.act(&[put(&directory), Request::Remove(Text(name))]).await?;
        self.check_plain(reply.status());
        Ok(())
    }

    async fn look(&self) -> Result<(), Gone> {
        let (directory, lookup) = (self.scene.directory, Request::Lookup(Text(self.name())));
        let (reply, _) = self.run(0, &[put(&directory), lookup, look()]).await?;
        self.check_plain(reply.status());
        Ok(())
    }

    /// Asks for nothing, for longer than its lease.
    async fn be_silent(&self) {
        self.tell("falls silent");
        self.doubt();
        let until = self.now() + SILENCE;
        self.state.borrow_mut().silent_until = until;
        // It may be about to write, and is gone before that is done.
        if self.below(2) == 0 {
            self.scene.ledger.borrow_mut().hanging.insert(self.number);
            let _ = self.write().await;
            self.scene.ledger.borrow_mut().hanging.remove(&self.number);
        }
        rest(&self.mail, until.since(self.now())).await;
        self.doubt();
    }

    /// Answers no callback for a while.
    async fn be_deaf(&self) {
        self.tell("is deaf");
        self.mail.borrow_mut().is_deaf = true;
        self.doubt();
        for _ in 0..4 {
            self.recover().await;
            let _ = self.open().await;
            self.rest(5_000).await;
        }
        self.doubt();
        self.mail.borrow_mut().is_deaf = false;
    }
}

/// LOCKU of everything.
fn unlock(stateid: Stateid) -> Request<'static> {
    let (offset, length) = (0, u64::MAX);
    Request::LockU(LockU4Args { kind: LockType::Write, seqid: 0, stateid, offset, length })
}
