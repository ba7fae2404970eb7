//! GETATTR (RFC 8881 §18.7).

use stag_protocol::nfs::v4::{Attribute, Bitmap, Operation, Status4, check_readable};

use crate::{
    store::Store,
    v4::{
        attr::AttributeSource,
        node::Node,
        state::RecallScope,
        turn::{Done, Turn},
    },
};

/// Attributes that the holder of a write delegation changes without telling.
pub(in crate::v4) const HELD: Bitmap = Bitmap::of_attributes(&[
    Attribute::Change,
    Attribute::Size,
    Attribute::SpaceUsed,
    Attribute::TimeMetadata,
    Attribute::TimeModify,
]);

pub(super) fn getattr<S: Store>(turn: &mut Turn<'_, '_, S>, asked: &Bitmap) -> Done {
    let node = turn.current()?;
    // RFC 8881 §5.5 [8881-326]: what is set only cannot be asked for
    check_readable(asked)?;
    if let Node::Object(object) = &node
        && asked.meets(&HELD)
    {
        // The holder of a write delegation alone knows them: it writes back what it has.
        turn.recall(object, RecallScope::Writers)?;
    }
    let object = turn.object_facts(&node)?;
    let system = turn.file_system(&node, asked)?;
    let lease = turn.nfs4.lease_seconds();
    let source = AttributeSource { node: &node, object: &object, system: &system, lease };
    turn.write(|writer| {
        writer.words([Operation::GetAttr as u32, Status4::Ok as u32])?;
        source.emit(asked, writer)
    })
}
