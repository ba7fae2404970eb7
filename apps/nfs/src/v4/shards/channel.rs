//! Messages between the *home*, the shard that has all clients and state of version 4, and the
//! shards that forward calls to it.
//!
//! | message | from | about |
//! |---|---|---|
//! | a compound | an arrival shard | a call of one of its connections |
//! | a question | an arrival shard | a call of version 3 that state may conflict with |
//! | the end of a callback, of a connection | an arrival shard | its connections |
//! | the reply of a compound, a verdict | the home | an earlier message |
//! | a callback, callbacks may come, disconnect | the home | a connection of the other shard |
//! | a compound comes back | the home | one whose session's slots the other shard has got since |
//!
//! Messages from one shard to another arrive in order. Sending to a full box is retried in the next
//! pass. An arrival shard has at most [`FORWARDED_MAX`] compounds and [`QUESTIONS_MAX`] questions
//! unanswered, and as many compounds, with arguments of [`OCTETS_MAX`], that the home has not read.
//! Compounds of closed connections count there, so that reconnecting while the home is busy cannot
//! fill memory. OPENs that the home completes (`split_open`) begin within these bounds, and may
//! exceed them by the number that a shard lets wait (`suspended`). All queues are bounded by these
//! limits, by the slots of back channels, and by connections.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    sync::{Arc, mpsc::Receiver},
};

use stag_engine::{CallId, ItemLists, PeerAddress, PeerId, Pulled, Token};
use stag_protocol::{
    nfs::{v3::FileHandle, v4::SessionId},
    xdr::Reader,
};

use super::{
    delegation_barrier::DelegationBarrier,
    messages::{ForwardedCompound, FromHome, ToHome, Unread},
    shared_flags::SharedFlags,
};
use crate::{
    reply_cache::CopiedCall,
    requester::{CallSource, Requester, ShardPeer},
    v4::{
        context::{shard_context::FORWARDED_MAX, state_calls::file_id},
        interpreter::CallFacts,
        session::{BegunSlot, CertificateNames, UsedSlots},
        v3_conflicts::ConflictQuery,
    },
};
use stag_nfs_store::{
    Caller,
    shard_mailbox::{Inbox, Wakeup},
};

/// Limit of calls of version 3 that wait for a verdict. Above it, NFS3ERR_JUKEBOX.
const QUESTIONS_MAX: usize = 64;
/// Messages that a box has room for.
const MESSAGES_MAX: usize = 512;

/// Role of one shard when several serve version 4 together.
pub struct Nfs4Link(pub(in crate::v4) LinkEnd);

/// The two roles.
pub(in crate::v4) enum LinkEnd {
    Home(Box<HomeEnd>),
    Arrival(ArrivalMail),
}

impl fmt::Debug for Nfs4Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            LinkEnd::Home(_) => "Nfs4Link(home)",
            LinkEnd::Arrival(_) => "Nfs4Link(arrival)",
        })
    }
}

impl Nfs4Link {
    /// The roles of `shards` shards, at most 65,535, in their order: the first is the home.
    pub fn all(shards: usize) -> Vec<Self> {
        let shards = u16::try_from(shards.max(1)).unwrap_or(u16::MAX);
        let (home, to_home) = Inbox::new(MESSAGES_MAX * usize::from(shards));
        let (home, facts) = (Arc::new(home), Arc::new(SharedFlags::default()));
        let mut arrivals = Vec::new();
        let mut boxes = Vec::new();
        for shard in 1..shards {
            let (inbox, messages) = Inbox::new(MESSAGES_MAX);
            let inbox = Arc::new(inbox);
            boxes.push(OtherShard { inbox: Arc::clone(&inbox), messages: VecDeque::new() });
            let (home, facts) = (Arc::clone(&home), Arc::clone(&facts));
            let mail = ArrivalMail { shard, home, inbox, messages, facts };
            arrivals.push(Self(LinkEnd::Arrival(mail)));
        }
        let (kept, unread, loans) = (VecDeque::new(), Unread::default(), 0);
        let messages = to_home;
        let announcements = DelegationBarrier::new(boxes.len());
        let end = HomeEnd {
            inbox: home,
            messages,
            others: boxes,
            facts,
            kept,
            unread,
            loans,
            following: Vec::new(),
            announcements,
        };
        std::iter::once(Self(LinkEnd::Home(Box::new(end)))).chain(arrivals).collect()
    }

    /// Wakes this shard when it has mail.
    pub fn wakeup(&self) -> Wakeup {
        match &self.0 {
            LinkEnd::Home(end) => Wakeup::new(&end.inbox),
            LinkEnd::Arrival(end) => Wakeup::new(&end.inbox),
        }
    }
}

/// Messages to a shard that wait for room in its box.
struct OtherShard {
    inbox: Arc<Inbox<FromHome>>,
    messages: VecDeque<FromHome>,
}

/// The home's end.
pub(crate) struct HomeEnd {
    inbox: Arc<Inbox<ToHome>>,
    messages: Receiver<ToHome>,
    /// From shard 1 on.
    others: Vec<OtherShard>,
    pub(in crate::v4) facts: Arc<SharedFlags>,
    /// Compounds whose turn has not come: their session's slots are on another shard, or there was
    /// no memory for one whose request is begun.
    pub(in crate::v4) kept: VecDeque<Box<ForwardedCompound>>,
    /// Argument octets of kept compounds that arrived on the home itself.
    pub(in crate::v4) unread: Unread,
    /// Sessions that are lent.
    pub(in crate::v4) loans: usize,
    /// Sessions to lend to the shards that their requests come from.
    pub(in crate::v4) following: Vec<(SessionId, u16)>,
    /// Announced files, which may get delegations.
    pub(in crate::v4) announcements: DelegationBarrier,
}

impl fmt::Debug for HomeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HomeEnd({} others)", self.others.len())
    }
}

impl HomeEnd {
    /// The next message.
    pub(in crate::v4) fn next_message(&self) -> Option<ToHome> {
        self.messages.try_recv().ok()
    }

    /// Returns true if messages came since the last look.
    pub(in crate::v4) fn has_mail(&self) -> bool {
        self.inbox.look()
    }

    /// The number of other shards.
    pub(in crate::v4) fn others_count(&self) -> u16 {
        u16::try_from(self.others.len()).unwrap_or(u16::MAX)
    }

    /// Queues a message to a shard.
    pub(in crate::v4) fn tell(&mut self, shard: u16, message: FromHome) {
        let place = usize::from(shard).checked_sub(1);
        let Some(other) = place.and_then(|place| self.others.get_mut(place)) else {
            debug_assert!(false, "messages go to other shards");
            return;
        };
        other.messages.push_back(message);
    }

    /// Puts messages into the boxes of their shards.
    pub(in crate::v4) fn send(&mut self) {
        for other in &mut self.others {
            send(&other.inbox, &mut other.messages);
        }
    }

    /// Returns true if there is mail, or messages wait for room.
    pub(in crate::v4) fn has_work(&self) -> bool {
        self.inbox.is_filled()
            || !self.kept.is_empty()
            || self.others.iter().any(|other| !other.messages.is_empty())
    }
}

/// Puts messages into a box as long as there is room, and wakes its shard.
fn send<T>(inbox: &Inbox<T>, messages: &mut VecDeque<T>) {
    let before = messages.len();
    while let Some(message) = messages.pop_front() {
        if let Err(message) = inbox.put(message) {
            messages.push_front(message);
            break;
        }
    }
    if messages.len() < before {
        inbox.wake();
    }
}

/// A compound that was forwarded.
#[derive(Clone, Copy, Debug)]
struct Forwarded {
    id: CallId,
    peer: PeerId,
    from: PeerAddress,
    /// Its slot awaits the reply, even if its caller is gone.
    is_begun: bool,
}

/// A call of version 3 that waits for a verdict.
#[derive(Debug)]
pub(crate) struct AwaitedVerdict {
    pub(crate) source: CallSource,
    pub(crate) copied: CopiedCall,
}

/// The boxes of a shard that forwards.
pub(in crate::v4) struct ArrivalMail {
    shard: u16,
    home: Arc<Inbox<ToHome>>,
    inbox: Arc<Inbox<FromHome>>,
    messages: Receiver<FromHome>,
    facts: Arc<SharedFlags>,
}

/// The end of a shard that forwards.
pub(crate) struct ArrivalEnd {
    mail: ArrivalMail,
    outgoing: VecDeque<ToHome>,
    /// Compounds that release states in use by requests executing here.
    held_back: Vec<ForwardedCompound>,
    forwarded: Vec<Forwarded>,
    /// Lists for replies of the home with several items.
    pub(crate) item_lists: ItemLists,
    /// Argument octets that the home has not read.
    unread: Unread,
    /// This shard can check the requests of sessions itself.
    takes_loans: bool,
    questions: Vec<AwaitedVerdict>,
    /// The announcement to confirm when all calls that began before it are complete.
    announced: Option<u64>,
    /// Peers that the home knows.
    peers: HashSet<PeerId>,
    /// Compounds that were forwarded so far.
    pub(crate) count: u64,
    /// Calls of version 3 that the home was asked about.
    pub(crate) asked: u64,
}

impl fmt::Debug for ArrivalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrivalEnd({} forwarded)", self.forwarded.len())
    }
}

impl ArrivalEnd {
    /// Nothing is pending yet.
    pub(in crate::v4) fn new(mail: ArrivalMail) -> Self {
        Self {
            mail,
            outgoing: VecDeque::new(),
            held_back: Vec::new(),
            forwarded: Vec::new(),
            item_lists: ItemLists::default(),
            unread: Unread::default(),
            takes_loans: false,
            questions: Vec::new(),
            announced: None,
            peers: HashSet::new(),
            count: 0,
            asked: 0,
        }
    }

    /// Returns true if no object has a delegation that conflicts with a look at it.
    pub(crate) fn sees_no_delegation(&self) -> bool {
        !self.mail.facts.may_conflict(None)
    }

    /// Returns true if no delegation of an object conflicts with a look at it.
    pub(crate) fn may_look_at(&self, object: &FileHandle) -> bool {
        self.sees_no_delegation() || !self.mail.facts.may_conflict(Some(file_id(object)))
    }

    /// Accepts loans of the sessions of this shard's connections. Returns the facts about them.
    pub(in crate::v4) fn take_loans(&mut self) -> Arc<SharedFlags> {
        self.takes_loans = true;
        Arc::clone(&self.mail.facts)
    }

    /// Returns true if a compound with `octets` of arguments, whose call came `from` there, can be
    /// forwarded. Each host leaves places to others.
    pub(crate) fn has_room(&self, octets: usize, from: PeerAddress) -> bool {
        let free = FORWARDED_MAX.saturating_sub(self.forwarded.len());
        // While few are in flight, no host has too many.
        let has_share = self.forwarded.len() < FORWARDED_MAX / 2 || {
            let is_of_host = |forwarded: &&Forwarded| forwarded.from.is_of_host(&from);
            self.forwarded.iter().filter(is_of_host).count() < free
        };
        free > 0 && has_share && self.unread.has_room(octets)
    }

    /// Returns true if a compound that may be held back for long can be forwarded: others find at
    /// least half of the places.
    pub(crate) fn has_spare_room(&self) -> bool {
        self.forwarded.len() < FORWARDED_MAX / 2 && self.unread.is_half_empty()
    }

    /// Forwards a compound, whose request may be begun here. Returns false when too many are
    /// outstanding.
    pub(crate) fn forward(
        &mut self,
        source: CallSource,
        caller: Caller,
        facts: CallFacts,
        arguments: &Reader<'_>,
        begun: Option<BegunSlot>,
    ) -> bool {
        if !self.has_room(arguments.remaining(), source.from) {
            return false;
        }
        self.send_compound(source, begun, |unread, source| {
            ForwardedCompound::of(unread, source, caller, facts, arguments)
        });
        true
    }

    /// Holds back the compound that was forwarded last until it is [released](Self::let_go).
    pub(crate) fn hold_back(&mut self) {
        match self.outgoing.pop_back() {
            Some(ToHome::Compound(compound)) => self.held_back.push(*compound),
            other => self.outgoing.extend(other),
        }
    }

    /// Sends held-back compounds that may go.
    pub(crate) fn let_go(&mut self, may_go: impl Fn(&ForwardedCompound) -> bool) {
        let going = self.held_back.extract_if(.., |compound| may_go(compound));
        self.outgoing.extend(going.map(|compound| ToHome::Compound(Box::new(compound))));
    }

    /// Sends a copy of a compound.
    pub(in crate::v4) fn send_compound(
        &mut self,
        source: CallSource,
        begun: Option<BegunSlot>,
        copy: impl FnOnce(&Unread, CallSource) -> ForwardedCompound,
    ) {
        let (id, peer) = (source.id, source.peer);
        let source = CallSource { shard: self.mail.shard, ..source };
        let mut compound = copy(&self.unread, source);
        (compound.begun, compound.takes_loans) = (begun, self.takes_loans);
        self.outgoing.push_back(ToHome::Compound(Box::new(compound)));
        self.forwarded.push(Forwarded { id, peer, from: source.from, is_begun: begun.is_some() });
        self.peers.insert(peer);
        self.count += 1;
    }

    /// Notes an announcement: its files may get delegations from here on.
    pub(crate) fn note_announced(&mut self, number: u64) {
        self.announced = Some(number);
    }

    /// Confirms an announcement, unless calls are pending that may have begun before it.
    pub(crate) fn answer_announced(&mut self, are_under_way: bool) {
        if !are_under_way && let Some(number) = self.announced.take() {
            self.outgoing.push_back(ToHome::Announced(self.mail.shard, number));
        }
    }

    /// Reports that this shard has dropped a client.
    pub(crate) fn tell_unsettled(&mut self, client: u64) {
        self.outgoing.push_back(ToHome::Unsettled(client));
    }

    /// Returns the slots of a session to the home.
    pub(crate) fn give_back(&mut self, session: SessionId, slots: UsedSlots) {
        self.outgoing.push_back(ToHome::Returned(session, slots));
    }

    /// Returns true if the home has to be asked before a call of version 3 is executed.
    pub(crate) fn is_beside(&self) -> bool {
        self.mail.facts.may_conflict(None)
    }

    /// The same for a call whose question is known.
    pub(crate) fn may_conflict(&self, question: &ConflictQuery) -> bool {
        let facts = &self.mail.facts;
        facts.spoil_reclaims() || facts.may_conflict(question.file())
    }

    /// Returns true if one more call may wait for a verdict.
    pub(crate) fn may_ask(&self) -> bool {
        // Messages of closed connections are sent, too.
        self.questions.len() < QUESTIONS_MAX && self.outgoing.len() < MESSAGES_MAX
    }

    /// Asks the home about a waiting call.
    pub(crate) fn ask(&mut self, call: AwaitedVerdict, caller: Caller, question: ConflictQuery) {
        let CallSource { id, peer, .. } = call.source;
        let requester = Requester { id, peer, shard: self.mail.shard };
        self.outgoing.push_back(ToHome::Question { requester, caller, question });
        self.questions.push(call);
        self.asked += 1;
    }

    /// The call of a verdict, if its caller is still connected.
    pub(crate) fn take_question(&mut self, id: CallId) -> Option<AwaitedVerdict> {
        let place = self.questions.iter().position(|call| call.source.id == id)?;
        Some(self.questions.swap_remove(place))
    }

    /// The peer of a compound that is answered, if it is still connected.
    pub(crate) fn take_forwarded(&mut self, id: CallId) -> Option<PeerId> {
        let place = self.forwarded.iter().position(|forwarded| forwarded.id == id)?;
        Some(self.forwarded.swap_remove(place).peer)
    }

    /// A callback has ended.
    pub(crate) fn called_back(&mut self, peer: PeerId, token: Token, reply: Option<&[u8]>) {
        let (at, reply) = (ShardPeer { shard: self.mail.shard, peer }, reply.map(Into::into));
        self.outgoing.push_back(ToHome::CalledBack { at, token, reply });
    }

    /// Reports the certificate of a connection.
    pub(crate) fn tell_certificate(&mut self, peer: PeerId, names: CertificateNames) {
        let at = ShardPeer { shard: self.mail.shard, peer };
        self.peers.insert(peer);
        self.outgoing.push_back(ToHome::Certificate(at, names));
    }

    /// Returns true for a connection that is open, and that the home knows.
    pub(crate) fn knows(&self, peer: PeerId) -> bool {
        self.peers.contains(&peer)
    }

    /// A connection was closed.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.questions.retain(|call| call.source.peer != peer);
        self.forwarded.retain(|forwarded| forwarded.peer != peer || forwarded.is_begun);
        if self.peers.remove(&peer) {
            let at = ShardPeer { shard: self.mail.shard, peer };
            self.outgoing.push_back(ToHome::PeerGone(at));
        }
    }

    /// Returns true if messages came since the last look.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.inbox.look()
    }

    /// The next message.
    pub(crate) fn next_message(&self) -> Option<FromHome> {
        self.mail.messages.try_recv().ok()
    }

    /// Puts messages into the home's box.
    pub(crate) fn send(&mut self) {
        send(&self.mail.home, &mut self.outgoing);
    }

    /// Returns true if there is mail, or messages wait for room.
    pub(crate) fn has_work(&self) -> bool {
        self.mail.inbox.is_filled() || !self.outgoing.is_empty() || self.announced.is_some()
    }
}

impl AwaitedVerdict {
    /// The call as the engine delivered it, but in one piece. None only if its copy is damaged.
    pub(crate) fn call(&self) -> Option<stag_engine::Call<'_>> {
        let (header, arguments) = self.copied.parse()?;
        let CallSource { id, peer, from, .. } = self.source;
        let from: PeerAddress = from;
        Some(stag_engine::Call { id, peer, from, header, arguments, pulled: Pulled::default() })
    }
}
