//! The home's answers to questions of administrators.

use std::sync::mpsc::SyncSender;

use stag_engine::Time;
use stag_nfs_store::Store;
use stag_nfs4_state::{ListedState, StateFilter};
use stag_protocol::nfs::v3::FileHandle;

use super::{Asked, CallbackPath, ClientFacts, GraceFacts, StateAnswer, StateFacts, StateQuestion};
use crate::{
    records::RecordChange,
    v4::{
        Nfs4,
        context::state_calls::file_id,
        milliseconds,
        recovery::record_writer::AfterRecord,
        session::{CLIENTS, Client, RecordPhase, description::OWNER_MAX},
    },
};

/// Places of the table of clients that one page examines.
const PLACES_PER_PAGE: usize = 512;
/// Absent clients of a grace period that an answer names.
const ABSENT_MAX: usize = 512;
/// Clients that are being ended for administrators, at most.
const EXPIRING_MAX: usize = 64;

/// A client that is being ended, and the channel for the answer.
pub(in crate::v4) type ExpiringClient = (u64, SyncSender<StateAnswer>);

impl Nfs4 {
    /// Answers the questions that were asked. Called once in a pass, at the home.
    #[inline]
    pub(crate) fn answer_desk(&mut self, store: &impl Store, now: Time) {
        for Asked { question, answer } in self.desk.take() {
            self.answer_one(store, question, answer, now);
        }
        if !self.expiring.is_empty() {
            self.end_expiring(now);
        }
    }

    #[cold]
    fn answer_one(
        &mut self,
        store: &impl Store,
        question: StateQuestion,
        to: SyncSender<StateAnswer>,
        now: Time,
    ) {
        let answer = match question {
            StateQuestion::Clients { from } => {
                // The shards that have the slots of a client know its last request.
                self.renew_lent(now);
                self.clients_page(from, now)
            }
            StateQuestion::States { kind, client, handle, from } => {
                let key = client.map(|id| self.clients.get(id).and_then(|client| client.key));
                let file = handle.map(|handle| FileHandle::new(&handle).map(|it| file_id(&it)));
                match (key, file) {
                    (Some(None), _) => StateAnswer::NoSuchClient,
                    // No file has this handle.
                    (_, Some(None)) => StateAnswer::States(Vec::new(), None),
                    (client, file) => {
                        let (client, file) = (client.flatten(), file.flatten());
                        let filter = StateFilter { kind, client, file };
                        let (states, next) = self.state.list_states(&filter, from);
                        let states = states.into_iter().map(|state| facts(store, state));
                        StateAnswer::States(states.collect(), next)
                    }
                }
            }
            StateQuestion::Expire { client } => {
                let known = self.clients.get(client).is_some();
                let has_room = self.expiring.len() < EXPIRING_MAX;
                let pending = self.expiring.iter_mut().find(|(pending, _)| *pending == client);
                match pending {
                    // An earlier order for it has timed out.
                    Some((_, waiting)) => {
                        *waiting = to;
                        return;
                    }
                    None if !known => StateAnswer::NoSuchClient,
                    None if has_room => return self.expiring.push((client, to)),
                    None => StateAnswer::Crowded,
                }
            }
            StateQuestion::Grace { ends } => {
                let facts = self.grace_facts(now);
                if let Some(GraceFacts { awaited, .. }) = facts.as_ref().filter(|_| ends) {
                    let by = "stag ctl grace --end";
                    tracing::info!(target: "stag", awaited, by, "the grace period was ended");
                    self.state.cut_grace();
                    self.renew_lent(now);
                    self.state.handle_time(milliseconds(now));
                }
                StateAnswer::Grace(facts)
            }
        };
        // A controller that waits no longer gets none.
        let _ = to.try_send(answer);
    }

    /// The grace period, while clients may reclaim.
    fn grace_facts(&self, now: Time) -> Option<GraceFacts> {
        let ends_at = self.state.grace_ends_at()?;
        let all = &self.recovery.listed;
        let listed = all.values().take(ABSENT_MAX);
        let cut = |owner: &[u8]| owner.get(..OWNER_MAX).unwrap_or(owner).into();
        let mut absent: Vec<_> = listed.map(|it| (cut(&it.owner), it.principal)).collect();
        absent.sort_unstable_by(|one: &(Box<[u8]>, _), other| one.0.cmp(&other.0));
        let absent_more = all.len() - absent.len();
        Some(GraceFacts {
            left_ms: ends_at.saturating_sub(milliseconds(now)),
            awaited: self.state.awaited_reclaims().unwrap_or(0),
            absent,
            absent_more,
        })
    }

    fn clients_page(&self, from: usize, now: Time) -> StateAnswer {
        let end = from.saturating_add(PLACES_PER_PAGE).min(CLIENTS);
        let clients = (from..end).filter_map(|place| self.clients.nth(place));
        let facts = clients.map(|client| self.client_facts(client, now)).collect();
        StateAnswer::Clients(facts, (end < CLIENTS).then_some(end))
    }

    fn client_facts(&self, client: &Client, now: Time) -> ClientFacts {
        let has_channel = self.sessions.of(client.id).any(|it| it.callbacks.is_some());
        let owner = &client.owner;
        ClientFacts {
            id: client.id,
            owner: owner.get(..OWNER_MAX).unwrap_or(owner).into(),
            principal: client.principal,
            from: client.from,
            minor_version: self.sessions.of(client.id).next().map(|it| it.minor_version),
            sessions: client.sessions,
            callback_path: match (has_channel, self.has_back_channel(client.id)) {
                (_, true) => CallbackPath::Up,
                (true, false) => CallbackPath::Down,
                (false, false) => CallbackPath::Absent,
            },
            lease_ms: u64::try_from(self.config.lease.as_millis()).unwrap_or(u64::MAX),
            lease: client.key.and_then(|key| self.state.lease_facts(key, milliseconds(now))),
        }
    }

    /// Continues to end clients; answers for each that is gone.
    #[cold]
    fn end_expiring(&mut self, now: Time) {
        for (client, to) in std::mem::take(&mut self.expiring) {
            if self.expire_client(client, now) {
                let (id, by) = (format_args!("{client:016x}"), "stag ctl expire");
                tracing::info!(target: "stag", client = %id, by, "a client's lease was ended");
                let _ = to.try_send(StateAnswer::Expired);
            } else {
                self.expiring.push((client, to));
            }
        }
    }

    /// Ends a client, active or not, once no other shard decides for it and the end of its record
    /// is stable: a restart must not let it reclaim what another client has got. Returns true when
    /// it is gone; otherwise try again in a later pass.
    fn expire_client(&mut self, id: u64, now: Time) -> bool {
        let Some(client) = self.clients.get(id) else { return true };
        let (record, key) = (client.record, client.key);
        if !self.bring_home(id) || record == RecordPhase::Leaving {
            return false;
        }
        match (record, key) {
            (RecordPhase::Asked | RecordPhase::Stable, Some(key)) => {
                let Some(client) = self.clients.get_mut(id) else { return true };
                client.record = RecordPhase::Leaving;
                // RFC 8881 §8.4.3: a client that lost its state reclaims none of it, and this is
                // recorded before another gets any.
                let change = RecordChange::Remove(client.owner.clone());
                self.recovery.queue.push(change, AfterRecord::End(key));
                self.settle_records(now);
            }
            _ => self.end_client(id),
        }
        self.clients.get(id).is_none()
    }
}

fn facts(store: &impl Store, state: ListedState) -> StateFacts {
    let file = FileHandle::new(&state.handle);
    let export = file.and_then(|file| store.export_of(&file).map(str::to_owned));
    StateFacts { state, export }
}
