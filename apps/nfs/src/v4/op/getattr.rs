//! GETATTR (RFC 8881 §18.7).

use std::time::{SystemTime, UNIX_EPOCH};

use stag_protocol::nfs::v4::{Attribute, Bitmap, Operation, Status4, check_readable};

use crate::v4::{
    attributes::AttributeSource,
    context::{CompoundContext, OpResult, filehandle::Node, replay_log::HolderCall},
};
use stag_nfs_store::{FileAttributes, FileTime, Store};
use stag_nfs4_state::{ChangeAndSize, StateKey, StateTables};

/// Attributes that the holder of a write delegation changes without a report.
pub(in crate::v4) const HOLDER_KNOWS: Bitmap = Bitmap::of_attributes(&[
    Attribute::Change,
    Attribute::Size,
    Attribute::SpaceUsed,
    Attribute::TimeMetadata,
    Attribute::TimeModify,
]);

pub(super) fn getattr<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    asked: &Bitmap,
) -> OpResult {
    let node = context.current()?;
    // RFC 8881 §5.5 [8881-326]: what is set only cannot be asked for
    check_readable(asked)?;
    let mut asked_holder = None;
    if let Node::Object(object) = &node
        && asked.meets(&HOLDER_KNOWS)
    {
        // RFC 8881 §10.4.3: only the holder of a write delegation knows them
        asked_holder = context.ask_holder(object)?;
    }
    let mut object = context.object_facts(&node)?;
    let system = context.file_system(&node, asked)?;
    context.await_owners(asked, &object.attributes)?;
    let aces = context.aces(&node, asked, &object, &system)?;
    if let Some(HolderCall { state, told: Some(Some(told)), .. }) = asked_holder {
        report_held(&mut context.nfs4.state, state, told, &mut object.attributes);
    }
    let lease = context.nfs4.lease_seconds();
    context.with_owners(|context, owners| {
        let source = AttributeSource {
            node: &node,
            object: &object,
            system: &system,
            owners: owners.form(),
            aces: aces.as_deref(),
            lease,
        };
        context.encode(|writer| {
            writer.words([Operation::GetAttr as u32, Status4::Ok as u32])?;
            source.emit(asked, writer)
        })
    })
}

/// Replaces the store's values by those of the holder of a write delegation, if the holder has
/// changed the file. The times are then the current time (RFC 8881 §10.4.3).
fn report_held(
    tables: &mut StateTables,
    state: StateKey,
    told: ChangeAndSize,
    attributes: &mut FileAttributes,
) {
    let here = ChangeAndSize { change: attributes.change, size: attributes.size };
    let Some(held) = tables.handle_attributes(state, told, here) else { return };
    (attributes.change, attributes.size) = (held.change, held.size);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = FileTime::of_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    (attributes.mtime, attributes.ctime) = (now, now);
}
