//! The duplicate request cache (RFC 1813 §4.5): a call retransmitted after a lost connection gets
//! the reply of the first one, and is not executed twice.
//!
//! **Cached**: the RPC reply message, never transport framing, because the retransmission may have
//! other chunks, another inline size, or come over another transport. A replay is an ordinary
//! answer.
//!
//! **Calls**: SETATTR, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK. Not WRITE:
//! version 3 gives the offset of each byte, so a second execution leaves the file as the first did,
//! and only the attributes from before differ; UNSTABLE data is guarded by the write verifier
//! instead. Replies to bulk writes would evict the others within milliseconds. SETATTR is cached
//! even without a guard: a repeated truncation would discard data written meanwhile.
//!
//! **Calls in flight in a store** are identified by the same key, whatever their procedure
//! (`pending`): a duplicate is not executed concurrently with the first. While a change is in
//! flight its client's replies stay on the shard, and its reply is then cached as above; a WRITE's
//! and a COMMIT's only if no caller was left to take it.
//!
//! **Identity of calls**: `key`. **Retention**: `cache`, until [`REPLIES`] newer ones or
//! [`AGE_MAX`]. The cache is in memory: after a crash of the server a repeated REMOVE gets
//! NFS3ERR_NOENT and a CREATE GUARDED NFS3ERR_EXIST, as with every version 3 server whose cache is
//! volatile.
//!
//! **With several shards** a client's replies are where its calls are (`owners`). They move with
//! those of its *slot*, which here is a group of clients, not a slot of a session of version 4. A
//! call that arrives elsewhere waits until they are moved, however long that takes: the shard that
//! has them may be blocked in its file system by the very same call. A waiting call is dropped when
//! its connection ends, and never executed unseen.

mod cache;
mod key;
mod owners;
mod report;

use crate::requester::CallSource;
use std::{collections::VecDeque, fmt, time::Duration};

use stag_engine::{CallId, Cx, HEAD_ROOM, PeerAddress, PeerId, Time, config};
use stag_pools::Buf;
use stag_protocol::{
    nfs::v3::{self, Procedure},
    rpc::{CallHeader, Credential, ProvenUser},
    xdr::{Reader, Writer},
};

pub use cache::AGE_MAX;
pub use owners::CacheHandle;
pub use report::Duplicates;

pub(crate) use cache::{CacheVerdict, ReplyTicket};
pub(crate) use key::CallKey;

use cache::{KeptAt, ReplyCache};
use key::{CacheClient, CallKeys};
use owners::{CacheMail, SLOTS, SlotLocation};

/// Replies that one shard caches.
pub const REPLIES: usize = 4_096;
/// Calls that wait for their client's replies at a time.
const WAITING_MAX: usize = 256;
/// Of these, calls in large buffers: WRITEs with their payload.
const WAITING_LARGE_MAX: usize = 8;
/// Time that a shard has to answer before it is asked again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns true if the replies of a procedure are cached.
pub(crate) const fn is_kept(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::SetAttr
            | Procedure::Create
            | Procedure::MkDir
            | Procedure::Symlink
            | Procedure::MkNod
            | Procedure::Remove
            | Procedure::RmDir
            | Procedure::Rename
            | Procedure::Link
    )
}

/// Memory of a shard's duplicate request cache, printed at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyCacheBudget {
    /// Replies that it caches.
    pub replies: usize,
    /// Bytes of memory.
    pub octets: usize,
}

impl fmt::Display for ReplyCacheBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.octets as f64 / f64::from(1 << 20);
        write!(
            f,
            "{mib:.1} MiB for {} replies to repeated calls, {} s each",
            self.replies,
            AGE_MAX.as_secs()
        )
    }
}

/// A call that waits for its client's replies.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) id: CallId,
    pub(crate) peer: PeerId,
    pub(crate) from: PeerAddress,
    pub(crate) copied: CopiedCall,
    slot: usize,
    /// Time at which to ask the shard that has the replies again.
    ask_at: Time,
}

impl WaitingCall {
    /// The call as received, but in one piece.
    pub(crate) fn call(&self) -> (CallHeader<'_>, v3::Call<'_>) {
        let (header, reader) = self.copied.parse().expect("the header was written from a header");
        let procedure =
            Procedure::new(header.procedure).expect("the procedure was known when it was written");
        (header, v3::Call::parse(procedure, reader).expect("the call was written from a call"))
    }
}

/// The duplicate request cache of one shard.
#[derive(Debug)]
pub(crate) struct ShardCache {
    cache: ReplyCache,
    capacity: usize,
    keys: CallKeys,
    handle: CacheHandle,
    is_alone: bool,
    waiting: VecDeque<WaitingCall>,
    /// By slot: time of an unanswered request to another shard.
    claims: Box<[Option<Time>]>,
    /// Slots requested by other shards, and those shards.
    asked: VecDeque<(usize, usize)>,
    /// By slot: changes in flight in a store. The slot stays until they end.
    under_way: Box<[u32]>,
    counts: Duplicates,
}

/// A call in flight in a store, as identified by the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) key: CallKey,
    slot: usize,
}

impl ShardCache {
    /// Allocates the memory of [`budget`](Self::budget).
    pub(crate) fn new(handle: CacheHandle, capacity: usize) -> Self {
        Self {
            cache: ReplyCache::new(capacity, SLOTS),
            capacity,
            keys: CallKeys::new(handle.secret()),
            is_alone: handle.is_alone(),
            handle,
            waiting: VecDeque::with_capacity(WAITING_MAX),
            claims: vec![None; SLOTS].into(),
            asked: VecDeque::with_capacity(SLOTS),
            under_way: vec![0; SLOTS].into(),
            counts: Duplicates::default(),
        }
    }

    pub(crate) const fn budget(&self) -> ReplyCacheBudget {
        ReplyCacheBudget {
            replies: self.capacity,
            octets: ReplyCache::octets(self.capacity, SLOTS),
        }
    }

    pub(crate) const fn report(&self) -> Duplicates {
        Duplicates { kept: self.cache.len() as u64, ..self.counts }
    }

    /// Returns true if the records of the client's calls are on this shard. Otherwise requests them
    /// from their owner.
    pub(crate) fn knows(&mut self, from: PeerAddress, now: Time) -> bool {
        if self.is_alone {
            return true;
        }
        let slot = self.slot(from.into());
        match self.handle.locate(slot) {
            SlotLocation::Here => true,
            SlotLocation::With(owner) => {
                self.claim(slot, owner, now);
                false
            }
        }
    }

    /// Classifies a call as an original or a duplicate.
    pub(crate) fn judge(
        &mut self,
        from: PeerAddress,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
        now: Time,
    ) -> CacheVerdict<'_> {
        let client = CacheClient::from(from);
        let slot = self.slot(client);
        let key = self.keys.key(client, header, call);
        self.cache.judge(&key, slot, now, &mut self.counts)
    }

    /// The key of a call that may block in a store.
    pub(crate) fn name(
        &mut self,
        from: PeerAddress,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> UnderWay {
        let client = CacheClient::from(from);
        UnderWay { key: self.keys.key(client, header, call), slot: self.slot(client) }
    }

    /// The cached reply of such a call.
    pub(crate) fn replay(&mut self, call: &UnderWay, now: Time) -> Option<&[u8]> {
        self.cache.replay(&call.key, now, &mut self.counts)
    }

    /// Counts a retransmission of a call in flight.
    pub(crate) fn count_busy(&mut self) {
        self.counts.busy += 1;
    }

    /// Begins a change. Its client's replies stay on this shard until it [ends](Self::end).
    pub(crate) fn begin(&mut self, call: &UnderWay) {
        if let Some(count) = self.under_way.get_mut(call.slot) {
            *count += 1;
        }
    }

    /// Ends a change; caches its reply, if any.
    pub(crate) fn end(&mut self, call: &UnderWay, reply: Option<&[u8]>, now: Time) {
        if let Some(count) = self.under_way.get_mut(call.slot) {
            *count = count.saturating_sub(1);
        }
        if let Some(reply) = reply {
            self.cache.keep(&call.key, call.slot, KeptAt { octets: reply, now }, &mut self.counts);
        }
    }

    /// Caches the reply to an executed call.
    pub(crate) fn finish(&mut self, ticket: ReplyTicket, reply: &[u8]) {
        self.cache.finish(ticket, reply);
    }

    /// Queues a call; `None` when it cannot wait.
    pub(crate) fn wait(
        &mut self,
        cx: &Cx<'_>,
        CallSource { id, peer, from, .. }: CallSource,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> Option<()> {
        let is_large = |waiting: &&WaitingCall| waiting.copied.capacity() > config::MEDIUM_LEN;
        let has_room = self.waiting.len() < WAITING_MAX
            && self.waiting.iter().filter(is_large).count() < WAITING_LARGE_MAX;
        let copied = has_room.then(|| CopiedCall::of(cx, header, call)).flatten();
        let Some(copied) = copied else {
            self.counts.turned_away += 1;
            return None;
        };
        self.counts.waited += 1;
        let (slot, ask_at) = (self.slot(from.into()), cx.now() + PATIENCE);
        self.waiting.push_back(WaitingCall { id, peer, from, copied, slot, ask_at });
        Some(())
    }

    /// Drops calls of a peer that can no longer be answered: its client will retransmit them.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.waiting.retain(|waiting| waiting.peer != peer);
    }

    /// Returns true if there is work that no fabric event announces: mail from other shards, or
    /// calls whose replies have to be requested again.
    pub(crate) fn has_work(&self) -> bool {
        !self.is_alone && (self.handle.has_messages() || !self.waiting.is_empty())
    }

    /// Reads the shard's mail.
    pub(crate) fn read_mail(&mut self, now: Time) {
        if self.is_alone || !self.handle.has_mail() {
            return;
        }
        while let Some(mail) = self.handle.next_message() {
            match mail {
                CacheMail::Claim { slot, by } => {
                    if !self.asked.contains(&(slot, by)) {
                        self.asked.push_back((slot, by));
                    }
                }
                CacheMail::Grant { slot, moved } => {
                    self.counts.fetched += 1;
                    self.cache.put(slot, moved, &mut self.counts);
                    self.handle.keep(slot);
                    self.answered(slot);
                }
                CacheMail::Refusal { slot } => {
                    self.answered(slot);
                    let is_needed = self.waiting.iter().any(|waiting| waiting.slot == slot);
                    if is_needed && let SlotLocation::With(owner) = self.handle.locate(slot) {
                        self.claim(slot, owner, now);
                    }
                }
            }
        }
    }

    /// The next call whose client's replies are here.
    pub(crate) fn next_ready(&mut self, now: Time) -> Option<WaitingCall> {
        if self.waiting.is_empty() {
            return None;
        }
        let is_here =
            |waiting: &WaitingCall| self.handle.locate(waiting.slot) == SlotLocation::Here;
        match self.waiting.iter().position(is_here) {
            Some(place) => self.waiting.remove(place),
            None => {
                self.ask_again(now);
                None
            }
        }
    }

    /// Repeats requests without an answer. A request or an answer may have been lost in a full
    /// inbox, or with a shard that ended.
    fn ask_again(&mut self, now: Time) {
        for place in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.get_mut(place).filter(|waiting| waiting.ask_at <= now)
            else {
                continue;
            };
            waiting.ask_at = now + PATIENCE;
            let slot = waiting.slot;
            if let SlotLocation::With(owner) = self.handle.locate(slot) {
                self.counts.asked_again += 1;
                self.claim(slot, owner, now);
            }
        }
    }

    /// Hands requested slots to other shards. To be called when no call is being executed or ready:
    /// a slot that came for a call does not leave before that call was executed.
    pub(crate) fn write_mail(&mut self) {
        for _ in 0..self.asked.len() {
            let Some((slot, by)) = self.asked.pop_front() else { return };
            if self.under_way.get(slot).is_some_and(|count| *count > 0) {
                // The repeated call may be in flight: the answer follows its end.
                self.asked.push_back((slot, by));
                continue;
            }
            if self.handle.locate(slot) != SlotLocation::Here || self.cache.is_busy() {
                // If its inbox is full it asks again.
                let _ = self.handle.post(by, CacheMail::Refusal { slot });
                continue;
            }
            let moved = self.cache.take(slot);
            self.handle.send_off(slot, by);
            match self.handle.post(by, CacheMail::Grant { slot, moved }) {
                Ok(()) => self.counts.given += 1,
                Err(CacheMail::Grant { slot, moved }) => {
                    self.cache.put(slot, moved, &mut self.counts);
                    self.handle.keep(slot);
                }
                Err(_) => unreachable!("the message that comes back is the one that was posted"),
            }
        }
    }

    /// Requests a slot, unless that was done recently.
    fn claim(&mut self, slot: usize, owner: usize, now: Time) {
        let Some(claim) = self.claims.get_mut(slot) else { return };
        if claim.is_some_and(|at| now.since(at) < PATIENCE) {
            return;
        }
        let mail = CacheMail::Claim { slot, by: self.handle.index() };
        *claim = self.handle.post(owner, mail).is_ok().then_some(now);
    }

    fn answered(&mut self, slot: usize) {
        if let Some(claim) = self.claims.get_mut(slot) {
            *claim = None;
        }
    }

    fn slot(&self, client: CacheClient) -> usize {
        self.keys.client(client) as usize % SLOTS
    }
}

/// A call in a buffer of its own, which is carried out later.
#[derive(Debug)]
pub(crate) struct CopiedCall {
    /// Its header and arguments, all inline.
    message: Buf,
    /// Its user, where a context of RPCSEC_GSS proves it: the header then has none.
    proven: Option<ProvenUser<'static>>,
}

impl CopiedCall {
    /// Copies a call; `None` without memory.
    pub(crate) fn of(cx: &Cx<'_>, header: &CallHeader<'_>, call: &v3::Call<'_>) -> Option<Self> {
        let lens =
            [config::INLINE_LEN, config::MEDIUM_LEN - HEAD_ROOM, config::LARGE_LEN - HEAD_ROOM];
        lens.into_iter().find_map(|len| Self::within(cx.message(len)?, header, call))
    }

    /// The same in this buffer; `None` if it is too short.
    fn within(mut message: Buf, header: &CallHeader<'_>, call: &v3::Call<'_>) -> Option<Self> {
        let (mut header, mut proven) = (*header, None);
        if let Credential::Proven(user) = header.credential {
            let ProvenUser { identity, service, unix, .. } = *user;
            header.credential = Credential::None;
            proven = Some(ProvenUser { identity, principal: "", service, unix });
        }
        write(&mut message, &header, call)?;
        Some(Self { message, proven })
    }

    /// Its header, and its arguments.
    pub(crate) fn parse(&self) -> Option<(CallHeader<'_>, Reader<'_>)> {
        let mut arguments = Reader::new(&self.message);
        let mut header = CallHeader::parse(&mut arguments).ok()?;
        if let Some(user) = &self.proven {
            header.credential = Credential::Proven(user);
        }
        Some((header, arguments))
    }

    /// Octets of its buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.message.capacity()
    }
}

fn write(message: &mut Buf, header: &CallHeader<'_>, call: &v3::Call<'_>) -> Option<()> {
    let mut writer = Writer::new(message.spare_mut());
    header.emit(&mut writer).ok()?;
    call.emit(&mut writer).ok()?;
    let len = writer.len();
    message.extend(len);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::{Class, Pool};
    use stag_protocol::{
        nfs::v3::{DirOpArgs, FileHandle, Name, RemoveArgs},
        rpc::{Auth, AuthSys, Gids, PrincipalId, UnixUser, Xid, gss::GssService},
    };

    #[test]
    fn a_copied_call_keeps_its_user_whatever_proves_it() {
        let pool = Pool::new(&[Class { slot_len: 1_024, count: 4 }]).unwrap();
        let gids = Gids::new(&[9]).unwrap();
        let dir = FileHandle::new(&[7; 44]).unwrap();
        let object = DirOpArgs { dir, name: Name(b"name") };
        let call = v3::Call::Remove(RemoveArgs { object });
        let identity = PrincipalId([5; 16]);
        let proven =
            |service, unix| ProvenUser { identity, principal: "alice@REALM", service, unix };
        let bare = proven(GssService::None, None);
        let mapped = proven(GssService::Privacy, Some(UnixUser { uid: 7, gid: 8, gids }));
        let sys = AuthSys { stamp: 1, machine_name: b"m", uid: 7, gid: 8, gids };
        for credential in [
            Credential::None,
            Credential::Sys(sys),
            Credential::Proven(&bare),
            Credential::Proven(&mapped),
        ] {
            let header = CallHeader {
                xid: Xid(5),
                program: v3::PROGRAM,
                version: v3::VERSION,
                procedure: 12,
                credential,
                verifier: Auth::NONE,
            };
            let copied = CopiedCall::within(pool.take(1_024).unwrap(), &header, &call).unwrap();
            let (found, arguments) = copied.parse().unwrap();
            // Of a principal, the identity is enough.
            let nameless;
            let kept = match credential {
                Credential::Proven(user) => {
                    nameless = ProvenUser { principal: "", ..*user };
                    Credential::Proven(&nameless)
                }
                credential => credential,
            };
            assert_eq!(found, CallHeader { credential: kept, ..header });
            assert_eq!(v3::Call::parse(Procedure::Remove, arguments), Ok(call));
        }
    }

    #[test]
    fn the_replies_of_a_client_stay_while_its_change_is_under_way_and_go_with_it() {
        let mut handles = CacheHandle::all(2).into_iter();
        let [mut here, mut there] = [(); 2].map(|()| ShardCache::new(handles.next().unwrap(), 16));
        let dir = FileHandle::new(&[7; 44]).unwrap();
        let object = DirOpArgs { dir, name: Name(b"name") };
        let call = v3::Call::Remove(RemoveArgs { object });
        let header = CallHeader {
            xid: Xid(5),
            program: v3::PROGRAM,
            version: v3::VERSION,
            procedure: 12,
            credential: Credential::None,
            verifier: Auth::NONE,
        };
        let (from, now) = (PeerAddress::Simulated, Time(1));
        // The first shard to be asked has the slot.
        let [owner, other] =
            if here.knows(from, now) { [&mut here, &mut there] } else { [&mut there, &mut here] };
        let name = owner.name(from, &header, &call);
        owner.begin(&name);
        assert!(!other.knows(from, now), "it asks for them");
        for _ in 0..3 {
            owner.read_mail(now);
            owner.write_mail();
            other.read_mail(now);
            assert!(!other.knows(from, now), "they stay");
        }
        owner.end(&name, Some(&[9; 100]), now);
        owner.write_mail();
        other.read_mail(now);
        assert!(other.knows(from, now) && !owner.knows(from, now));
        let same = other.name(from, &header, &call);
        assert_eq!(other.replay(&same, now), Some(&[9; 100][..]));
    }
}
