//! Attributes of files with a write delegation, asked from its holder: CB_GETATTR (RFC 8881
//! §10.4.3, §20.1).

use crate::{ClientKey, FileId, StateFault, StateKey, StateTables};
use stag_protocol::nfs::v4::state::DelegationPhase;

/// Source of a file's change attribute and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeSource {
    /// The store.
    Store,
    /// The holder of a write delegation: send CB_GETATTR, and pass its answer to
    /// [`StateTables::handle_attributes`].
    Holder(AttributeOrder),
}

/// CB_GETATTR to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeOrder {
    /// The client.
    pub client: ClientKey,
    /// Key of the delegation here.
    pub state: StateKey,
    /// Filehandle of the file.
    pub handle: Box<[u8]>,
}

/// Change attribute and size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeAndSize {
    /// Change attribute.
    pub change: u64,
    /// Size in octets.
    pub size: u64,
}

impl StateTables {
    /// Returns the source of change attribute and size for GETATTR. Requests of the holder's own
    /// client do not wait for its delegation. Allocates nothing if the source is the store.
    ///
    /// # Errors
    /// [`StateFault::AwaitRecall`] while a write delegation is being recalled,
    /// [`StateFault::AwaitRemoval`].
    pub fn check_attributes(
        &self,
        file: FileId,
        client: Option<ClientKey>,
    ) -> Result<AttributeSource, StateFault> {
        let Some(entry) = self.file(file) else { return Ok(AttributeSource::Store) };
        let client = client.map(|client| client.0);
        let mut held = self.delegations_of(entry).filter(|(_, _, held)| held.write);
        let Some((key, state, held)) = held.find(|(_, state, _)| Some(state.client) != client)
        else {
            return Ok(AttributeSource::Store);
        };
        let holder = ClientKey(state.client);
        if self.is_courtesy(state.client) {
            return Err(StateFault::AwaitRemoval(holder));
        }
        if held.machine.phase() != DelegationPhase::Held {
            return Err(StateFault::AwaitRecall);
        }
        let handle = entry.handle.clone();
        let order = AttributeOrder { client: holder, state: StateKey(key), handle };
        Ok(AttributeSource::Holder(order))
    }

    /// Sets the change attribute that a file had when its write delegation was granted: the holder
    /// reports another one when it has changed the file.
    pub fn set_delegation_base(&mut self, state: StateKey, change: u64) {
        if let Some(held) = self.delegation_mut(state) {
            held.change = change;
        }
    }

    /// Handles the answer `told` to CB_GETATTR, when the store has `here`. Returns the values to
    /// report if the holder has changed the file. Its times are then the current time, and the
    /// store should be given them and the change attribute, so that they never go backward.
    /// Otherwise all values come from the store.
    pub fn handle_attributes(
        &mut self,
        state: StateKey,
        told: ChangeAndSize,
        here: ChangeAndSize,
    ) -> Option<ChangeAndSize> {
        let held = self.delegation_mut(state)?;
        // RFC 8881 §10.4.3 [8881-238]: another change attribute or another size is a change. That
        // of the store is none: the holder has written through the server, and has nothing else.
        let is_known = told.change == held.change || told.change == here.change;
        held.is_modified |= !is_known || told.size != here.size;
        if !held.is_modified {
            return None;
        }
        // RFC 8881 §10.4.3 [8881-239]: each report is greater than the last. The holder's own value
        // is not taken, which could be anything.
        held.change = held.change.max(here.change).saturating_add(1);
        Some(ChangeAndSize { change: held.change, size: told.size })
    }
}
