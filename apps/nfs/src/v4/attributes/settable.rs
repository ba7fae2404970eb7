//! Attributes that SETATTR, CREATE and OPEN set (RFC 8881 §5.8.2, §18.30).

use stag_protocol::nfs::v4::{
    Attribute, AttributeValues, Bitmap, ModeUmask, RawAttributes, SetTime4, Status4, Time4,
    check_settable,
};

use super::SUPPORTED;
use crate::{
    owner_names::OwnerKind,
    v4::context::{CompoundContext, OpResult},
};
use stag_nfs_store::{FileTime, NewAttributes, NewTime, Store};

/// Attributes to set, with their bitmap.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::v4) struct ToSet {
    pub(in crate::v4) attributes: NewAttributes,
    pub(in crate::v4) mask: Bitmap,
}

impl ToSet {
    /// Takes attributes from the wire, all but the owners. They are in the values that it returns,
    /// too (`context::owner_names`).
    ///
    /// # Errors
    /// NFS4ERR_ATTRNOTSUPP, NFS4ERR_INVAL for a read-only attribute or one without meaning,
    /// NFS4ERR_BADXDR.
    pub(in crate::v4) fn of<'a>(
        raw: &RawAttributes<'a>,
    ) -> Result<(Self, AttributeValues<'a>), Status4> {
        check_settable(&raw.mask, &SUPPORTED)?;
        let values = raw.values().map_err(|fault| fault.status())?;
        Ok((Self { attributes: attributes(&values)?, mask: raw.mask }, values))
    }

    /// Checks the attributes for an object that exists.
    ///
    /// # Errors
    /// NFS4ERR_INVAL for a umask.
    pub(in crate::v4) fn check_existing(raw: &RawAttributes<'_>) -> Result<(), Status4> {
        // RFC 8275 §4: mode_umask applies only to operations that create an object
        match raw.mask.contains(Attribute::ModeUmask as u32) {
            true => Err(Status4::Inval),
            false => Ok(()),
        }
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
        uid: None,
        gid: None,
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

impl<S: Store> CompoundContext<'_, '_, S> {
    /// The numbers of the owners that an operation sets, as far as it does.
    ///
    /// # Errors
    /// NFS4ERR_BADOWNER for an owner that is not accepted.
    fn owners_to_set(&mut self, values: &AttributeValues<'_>) -> OpResult<[Option<u32>; 2]> {
        let both = [(OwnerKind::User, &values.owner), (OwnerKind::Group, &values.owner_group)];
        let mut numbers = [None; 2];
        for ((kind, text), number) in both.into_iter().zip(&mut numbers) {
            if let Some(text) = text {
                // RFC 8881 §5.9 [8881-327]: what has no translation is never another user
                let found = self.owner_number(kind, text.0)?;
                *number = Some(found.ok_or(Status4::BadOwner)?);
            }
        }
        Ok(numbers)
    }

    /// Takes attributes to set from the wire.
    ///
    /// # Errors
    /// As [`ToSet::of`]; NFS4ERR_BADOWNER, and as [`owner_number`](Self::owner_number).
    pub(in crate::v4) fn settable(&mut self, raw: &RawAttributes<'_>) -> OpResult<ToSet> {
        let (mut set, values) = ToSet::of(raw)?;
        let [uid, gid] = self.owners_to_set(&values)?;
        (set.attributes.uid, set.attributes.gid) = (uid, gid);
        Ok(set)
    }
}
