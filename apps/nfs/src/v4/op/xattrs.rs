//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276 §8.4).

use stag_protocol::{
    nfs::v4::{Answer, ListXattrsArgs, Operation, SetXattrArgs, SetXattrHow, Status4, Text},
    xdr::padded,
};

use crate::v4::{
    attributes::change_info,
    context::{CompoundContext, OpExit, OpResult},
};
use stag_nfs_store::{Store, XATTR_NAME_MAX, XattrMode};
use stag_nfs4_state::RecallScope;

/// Checks the name of an attribute.
const fn check(name: &[u8]) -> Result<(), Status4> {
    match name.len() {
        0 => Err(Status4::Inval),
        len if len > XATTR_NAME_MAX => Err(Status4::NameTooLong),
        _ => Ok(()),
    }
}

/// Statuses of extended attributes (RFC 8276 §8.5), for which stores return other ones.
fn of_xattr(exit: OpExit) -> OpExit {
    match exit {
        // RFC 8276 §8.4.1.3 [8276-2]: an attribute that is not there has a status of its own
        OpExit::Fail(Status4::NoEnt) => Status4::NoXattr.into(),
        OpExit::Fail(Status4::TooSmall) => Status4::Xattr2Big.into(),
        other => other,
    }
}

pub(super) fn get_xattr<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    name: &[u8],
) -> OpResult {
    let object = context.current()?.object(Status4::NoXattr)?;
    check(name)?;
    let value = context.get_xattr(&object, name).map_err(of_xattr)?;
    context.put(&Answer::GetXattr(Ok(Text(&value))))
}

pub(super) fn set_xattr<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &SetXattrArgs<'_>,
) -> OpResult {
    let object = context.current()?.object(Status4::RoFs)?;
    check(args.name.0)?;
    context.nfs4.state.check_grace()?;
    context.recall(&object, RecallScope::All)?;
    // RFC 8276 §8.4.2.3 [8276-4]: one that must not be there is no replacement
    let how = match args.how {
        SetXattrHow::Either => XattrMode::Either,
        SetXattrHow::Create => XattrMode::Create,
        SetXattrHow::Replace => XattrMode::Replace,
    };
    let change = context.set_xattr(&object, args.name.0, args.value.0, how).map_err(of_xattr)?;
    // RFC 8276 §8.4.2.3 [8276-3]: the object has changed
    context.put(&Answer::SetXattr(Ok(change_info(&change))))
}

pub(super) fn remove_xattr<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    name: &[u8],
) -> OpResult {
    let object = context.current()?.object(Status4::RoFs)?;
    check(name)?;
    context.nfs4.state.check_grace()?;
    context.recall(&object, RecallScope::All)?;
    let change = context.remove_xattr(&object, name).map_err(of_xattr)?;
    context.put(&Answer::RemoveXattr(Ok(change_info(&change))))
}

/// A cookie is the number of names that the client has seen.
pub(super) fn list_xattrs<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &ListXattrsArgs,
) -> OpResult {
    let object = context.current()?.object(Status4::NotSupp)?;
    let all = context.list_xattrs(&object).map_err(of_xattr)?;
    let names = || all.split(|octet| *octet == 0).filter(|name| !name.is_empty());
    let total = names().count();
    let from = usize::try_from(args.cookie).unwrap_or(usize::MAX);
    // RFC 8276 §8.4.3.3 [8276-6]: a cookie past the last name was not given
    if from > total {
        return Err(Status4::BadCookie.into());
    }
    // Cookie, count and end surround the names.
    let mut room = (args.max_count as usize).saturating_sub(8 + 4 + 4);
    let mut count = 0;
    for name in names().skip(from) {
        let len = padded(name.len()) + 4;
        if len > room {
            break;
        }
        (room, count) = (room - len, count + 1);
    }
    // RFC 8276 §8.4.3.3 [8276-5]: not even one name fits
    if count == 0 && from < total {
        return Err(Status4::TooSmall.into());
    }
    let end = from + count;
    context.encode(|writer| {
        writer.words([Operation::ListXattrs as u32, Status4::Ok as u32])?;
        writer.u64(end as u64)?;
        writer.u32(count as u32)?;
        names().skip(from).take(count).try_for_each(|name| writer.opaque(name))?;
        writer.bool(end == total)
    })
}
