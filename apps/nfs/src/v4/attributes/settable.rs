//! Attributes that SETATTR, CREATE and OPEN set (RFC 8881 §5.8.2, §18.30).

use stag_protocol::nfs::v4::{
    Attribute, AttributeValues, Bitmap, Decimal, ModeUmask, RawAttributes, SetTime4, Status4,
    Time4, check_settable,
};

use super::SUPPORTED;
use stag_nfs_store::{FileTime, NewAttributes, NewTime};

/// Attributes to set, with their bitmap.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::v4) struct ToSet {
    pub(in crate::v4) attributes: NewAttributes,
    pub(in crate::v4) mask: Bitmap,
}

impl ToSet {
    /// Takes attributes from the wire.
    ///
    /// # Errors
    /// NFS4ERR_ATTRNOTSUPP, NFS4ERR_INVAL for a read-only attribute or one without meaning,
    /// NFS4ERR_BADXDR, NFS4ERR_BADOWNER.
    pub(in crate::v4) fn of(raw: &RawAttributes<'_>) -> Result<Self, Status4> {
        check_settable(&raw.mask, &SUPPORTED)?;
        let values = raw.values().map_err(|fault| fault.status())?;
        Ok(Self { attributes: attributes(&values)?, mask: raw.mask })
    }

    /// As [`of`](Self::of), for an object that exists.
    ///
    /// # Errors
    /// NFS4ERR_INVAL also for a umask.
    pub(in crate::v4) fn of_existing(raw: &RawAttributes<'_>) -> Result<Self, Status4> {
        // RFC 8275 §4: mode_umask applies only to operations that create an object
        if raw.mask.contains(Attribute::ModeUmask as u32) {
            return Err(Status4::Inval);
        }
        Self::of(raw)
    }
}

/// The mode of an object, and the bits that a umask clears in that of a new one.
fn mode_and_umask(values: &AttributeValues<'_>) -> Result<(Option<u32>, u32), Status4> {
    let (mode, umask) = match (values.mode, values.mode_umask) {
        (mode, None) => (mode, 0),
        (None, Some(ModeUmask { mode, umask })) => (Some(mode), umask),
        // RFC 8275 §4: mode and mode_umask together are invalid
        (Some(_), Some(_)) => return Err(Status4::Inval),
    };
    if mode.is_some_and(|mode| mode & !0o7777 != 0) || umask & !0o777 != 0 {
        return Err(Status4::Inval);
    }
    Ok((mode, umask))
}

fn attributes(values: &AttributeValues<'_>) -> Result<NewAttributes, Status4> {
    let (mode, umask) = mode_and_umask(values)?;
    if values.size.is_some_and(|size| size > i64::MAX.cast_unsigned()) {
        return Err(Status4::FBig);
    }
    Ok(NewAttributes {
        mode,
        umask,
        uid: values.owner.map(|owner| owner_number(owner.0)).transpose()?,
        gid: values.owner_group.map(|group| owner_number(group.0)).transpose()?,
        size: values.size,
        atime: set_time(values.time_access_set.as_ref())?,
        mtime: set_time(values.time_modify_set.as_ref())?,
    })
}

/// The number of a user or a group.
///
/// # Errors
/// NFS4ERR_BADOWNER for a name: this server maps no names.
fn owner_number(text: &[u8]) -> Result<u32, Status4> {
    // RFC 8881 §5.9 [8881-327]: names of owners are not known, only numbers
    Decimal::parse(text).ok_or(Status4::BadOwner)
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
