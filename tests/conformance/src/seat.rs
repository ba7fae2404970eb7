//! One end: work posted there, events it reported, and the rules that every event has to keep.

use stag_pools::{Buf, Fenced, RemoteKey};
use stag_verbs::{Cause, Event, Look, Memory, Provider, Qp, Status, Tag, Time};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A message that arrived.
#[derive(Debug)]
pub(crate) struct HeardMessage {
    /// The place.
    pub(crate) qp: Qp,
    /// Buffer with the content of the message.
    pub(crate) buf: Buf,
    /// With this proof.
    pub(crate) invalidated: Option<Fenced>,
}

/// Work that completed.
#[derive(Debug)]
pub(crate) struct DoneWork {
    /// The place.
    pub(crate) qp: Qp,
    /// As posted.
    pub(crate) tag: Tag,
    /// Status of the completion.
    pub(crate) status: Status,
    /// Memory that the work request held.
    pub(crate) memory: Memory,
}

impl DoneWork {
    /// The buffer it held.
    pub(crate) fn buf(self) -> Buf {
        match self.memory {
            Memory::Buf(buf) => buf,
            Memory::Fenced(fenced) => fenced.into_buf(),
            memory => panic!("{memory:?} is no buffer"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    Send,
    Write,
    Read,
    Invalidate(RemoteKey),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnPhase {
    Requested,
    Connecting,
    Established,
    /// Work failed: only failures and the end may follow.
    Failed,
}

/// An end of the fabric, the work asked of it, and the events it reported.
pub(crate) struct WatchedEnd<P> {
    pub(crate) end: Option<P>,
    pub(crate) conns: BTreeMap<Qp, ConnPhase>,
    pub(crate) pending: HashMap<Qp, VecDeque<(Tag, WorkKind)>>,
    pub(crate) windows: HashMap<RemoteKey, Qp>,
    pub(crate) receives: usize,
    pub(crate) names: HashSet<Qp>,
    pub(crate) requests: VecDeque<Qp>,
    pub(crate) received: VecDeque<HeardMessage>,
    /// Each event is looked for before it is polled for.
    looks: bool,
    pub(crate) done: VecDeque<DoneWork>,
    pub(crate) unbound: Vec<(Qp, Fenced)>,
    pub(crate) ended: Vec<(Qp, Cause)>,
    /// The private data of connections that ended.
    pub(crate) last_words: HashMap<Qp, Vec<u8>>,
}

impl<P: Provider> WatchedEnd<P> {
    pub(crate) fn new(end: P, looks: bool) -> Self {
        Self {
            end: Some(end),
            conns: BTreeMap::new(),
            pending: HashMap::new(),
            windows: HashMap::new(),
            receives: 0,
            names: HashSet::new(),
            requests: VecDeque::new(),
            received: VecDeque::new(),
            looks,
            done: VecDeque::new(),
            unbound: Vec::new(),
            ended: Vec::new(),
            last_words: HashMap::new(),
        }
    }

    /// The next event. An end that looks hears of messages as others do by their polls.
    pub(crate) fn next_event(&mut self, now: Time) -> Option<Event> {
        let end = self.end.as_mut()?;
        if !self.looks {
            return end.poll(now);
        }
        let mut room = vec![0; end.limits().receive_len];
        match end.look(now, &mut room).look() {
            Look::Message { qp, len } => {
                let mut buf = end.take_receive().expect("a receive is posted for the message");
                assert!(buf.is_empty(), "a receive that is taken back is empty");
                buf.append(&room[..len]).expect("a message fits a receive");
                Some(Event::Received { qp, buf, invalidated: None })
            }
            Look::Nothing => None,
            Look::Other => end.poll(now),
        }
    }

    pub(crate) fn meet(&mut self, qp: Qp, phase: ConnPhase) {
        assert!(self.names.insert(qp), "{qp:?} names another connection than before");
        self.conns.insert(qp, phase);
    }

    /// Checks the rules that hold for every event of every case, and records the event.
    pub(crate) fn judge(&mut self, event: Event) {
        match event {
            Event::ConnectRequest { qp } => {
                self.meet(qp, ConnPhase::Requested);
                self.requests.push_back(qp);
            }
            Event::Established { qp } => {
                let phase = self.conns.insert(qp, ConnPhase::Established);
                let may = matches!(phase, Some(ConnPhase::Requested | ConnPhase::Connecting));
                assert!(may, "a connection is established once: {qp:?} was {phase:?}");
            }
            Event::Received { qp, buf, invalidated } => {
                let phase = self.conns.get(&qp);
                let may = matches!(phase, Some(ConnPhase::Established | ConnPhase::Failed));
                assert!(
                    may,
                    "messages arrive between Established and Disconnected: {qp:?} was {phase:?}"
                );
                self.receives = self.receives.checked_sub(1).expect("a message takes a receive");
                if let Some(fenced) = &invalidated {
                    self.window_ends(qp, fenced.key());
                }
                self.received.push_back(HeardMessage { qp, buf, invalidated });
            }
            Event::Completed { qp, tag, status, memory } => {
                self.judge_completion(qp, tag, status, memory)
            }
            Event::Unbound { qp, fenced } => {
                assert!(self.conns.contains_key(&qp), "windows end before their connection");
                self.window_ends(qp, fenced.key());
                self.unbound.push((qp, fenced));
            }
            Event::Disconnected { qp, cause } => {
                assert!(self.conns.remove(&qp).is_some(), "{qp:?} ends once");
                let pending = self.pending.remove(&qp).unwrap_or_default();
                assert!(
                    pending.is_empty(),
                    "no work is pending when a connection ends: {pending:?}"
                );
                assert!(!self.windows.values().any(|other| *other == qp), "no window is left");
                self.requests.retain(|request| *request != qp);
                let words = self.end.as_ref().map(|end| end.private_data(qp).to_vec());
                self.last_words.insert(qp, words.unwrap_or_default());
                self.ended.push((qp, cause));
            }
        }
    }

    fn judge_completion(&mut self, qp: Qp, tag: Tag, status: Status, memory: Memory) {
        assert!(self.conns.contains_key(&qp), "nothing completes after Disconnected");
        let oldest = self.pending.get_mut(&qp).and_then(VecDeque::pop_front);
        let Some((expected, kind)) = oldest else {
            panic!("{tag:?} completes, but nothing is pending")
        };
        assert_eq!(tag, expected, "work completes in order");
        let is_success = status == Status::Success;
        match (kind, &memory) {
            (WorkKind::Send | WorkKind::Read, Memory::Buf(_))
            | (WorkKind::Write, Memory::Shared) => {}
            (WorkKind::Invalidate(key), Memory::Fenced(fenced)) if is_success => {
                assert_eq!(fenced.key(), key);
                self.window_ends(qp, key);
            }
            (WorkKind::Invalidate(key), Memory::Bound) if !is_success => {
                assert_eq!(self.windows.get(&key), Some(&qp), "its end is still to come");
            }
            _ => panic!("{kind:?} completes {status:?} with {memory:?}"),
        }
        let phase = self.conns.get_mut(&qp).unwrap();
        assert!(!(is_success && *phase == ConnPhase::Failed), "nothing succeeds behind a failure");
        if !is_success {
            *phase = ConnPhase::Failed;
        }
        self.done.push_back(DoneWork { qp, tag, status, memory });
    }

    fn window_ends(&mut self, qp: Qp, key: RemoteKey) {
        assert_eq!(
            self.windows.remove(&key),
            Some(qp),
            "a window ends once, on its own connection"
        );
    }
}
