//! Attributes that SETATTR, CREATE and OPEN set (RFC 8881 §5.8.2, §18.30).

use stag_protocol::nfs::v4::{
    AttributeValues, Bitmap, RawAttributes, SetTime4, Status4, Time4, check_settable,
};

use super::attr::{Decimal, SUPPORTED};
use crate::store::{FileTime, NewAttributes, NewTime};

/// Attributes to set, and which they are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToSet {
    pub(super) attributes: NewAttributes,
    pub(super) mask: Bitmap,
}

impl ToSet {
    /// Takes attributes from the wire.
    ///
    /// # Errors
    /// NFS4ERR_ATTRNOTSUPP, NFS4ERR_INVAL for what is told only or has no meaning, NFS4ERR_BADXDR,
    /// NFS4ERR_BADOWNER.
    pub(super) fn of(raw: &RawAttributes<'_>) -> Result<Self, Status4> {
        check_settable(&raw.mask, &SUPPORTED)?;
        let values = raw.values().map_err(|fault| fault.status())?;
        Ok(Self { attributes: attributes(&values)?, mask: raw.mask })
    }
}

fn attributes(values: &AttributeValues<'_>) -> Result<NewAttributes, Status4> {
    if values.mode.is_some_and(|mode| mode & !0o7777 != 0) {
        return Err(Status4::Inval);
    }
    if values.size.is_some_and(|size| size > i64::MAX.cast_unsigned()) {
        return Err(Status4::FBig);
    }
    Ok(NewAttributes {
        mode: values.mode,
        uid: values.owner.map(|owner| Decimal::parse(owner.0)).transpose()?,
        gid: values.owner_group.map(|group| Decimal::parse(group.0)).transpose()?,
        size: values.size,
        atime: set_time(values.time_access_set.as_ref())?,
        mtime: set_time(values.time_modify_set.as_ref())?,
    })
}

fn set_time(wanted: Option<&SetTime4>) -> Result<NewTime, Status4> {
    Ok(match wanted {
        None => NewTime::Keep,
        Some(SetTime4::Server) => NewTime::Server,
        Some(SetTime4::Client(Time4 { nanoseconds: 1_000_000_000.., .. })) => {
            return Err(Status4::Inval);
        }
        Some(SetTime4::Client(Time4 { seconds, nanoseconds })) => {
            NewTime::Client(FileTime { seconds: *seconds, nanos: *nanoseconds })
        }
    })
}
