//! The table of attributes: one line for each.
//!
//! A line has the number, the attribute, its field and type, the use it allows, the octets of the
//! longest value that we write, and its meaning. Not in the table, so not supported: referrals,
//! layouts, retention, labels, MIME types, change policies, notification delays, and access control
//! lists with automatic inheritance (`dacl`, `sacl`).

use super::super::{Ace, Array, DeviceNumber4, FileKind4, Fsid};
use super::AttributeAccess::{self, Read as R, ReadWrite as RW, Write as W};
use super::*;

/// Length word and octets of the longest owner.
const OWNER: usize = 4 + OWNER_LEN_MAX;

macro_rules! attributes {
    ($(
        $number:literal $name:ident $field:ident: $type:ty, $access:ident, $len:tt, $doc:literal;
    )+) => {
        /// An attribute, by its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Attribute {
            $(#[doc = $doc] $name = $number,)+
        }

        impl Attribute {
            /// All of them, in rising order.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The attribute of this number, if the table has it.
            pub const fn new(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// Use that it allows.
            pub const fn access(self) -> AttributeAccess {
                match self {
                    $(Self::$name => $access,)+
                }
            }

            /// Octets of its longest value that we write.
            pub const fn len_max(self) -> usize {
                match self {
                    $(Self::$name => $len,)+
                }
            }
        }

        /// Values of attributes.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct AttributeValues<'a> {
            $(#[doc = $doc] pub $field: Option<$type>,)+
        }

        impl<'a> AttributeValues<'a> {
            /// Takes the value of one attribute.
            pub fn parse(
                &mut self,
                attribute: Attribute,
                reader: &mut Reader<'a>,
            ) -> Result<(), Error> {
                match attribute {
                    $(Attribute::$name => self.$field = Some(Codec::parse(reader)?),)+
                }
                Ok(())
            }

            /// Attributes that have a value.
            pub fn mask(&self) -> Bitmap {
                let mut mask = Bitmap::EMPTY;
                $(if self.$field.is_some() {
                    mask.insert($number);
                })+
                mask
            }

            /// Writes the value of one attribute, if it is there.
            pub fn emit_one(
                &self,
                attribute: Attribute,
                writer: &mut Writer<'_>,
            ) -> Result<(), NoRoom> {
                match attribute {
                    $(Attribute::$name => {
                        self.$field.as_ref().map_or(Ok(()), |value| value.emit(writer))
                    })+
                }
            }

            /// Writes the attributes of `asked` that have a value (RFC 8881 §5.5).
            pub fn emit(&self, asked: &Bitmap, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                // RFC 8881 §18.7.3 [8881-9]: an answer has only attributes that were asked for
                let mask = asked.intersection(&self.mask());
                emit_attributes(&mask, writer, |attribute, writer| self.emit_one(attribute, writer))
            }
        }
    };
}

attributes! {
    0 SupportedAttrs supported_attrs: Bitmap, R, 36, "Attributes that the object supports.";
    1 Type kind: FileKind4, R, 4, "Type of the object.";
    2 FhExpireType fh_expire_type: u32, R, 4, "Expiry of filehandles; 0 = never.";
    3 Change change: u64, R, 8, "Differs after every change.";
    4 Size size: u64, RW, 8, "Octets.";
    5 LinkSupport link_support: bool, R, 4, "Hard links exist.";
    6 SymlinkSupport symlink_support: bool, R, 4, "Symbolic links exist.";
    7 NamedAttr named_attr: bool, R, 4, "The object has named attributes.";
    8 Fsid fsid: Fsid, R, 16, "The file system.";
    9 UniqueHandles unique_handles: bool, R, 4, "Different handles are different objects.";
    10 LeaseTime lease_time: u32, R, 4, "Seconds of a lease.";
    11 RdattrError rdattr_error: Status4, R, 4, "Reason for an entry without attributes.";
    12 Acl acl: Array<'a, Ace<'a>>, RW, ACL_LEN_MAX, "Access control list.";
    13 AclSupport acl_support: u32, R, 4, "Kinds of access control entries.";
    14 Archive archive: bool, RW, 4, "The file was archived.";
    15 CanSetTime can_set_time: bool, R, 4, "Times can be set.";
    16 CaseInsensitive case_insensitive: bool, R, 4, "Names are compared without case.";
    17 CasePreserving case_preserving: bool, R, 4, "Names keep their case.";
    18 ChownRestricted chown_restricted: bool, R, 4, "Only a privileged user changes owners.";
    19 Filehandle filehandle: Handle4<'a>, R, 132, "The filehandle.";
    20 Fileid fileid: u64, R, 8, "Number of the file within its file system.";
    21 FilesAvail files_avail: u64, R, 8, "Files that this user may still make.";
    22 FilesFree files_free: u64, R, 8, "Files that may still be made.";
    23 FilesTotal files_total: u64, R, 8, "Files that there can be.";
    25 Hidden hidden: bool, RW, 4, "The file is hidden.";
    26 Homogeneous homogeneous: bool, R, 4, "All objects have the same properties.";
    27 MaxFileSize max_file_size: u64, R, 8, "Octets of the longest file.";
    28 MaxLink max_link: u32, R, 4, "Hard links of a file at most.";
    29 MaxName max_name: u32, R, 4, "Octets of the longest name.";
    30 MaxRead max_read: u64, R, 8, "Octets of one READ at most.";
    31 MaxWrite max_write: u64, R, 8, "Octets of one WRITE at most.";
    33 Mode mode: u32, RW, 4, "Permissions.";
    34 NoTrunc no_trunc: bool, R, 4, "Names that are too long are refused.";
    35 NumLinks num_links: u32, R, 4, "Hard links.";
    36 Owner owner: Owner4<'a>, RW, OWNER, "The owner.";
    37 OwnerGroup owner_group: Owner4<'a>, RW, OWNER, "The group.";
    38 QuotaAvailHard quota_avail_hard: u64, R, 8, "Octets until the hard quota.";
    39 QuotaAvailSoft quota_avail_soft: u64, R, 8, "Octets until the soft quota.";
    40 QuotaUsed quota_used: u64, R, 8, "Octets that count for the quota.";
    41 RawDev raw_dev: DeviceNumber4, R, 8, "Numbers of a device.";
    42 SpaceAvail space_avail: u64, R, 8, "Octets that this user may still use.";
    43 SpaceFree space_free: u64, R, 8, "Octets that are free.";
    44 SpaceTotal space_total: u64, R, 8, "Octets of the file system.";
    45 SpaceUsed space_used: u64, R, 8, "Octets that the object takes.";
    46 System system: bool, RW, 4, "The file belongs to the system.";
    47 TimeAccess time_access: Time4, R, 12, "Last access.";
    48 TimeAccessSet time_access_set: SetTime4, W, 16, "Last access, to set.";
    49 TimeBackup time_backup: Time4, RW, 12, "Last backup.";
    50 TimeCreate time_create: Time4, RW, 12, "Creation.";
    51 TimeDelta time_delta: Time4, R, 12, "Grain of times.";
    52 TimeMetadata time_metadata: Time4, R, 12, "Last change of metadata.";
    53 TimeModify time_modify: Time4, R, 12, "Last change of data.";
    54 TimeModifySet time_modify_set: SetTime4, W, 16, "Last change of data, to set.";
    55 MountedOnFileid mounted_on_fileid: u64, R, 8, "Number of the file that is mounted over.";
    62 FsLayoutTypes fs_layout_types: Array<'a, u32>, R, 4, "Layout types; we give none.";
    65 LayoutBlksize layout_blksize: u32, R, 4, "Preferred block of layouts.";
    74 ModeSetMasked mode_set_masked: MaskedMode, W, 8, "Bits of the mode to set.";
    75 SuppattrExclcreat suppattr_exclcreat: Bitmap, R, 36, "Attributes that EXCLUSIVE4_1 sets.";
    76 FsCharsetCap fs_charset_cap: u32, R, 4, "Character sets of names.";
    77 CloneBlksize clone_blksize: u32, R, 4, "Grain of CLONE.";
    78 SpaceFreed space_freed: u64, R, 8, "Octets that removing the file frees.";
    79 ChangeAttrType change_attr_type: ChangeKind, R, 4, "Manner of its changes.";
    81 ModeUmask mode_umask: ModeUmask, W, 8, "Mode and umask to set on a new object.";
    82 XattrSupport xattr_support: bool, R, 4, "Extended attributes exist.";
    84 TimeDelegAccess time_deleg_access: Time4, RW, 12, "Last access, as a holder has it.";
    85 TimeDelegModify time_deleg_modify: Time4, RW, 12, "Last change, as a holder has it.";
    86 OpenArguments open_arguments: OpenArguments, R, 180, "Options of OPEN.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::v4::Text;
    use std::vec;
    use std::vec::Vec;

    /// Every attribute with a value.
    fn full() -> AttributeValues<'static> {
        let mut values = AttributeValues::default();
        let zeros = [0; 64];
        for attribute in Attribute::ALL {
            let octets: &[u8] = if *attribute == Attribute::Type { &[0, 0, 0, 2] } else { &zeros };
            values.parse(*attribute, &mut Reader::new(octets.to_vec().leak())).unwrap();
        }
        values.owner = Some(Text(&[b'9'; OWNER_LEN_MAX]));
        values.owner_group = Some(Text(&[b'8'; OWNER_LEN_MAX]));
        values.filehandle = Some(Text(&[7; 128]));
        values.time_access_set = Some(SetTime4::Client(Time4 { seconds: -1, nanoseconds: 5 }));
        values.time_modify_set = Some(SetTime4::Server);
        values.supported_attrs = Some(Bitmap::of([0, 255]));
        values
    }

    fn emitted(values: &AttributeValues<'_>, asked: &Bitmap) -> Vec<u8> {
        let mut out = vec![0; 4096];
        let mut writer = Writer::new(&mut out);
        values.emit(asked, &mut writer).unwrap();
        let len = writer.len();
        out.truncate(len);
        out
    }

    #[test]
    fn the_table_is_in_rising_order_and_numbers_find_their_attributes() {
        assert!(Attribute::ALL.is_sorted());
        let known = (0..1000).filter_map(Attribute::new).collect::<Vec<_>>();
        assert_eq!(known, Attribute::ALL);
        assert!(known.iter().all(|known| Attribute::new(*known as u32) == Some(*known)));
    }

    #[test]
    fn every_attribute_alone_and_all_together_survive_and_are_no_longer_than_the_table_says() {
        let values = full();
        let each = Attribute::ALL.iter().map(|attribute| Bitmap::of([*attribute as u32]));
        for asked in each.chain([values.mask(), Bitmap::EMPTY]) {
            let wire = emitted(&values, &asked);
            assert!(wire.len() <= attributes_len_max(&asked), "{asked:?}");
            let raw: RawAttributes<'_> = Reader::new(&wire).whole().unwrap();
            assert_eq!(raw.mask, asked);
            let parsed = raw.values().unwrap();
            assert_eq!(parsed.mask(), asked);
            assert_eq!(emitted(&parsed, &asked), wire);
            for cut in 0..raw.octets.len() {
                let cut = RawAttributes { octets: &raw.octets[..cut], ..raw };
                assert!(matches!(cut.values(), Err(AttributeFault::Malformed(_))));
            }
            let longer = [raw.octets, &[0; 4]].concat();
            let longer = RawAttributes { octets: &longer, ..raw };
            assert_eq!(longer.values(), Err(AttributeFault::Malformed(Error::Trailing)));
        }
    }

    #[test]
    fn an_answer_has_only_what_was_asked_for_and_is_there() {
        let (size, fileid) = (Some(7), Some(1));
        let values = AttributeValues { size, fileid, ..AttributeValues::default() };
        let wire = emitted(&values, &Bitmap::of([3, 4, 33, 200]));
        let raw: RawAttributes<'_> = Reader::new(&wire).whole().unwrap();
        assert_eq!((raw.mask, raw.octets), (Bitmap::of([4]), &[0, 0, 0, 0, 0, 0, 0, 7][..]));
        assert_eq!(emitted(&values, &Bitmap::of([3])), [0; 8]);
    }

    #[test]
    fn an_attribute_that_the_table_lacks_is_refused_where_its_value_would_stand() {
        for number in (0..256).filter(|number| Attribute::new(*number).is_none()) {
            let raw = RawAttributes { mask: Bitmap::of([number]), octets: &[0; 64] };
            let fault = raw.values().unwrap_err();
            assert_eq!(fault, AttributeFault::Unknown(number));
            assert_eq!(fault.status(), Status4::AttrNotSupp);
            assert_eq!(check_readable(&raw.mask), Ok(()), "asked for, it is left out");
            let all = Bitmap::of(Attribute::ALL.iter().map(|attribute| *attribute as u32));
            assert_eq!(check_settable(&raw.mask, &all), Err(Status4::AttrNotSupp));
            assert_eq!(check_comparable(&raw.mask, &all), Err(Status4::AttrNotSupp));
        }
        let malformed = RawAttributes { mask: Bitmap::of([4]), octets: &[] };
        assert_eq!(malformed.values().unwrap_err().status(), Status4::BadXdr);
    }

    #[test]
    fn each_attribute_is_read_set_and_compared_as_the_table_says() {
        let all = Bitmap::of(Attribute::ALL.iter().map(|attribute| *attribute as u32));
        let (mut set_only, mut settable) = (Vec::new(), Vec::new());
        for attribute in Attribute::ALL {
            let mask = Bitmap::of([*attribute as u32]);
            let is_set_only = attribute.access() == AttributeAccess::Write;
            assert_eq!(check_readable(&mask).is_err(), is_set_only, "{attribute:?}");
            if check_readable(&mask) == Err(Status4::Inval) {
                set_only.push(*attribute as u32);
                assert_eq!(check_comparable(&mask, &all), Err(Status4::Inval));
            } else {
                let comparable = *attribute != Attribute::RdattrError;
                assert_eq!(check_comparable(&mask, &all).is_ok(), comparable);
            }
            match check_settable(&mask, &all) {
                Ok(()) => settable.push(*attribute as u32),
                Err(status) => assert_eq!(status, Status4::Inval),
            }
        }
        // One among others is enough.
        assert_eq!(check_readable(&Bitmap::of([1, 3, 48])), Err(Status4::Inval));
        assert_eq!(check_settable(&Bitmap::of([4, 20, 33]), &all), Err(Status4::Inval));
        assert_eq!(check_settable(&Bitmap::of([4, 33, 48]), &all), Ok(()));
        assert_eq!(check_comparable(&Bitmap::of([1, 3, 54]), &all), Err(Status4::Inval));
        assert_eq!(check_comparable(&Bitmap::of([1, 3, 19]), &all), Ok(()));
        assert_eq!(set_only, [48, 54, 74, 81]);
        assert_eq!(settable, [4, 12, 14, 25, 33, 36, 37, 46, 48, 49, 50, 54, 74, 81, 84, 85]);
    }
}
