//! SETATTR (RFC 8881 §18.30).

use stag_protocol::nfs::{
    v3::FileKind,
    v4::{Answer, Attribute, SetAttr4Args, SetAttr4Result, Status4},
};

use super::read::wrong_type;
use crate::v4::{
    attributes::settable::ToSet,
    context::{CompoundContext, OpResult},
};
use stag_nfs_store::Store;
use stag_nfs4_state::{IoAccess, RecallScope};

pub(super) fn setattr<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &SetAttr4Args<'_>,
) -> OpResult {
    let node = context.current()?;
    ToSet::check_existing(&args.attributes)?;
    let set = context.settable(&args.attributes)?;
    let object = node.object(Status4::RoFs)?;
    let mut others = set.mask;
    others.remove(Attribute::Acl as u32);
    let has_list = others != set.mask;
    let is_directory = has_list && context.getattr(&object)?.kind == FileKind::Directory;
    let acls = context.acls_to_set(&args.attributes, is_directory)?;
    match set.attributes.size {
        Some(_) => context.check_io(&object, args.stateid, IoAccess::Write)?,
        None => context.check_setattr(&object, args.stateid)?,
    }
    // RFC 8881 §8.4.2.1 [8881-223]: who reclaims a delegation has kept the attributes
    if context.nfs4.spoils_reclaims() {
        return Err(Status4::Grace.into());
    }
    context.recall(&object, RecallScope::All)?;
    // RFC 8881 §6.4.1.3 [8881-415]: the mode is set before the list, which has the last word
    if (!has_list || !others.is_empty())
        && let Err(stop) = context.setattr(&object, &set.attributes, None)
    {
        // A partial failure is reported as if no attribute was set: the client asks for attributes.
        return Err(match set.attributes.size {
            Some(_) => wrong_type(context, &object, stop),
            None => stop,
        });
    }
    if let Some(acls) = acls {
        context.set_acls(&object, &acls, is_directory)?;
    }
    let done = SetAttr4Result { status: Status4::Ok, set: set.mask };
    context.put(&Answer::SetAttr(done))
}
