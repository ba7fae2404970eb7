//! Attributes of files and file systems (RFC 8881 §5, RFC 7862 §12, RFC 8276 §8.1).

mod decimal;
mod stat;
mod table;

pub use decimal::Decimal;
pub use stat::{STAT_WORDS, StatOctets, StatValues};
pub use table::{Attribute, AttributeValues};

use super::forms::{numbers, record, union};
use super::{Bitmap, Handle4, Owner4, Status4, Time4};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// Attributes that the Linux client requests in a stat(), in each GETATTR and after each LOOKUP.
/// Every object has a value of each.
pub const STAT_ATTRIBUTES: Bitmap = Bitmap::of_attributes(STAT_LIST);

const STAT_LIST: &[Attribute] = &[
    Attribute::Type,
    Attribute::Change,
    Attribute::Size,
    Attribute::Fsid,
    Attribute::Fileid,
    Attribute::Mode,
    Attribute::NumLinks,
    Attribute::Owner,
    Attribute::OwnerGroup,
    Attribute::RawDev,
    Attribute::SpaceUsed,
    Attribute::TimeAccess,
    Attribute::TimeMetadata,
    Attribute::TimeModify,
    Attribute::MountedOnFileid,
];

/// Octets of the longest `fattr4` of [`STAT_ATTRIBUTES`]: bitmap, length and values.
const STAT_LEN_MAX: usize = {
    let (mut len, mut rest) = (4 + 2 * 4 + 4, STAT_LIST);
    while let [first, others @ ..] = rest {
        len += first.len_max();
        rest = others;
    }
    len
};

/// Use that an attribute allows (RFC 8881 §5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeAccess {
    /// Read only.
    Read,
    /// Read and set.
    ReadWrite,
    /// Set only: it stands for another attribute.
    Write,
}

/// Attributes in wire form: a mask, then the values in rising order (`fattr4`, RFC 8881 §3.3.7).
/// The values are checked by [`RawAttributes::values`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawAttributes<'a> {
    /// Attributes whose values follow.
    pub mask: Bitmap,
    /// Their values.
    pub octets: &'a [u8],
}

impl<'a> Codec<'a> for RawAttributes<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { mask: Codec::parse(reader)?, octets: reader.opaque(usize::MAX)? })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.mask.emit(writer)?;
        writer.opaque(self.octets)
    }
}

/// Reason why values of attributes mean nothing to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeFault {
    /// The table does not have this attribute, so the end of its value is unknown.
    Unknown(u32),
    /// The values are no XDR of these attributes.
    Malformed(Error),
}

impl AttributeFault {
    /// Status with which the operation ends (RFC 8881 §15.1.1.1, §15.1.15.1).
    pub const fn status(self) -> Status4 {
        match self {
            // RFC 8881 §15.1.15.1 [8881-4]: an unsupported attribute is neither set nor compared
            Self::Unknown(_) => Status4::AttrNotSupp,
            Self::Malformed(_) => Status4::BadXdr,
        }
    }
}

impl<'a> RawAttributes<'a> {
    /// The values of all attributes in the mask.
    pub fn values(&self) -> Result<AttributeValues<'a>, AttributeFault> {
        let mut reader = Reader::new(self.octets);
        let mut values = AttributeValues::default();
        // RFC 8881 §3.3.7 [8881-5]: values stand in the order of the attributes' numbers
        for number in self.mask.numbers() {
            let attribute = Attribute::new(number).ok_or(AttributeFault::Unknown(number))?;
            values.parse(attribute, &mut reader).map_err(AttributeFault::Malformed)?;
        }
        reader.finish().map_err(AttributeFault::Malformed)?;
        Ok(values)
    }
}

/// Writes attributes in place: the mask, the length, then what `emit` writes for each attribute in
/// rising order. `mask` names only attributes that `emit` has a value for.
pub fn emit_attributes(
    mask: &Bitmap,
    writer: &mut Writer<'_>,
    mut emit: impl FnMut(Attribute, &mut Writer<'_>) -> Result<(), NoRoom>,
) -> Result<(), NoRoom> {
    mask.emit(writer)?;
    let len_at = writer.len();
    writer.u32(0)?;
    for attribute in mask.numbers().filter_map(Attribute::new) {
        emit(attribute, writer)?;
    }
    let len = writer.len().saturating_sub(len_at).saturating_sub(4);
    writer.patch_u32(len_at, u32::try_from(len).map_err(|_| NoRoom)?)
}

/// Attributes that can only be set.
const WRITE_ONLY: Bitmap = Bitmap::of_attributes(&[
    Attribute::TimeAccessSet,
    Attribute::TimeModifySet,
    Attribute::ModeSetMasked,
    Attribute::ModeUmask,
]);

/// Checks the attributes that GETATTR or READDIR request (RFC 8881 §5.5): set-only attributes are
/// refused, unknown ones are left out of the answer.
#[inline]
pub fn check_readable(asked: &Bitmap) -> Result<(), Status4> {
    // RFC 8881 §5.5 [8881-6]: asking for a write-only attribute is an error
    match asked.meets(&WRITE_ONLY) {
        true => Err(Status4::Inval),
        false => Ok(()),
    }
}

/// Checks the attributes that SETATTR, CREATE or OPEN set, against the attributes that the server
/// supports for the object.
pub fn check_settable(mask: &Bitmap, supported: &Bitmap) -> Result<(), Status4> {
    if !mask.is_subset(supported) {
        return Err(Status4::AttrNotSupp);
    }
    // RFC 8881 §5.5 [8881-7]: setting a read-only attribute is an error
    match known(mask).any(|attribute| attribute.access() == AttributeAccess::Read) {
        true => Err(Status4::Inval),
        false => Ok(()),
    }
}

/// Checks the attributes that VERIFY and NVERIFY compare (RFC 8881 §18.31.4): neither unsupported
/// nor without a value of their own.
pub fn check_comparable(mask: &Bitmap, supported: &Bitmap) -> Result<(), Status4> {
    if !mask.is_subset(supported) {
        return Err(Status4::AttrNotSupp);
    }
    // RFC 8881 §18.31.4 [8881-8]: rdattr_error and write-only attributes are not compared
    match mask.contains(Attribute::RdattrError as u32) {
        true => Err(Status4::Inval),
        false => check_readable(mask),
    }
}

/// Octets of the longest values of these attributes, with mask and length.
pub fn attributes_len_max(mask: &Bitmap) -> usize {
    // Nearly every call asks for exactly these.
    if *mask == STAT_ATTRIBUTES {
        return STAT_LEN_MAX;
    }
    let values = known(mask).map(Attribute::len_max);
    values.fold(mask.wire_len().saturating_add(4), usize::saturating_add)
}

fn known(mask: &Bitmap) -> impl Iterator<Item = Attribute> + use<> {
    mask.numbers().filter_map(Attribute::new)
}

/// Octets of the longest access control list that we write.
pub const ACL_LEN_MAX: usize = 64 << 10;

/// Octets of the longest owner or group that we write: Linux makes room for no more.
pub const OWNER_LEN_MAX: usize = 128;

union! {
    /// A time to set (`settime4`).
    SetTime4 {
        /// The server's clock.
        0 => Server,
        /// This time.
        1 => Client(Time4),
    }
}

numbers! {
    /// Manner in which the change attribute changes (`change_attr_type4`, RFC 7862 §12.2.3).
    ChangeKind {
        /// It grows.
        Monotonic = 0,
        /// It counts changes.
        Counter = 1,
        /// It counts changes, but for those through pNFS.
        CounterNoPnfs = 2,
        /// It is a time of metadata.
        Time = 3,
        /// Nothing is known.
        Undefined = 4,
    }
}

record! {
    /// Bits of the mode to set, and a mask of the bits that change (`mode_masked4`).
    #[derive(Copy)]
    MaskedMode {
        /// Values of the bits.
        value: u32,
        /// Bits to change.
        mask: u32,
    }
}

record! {
    /// A mode to set on a new object together with a umask (RFC 8275 §3).
    #[derive(Copy)]
    ModeUmask {
        /// The mode.
        mode: u32,
        /// Bits that are taken away unless access control lists are inherited.
        umask: u32,
    }
}

record! {
    /// Options of OPEN that the server supports (RFC 9754 §2).
    #[derive(Copy)]
    OpenArguments {
        /// Bits of share_access.
        share_access: Bitmap,
        /// Bits of share_deny.
        share_deny: Bitmap,
        /// Wants for delegations.
        share_access_want: Bitmap,
        /// Claims.
        claim: Bitmap,
        /// Modes of creating.
        create_mode: Bitmap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_attributes_of_a_stat_are_the_sum_of_each() {
        let all = STAT_ATTRIBUTES.numbers().chain([Attribute::AclSupport as u32]);
        let more = Bitmap::of(all);
        let alone = Attribute::AclSupport.len_max();
        assert_eq!(attributes_len_max(&STAT_ATTRIBUTES) + alone, attributes_len_max(&more));
    }
}
