//! Messages between the stores of several shards: a file is gone, a write descriptor conflicts, or
//! space is short.
//!
//! A file that one store removes keeps its space as long as another has it open. The others are
//! notified by mail, which wakes no shard: a sleeping one reads it within a second. Only a store
//! that meets a full file system wakes them, and waits briefly.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::Receiver,
    },
    time::{Duration, Instant},
};

use crate::{exports::handle::FileId, shard_mailbox::Inbox};

/// A message from one store to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SiblingMessage {
    /// The file lost its last name.
    Removed(FileId),
    /// The descriptor a file is written through conflicts with another use.
    StopWriting(FileId),
}

/// Messages queued for one store. When the queue is full, removed files are found by a search of
/// all open files.
const MESSAGES_MAX: usize = 1_024;
/// Longest time that a store short of space waits for the others.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time between two checks for their answers.
pub(super) const LOOK: Duration = Duration::from_micros(50);

/// The stores of all shards.
#[derive(Debug)]
pub(super) struct Siblings(Box<[Sibling]>);

#[derive(Debug)]
struct Sibling {
    inbox: Inbox<SiblingMessage>,
    messages: Mutex<Option<Receiver<SiblingMessage>>>,
    /// Requests to close removed files, so far.
    asked: AtomicU64,
    /// Requests carried out; all, if the store is not open.
    done: AtomicU64,
}

/// One store's registration.
#[derive(Debug)]
pub(super) struct SiblingMail {
    shard: usize,
    mail: Option<Receiver<SiblingMessage>>,
}

/// A request to close removed files.
#[derive(Debug)]
pub(super) struct RoomRequest {
    until: Instant,
    is_alone: bool,
    /// Shards that have not answered yet, each with its request's number.
    waiting: Vec<(usize, u64)>,
}

/// The outcome of asking for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is no other store to ask.
    None,
    /// All stores closed their removed files.
    Made,
    /// A store has not answered yet.
    Awaited,
}

impl SiblingMail {
    /// The number of the store.
    pub const fn shard(&self) -> usize {
        self.shard
    }
}

impl Siblings {
    /// Creates this number of stores.
    pub fn new(shards: usize) -> Self {
        let sibling = |_| {
            let (inbox, messages) = Inbox::new(if shards > 1 { MESSAGES_MAX } else { 1 });
            let messages = Mutex::new(Some(messages));
            Sibling { inbox, messages, asked: AtomicU64::new(0), done: AtomicU64::new(u64::MAX) }
        };
        Self((0..shards).map(sibling).collect())
    }

    /// Opens the messages of store number `shard`; only the first caller gets the mail.
    pub fn open(&self, shard: usize) -> SiblingMail {
        let sibling = self.0.get(shard);
        let mail = sibling.and_then(|sibling| {
            sibling.done.store(0, Ordering::Release);
            sibling.messages.lock().unwrap_or_else(PoisonError::into_inner).take()
        });
        SiblingMail { shard, mail }
    }

    /// Registers `wake` to wake this shard when space is short, or for another event of the store.
    pub fn attach(&self, shard: usize, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(sibling) = self.0.get(shard) {
            sibling.inbox.attach(wake);
        }
    }

    /// Wakes a shard.
    pub fn wake(&self, shard: usize) {
        if let Some(sibling) = self.0.get(shard) {
            sibling.inbox.wake();
        }
    }

    /// Notifies the others that a file lost its last name.
    pub fn tell_removed(&self, messages: &SiblingMail, file: FileId) {
        for (_, sibling) in self.others(messages) {
            if sibling.inbox.put(SiblingMessage::Removed(file)).is_err() {
                sibling.ask();
            }
        }
    }

    /// Asks the others to close their write descriptors of a file, and wakes them. Stores with a
    /// full queue miss the request.
    pub fn ask_to_stop_writing(&self, messages: &SiblingMail, file: FileId) {
        for (_, sibling) in self.others(messages) {
            let _ = sibling.inbox.put(SiblingMessage::StopWriting(file));
            sibling.inbox.wake();
        }
    }

    /// Asks the others to close removed files.
    pub fn ask_for_room(&self, messages: &SiblingMail) -> RoomRequest {
        let waiting: Vec<_> =
            self.others(messages).map(|(at, sibling)| (at, sibling.ask())).collect();
        RoomRequest { until: Instant::now() + PATIENCE, is_alone: waiting.is_empty(), waiting }
    }

    /// The outcome of a request; none while waiting is worthwhile.
    pub fn outcome(&self, request: &mut RoomRequest) -> Option<Room> {
        let RoomRequest { until, is_alone, waiting } = request;
        waiting
            .retain(|(at, goal)| self.0.get(*at).is_some_and(|sibling| !sibling.has_done(*goal)));
        match waiting.is_empty() {
            true if *is_alone => Some(Room::None),
            true => Some(Room::Made),
            false => (Instant::now() >= *until).then_some(Room::Awaited),
        }
    }

    /// True when there is mail, until it was checked.
    pub fn is_written_to(&self, messages: &SiblingMail) -> bool {
        self.0.get(messages.shard).is_some_and(|sibling| sibling.inbox.is_filled())
    }

    /// True when there is mail, once; costs one load when there is none.
    pub fn has_mail(&self, messages: &SiblingMail) -> bool {
        self.0.get(messages.shard).is_some_and(|sibling| sibling.inbox.look())
    }

    /// The number of the last unanswered request to close removed files.
    pub fn asked(&self, messages: &SiblingMail) -> Option<u64> {
        let own = self.0.get(messages.shard)?;
        let asked = own.asked.load(Ordering::Acquire);
        (!own.has_done(asked)).then_some(asked)
    }

    /// Reports to the requesters, up to this request, that all files removed before it are closed.
    pub fn answer(&self, messages: &SiblingMail, asked: u64) {
        if let Some(own) = self.0.get(messages.shard) {
            own.done.store(asked, Ordering::Release);
        }
    }

    /// The store is gone: no shard needs to wait for it.
    pub fn leave(&self, messages: &SiblingMail) {
        if let Some(own) = self.0.get(messages.shard) {
            own.done.store(u64::MAX, Ordering::Release);
        }
    }

    fn others(&self, messages: &SiblingMail) -> impl Iterator<Item = (usize, &Sibling)> {
        let own = messages.shard;
        self.0.iter().enumerate().filter(move |(at, _)| *at != own)
    }
}

impl Sibling {
    fn ask(&self) -> u64 {
        let goal = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.inbox.wake();
        goal
    }

    fn has_done(&self, goal: u64) -> bool {
        self.done.load(Ordering::Acquire) >= goal
    }
}

impl SiblingMail {
    /// The next message from another store.
    pub fn next_message(&self) -> Option<SiblingMessage> {
        self.mail.as_ref()?.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::config::ExportId;

    fn file(inode: u64) -> FileId {
        FileId { export: ExportId(1), inode }
    }

    #[test]
    fn the_others_hear_of_a_removal_and_a_full_box_asks_them_to_look_at_all() {
        let siblings = Siblings::new(3);
        let [a, b, c] = [0, 1, 2].map(|shard| siblings.open(shard));
        siblings.tell_removed(&a, file(5));
        assert!(!siblings.has_mail(&a) && siblings.has_mail(&b) && siblings.has_mail(&c));
        let removed = SiblingMessage::Removed(file(5));
        assert_eq!((b.next_message(), b.next_message()), (Some(removed), None));
        let woken = std::sync::Arc::new(AtomicU64::new(0));
        let count = std::sync::Arc::clone(&woken);
        siblings.attach(1, move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        siblings.ask_to_stop_writing(&a, file(5));
        assert_eq!(woken.load(Ordering::Relaxed), 1, "it may have nothing else to do");
        assert_eq!(b.next_message(), Some(SiblingMessage::StopWriting(file(5))));
        assert_eq!(siblings.asked(&c), None);
        for inode in 0..=MESSAGES_MAX as u64 {
            siblings.tell_removed(&b, file(inode));
        }
        let asked = siblings.asked(&c).unwrap();
        siblings.answer(&c, asked);
        assert!(siblings.asked(&c).is_none() && siblings.asked(&a).is_some());
    }

    #[test]
    fn a_request_that_comes_while_another_is_carried_out_is_not_answered_with_that() {
        let siblings = Siblings::new(3);
        let [a, b, c] = [0, 1, 2].map(|shard| siblings.open(shard));
        siblings.leave(&c);
        let mut first = siblings.ask_for_room(&a);
        let asked = siblings.asked(&b).unwrap();
        let mut second = siblings.ask_for_room(&c);
        siblings.answer(&b, asked);
        assert_eq!(siblings.outcome(&mut first), Some(Room::Made));
        assert_eq!(siblings.outcome(&mut second), None);
        assert_eq!(siblings.asked(&b), Some(asked + 1));
    }

    /// Waits for the outcome, as a store without requests to serve does.
    fn await_outcome(siblings: &Siblings, mut request: RoomRequest) -> Room {
        loop {
            match siblings.outcome(&mut request) {
                Some(room) => return room,
                None => std::thread::sleep(LOOK),
            }
        }
    }

    #[test]
    fn who_is_short_of_room_waits_for_an_answer_but_not_long_and_for_nobody_who_is_gone() {
        let siblings = Siblings::new(2);
        let a = siblings.open(0);
        let began = Instant::now();
        let room = |siblings: &Siblings, messages| {
            await_outcome(siblings, siblings.ask_for_room(messages))
        };
        assert_eq!(room(&siblings, &a), Room::Made, "nobody has the other open");
        let b = siblings.open(1);
        assert_eq!(room(&siblings, &a), Room::Awaited, "it does not answer");
        assert!(began.elapsed() >= PATIENCE);
        siblings.leave(&b);
        assert_eq!(room(&siblings, &a), Room::Made);
        let alone = Siblings::new(1);
        assert_eq!(room(&alone, &alone.open(0)), Room::None);
    }
}
