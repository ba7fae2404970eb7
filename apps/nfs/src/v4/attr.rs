//! Attributes of objects and of their file systems (RFC 8881 §5, RFC 7862 §12).

use stag_protocol::nfs::{
    v3::{DeviceNumber, FileHandle, FileKind, FsInfo, FsStat, PathConf, Time},
    v4::{
        Attribute, AttributeValues, Bitmap, ChangeInfo, DeviceNumber4, FileKind4, Fsid, Status4,
        Text, Time4,
    },
};

use super::{
    Nfs4,
    node::Node,
    turn::{Done, Turn},
};
use crate::store::{FileAttributes, FileTime, ObjectChange, Store, StoreLimits, TRANSFER_MAX};

/// Facts about a file system beside its objects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileSystemFacts {
    stat: Option<FsStat>,
    info: Option<FsInfo>,
    names: Option<PathConf>,
    limits: Option<StoreLimits>,
}

/// Facts about an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectFacts {
    pub(super) attributes: FileAttributes,
    /// Number of the directory entry that an export's root lies over.
    pub(super) mounted_on: Option<u64>,
}

/// Numbers of users and groups as text (RFC 8881 §5.9).
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal {
    octets: [u8; 10],
    from: usize,
}

impl Decimal {
    /// A number without leading zeros.
    pub(super) fn of(mut number: u32) -> Self {
        let mut text = Self { octets: [b'0'; 10], from: 10 };
        loop {
            text.from -= 1;
            if let Some(octet) = text.octets.get_mut(text.from) {
                *octet = b'0' + (number % 10) as u8;
            }
            number /= 10;
            if number == 0 {
                return text;
            }
        }
    }

    /// The digits.
    pub(super) fn text(&self) -> &[u8] {
        self.octets.get(self.from..).unwrap_or_default()
    }

    /// The number that a text stands for.
    ///
    /// # Errors
    /// NFS4ERR_BADOWNER for a name: nobody here knows users by name.
    pub(super) fn parse(text: &[u8]) -> Result<u32, Status4> {
        let is_plain = match text {
            [] | [b'0', _, ..] => false,
            digits => digits.iter().all(u8::is_ascii_digit),
        };
        let text = std::str::from_utf8(text).ok().filter(|_| is_plain);
        // RFC 8881 §5.9 [8881-327]: nobody is known by name
        text.and_then(|text| text.parse().ok()).ok_or(Status4::BadOwner)
    }
}

/// The change attributes of a directory around an operation.
pub(super) const fn change_info(change: &ObjectChange) -> ChangeInfo {
    let [before, after] = change.change_numbers();
    ChangeInfo { atomic: change.is_atomic(), before, after }
}

/// A change that did not take place.
pub(super) const fn no_change(change: u64) -> ChangeInfo {
    ChangeInfo { atomic: true, before: change, after: change }
}

const fn time(time: FileTime) -> Time4 {
    Time4 { seconds: time.seconds, nanoseconds: time.nanos }
}

const fn kind(kind: FileKind) -> FileKind4 {
    match kind {
        FileKind::Regular => FileKind4::Regular,
        FileKind::Directory => FileKind4::Directory,
        FileKind::Block => FileKind4::Block,
        FileKind::Character => FileKind4::Character,
        FileKind::Symlink => FileKind4::Link,
        FileKind::Socket => FileKind4::Socket,
        FileKind::Fifo => FileKind4::Fifo,
    }
}

/// Attributes that objects support: those that are told, and the times that can be set.
pub(super) fn supported() -> Bitmap {
    use Attribute as A;
    Bitmap::of(
        [
            A::SupportedAttrs,
            A::Type,
            A::FhExpireType,
            A::Change,
            A::Size,
            A::LinkSupport,
            A::SymlinkSupport,
            A::NamedAttr,
            A::Fsid,
            A::UniqueHandles,
            A::LeaseTime,
            A::RdattrError,
            A::AclSupport,
            A::CanSetTime,
            A::CaseInsensitive,
            A::CasePreserving,
            A::ChownRestricted,
            A::Filehandle,
            A::Fileid,
            A::FilesAvail,
            A::FilesFree,
            A::FilesTotal,
            A::Homogeneous,
            A::MaxFileSize,
            A::MaxLink,
            A::MaxName,
            A::MaxRead,
            A::MaxWrite,
            A::Mode,
            A::NoTrunc,
            A::NumLinks,
            A::Owner,
            A::OwnerGroup,
            A::RawDev,
            A::SpaceAvail,
            A::SpaceFree,
            A::SpaceTotal,
            A::SpaceUsed,
            A::TimeAccess,
            A::TimeAccessSet,
            A::TimeCreate,
            A::TimeDelta,
            A::TimeMetadata,
            A::TimeModify,
            A::TimeModifySet,
            A::MountedOnFileid,
            A::SuppattrExclcreat,
            A::CloneBlksize,
            A::XattrSupport,
        ]
        .map(|attribute| attribute as u32),
    )
}

/// Attributes that EXCLUSIVE4_1 sets. The times are not among them, as the verifier lies in them;
/// a new file has no size.
pub(super) fn settable_exclusively() -> Bitmap {
    use Attribute as A;
    Bitmap::of([A::Mode, A::Owner, A::OwnerGroup].map(|attribute| attribute as u32))
}

/// Returns true if one of these attributes is asked for.
fn asks(asked: &Bitmap, attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| asked.contains(*attribute as u32))
}

/// The files, the octets and the names of a file system: attributes for which the store is asked.
const SPACE: [Attribute; 6] = [
    Attribute::FilesAvail,
    Attribute::FilesFree,
    Attribute::FilesTotal,
    Attribute::SpaceAvail,
    Attribute::SpaceFree,
    Attribute::SpaceTotal,
];
const LIMITS: [Attribute; 9] = [
    Attribute::LinkSupport,
    Attribute::SymlinkSupport,
    Attribute::CanSetTime,
    Attribute::Homogeneous,
    Attribute::MaxFileSize,
    Attribute::MaxRead,
    Attribute::MaxWrite,
    Attribute::TimeDelta,
    Attribute::UniqueHandles,
];
const NAMES: [Attribute; 6] = [
    Attribute::CaseInsensitive,
    Attribute::CasePreserving,
    Attribute::ChownRestricted,
    Attribute::MaxLink,
    Attribute::MaxName,
    Attribute::NoTrunc,
];

impl<S: Store> Turn<'_, '_, S> {
    /// Asks for the facts about an object's file system that these attributes are made of.
    pub(super) fn file_system(&mut self, node: &Node, asked: &Bitmap) -> Done<FileSystemFacts> {
        let Node::Object(object) = node else { return Ok(FileSystemFacts::default()) };
        let mut facts = FileSystemFacts::default();
        if asks(asked, &SPACE) {
            facts.stat = Some(self.fsstat(object)?);
        }
        if asks(asked, &LIMITS) {
            facts.info = Some(self.fsinfo(object)?);
        }
        if asks(asked, &NAMES) {
            facts.names = Some(self.pathconf(object)?);
        }
        if asks(asked, &[Attribute::CloneBlksize, Attribute::XattrSupport]) {
            facts.limits = Some(self.limits(object)?);
        }
        Ok(facts)
    }

    /// Asks for the facts about an object.
    pub(super) fn object_facts(&mut self, node: &Node) -> Done<ObjectFacts> {
        match node {
            Node::Pseudo(handle) => {
                let directory = self.directory(handle)?;
                Ok(self.nfs4.directory_facts(directory)?)
            }
            Node::Object(object) => {
                let attributes = self.getattr(object)?;
                Ok(self.nfs4.facts_of(object, attributes))
            }
        }
    }
}

impl Nfs4 {
    /// The facts of a directory of the pseudo file system.
    ///
    /// # Errors
    /// NFS4ERR_STALE when there is none at this place.
    pub(super) fn directory_facts(&self, directory: usize) -> Result<ObjectFacts, Status4> {
        let attributes = self.pseudo.attributes(directory).ok_or(Status4::Stale)?;
        Ok(ObjectFacts { attributes, mounted_on: None })
    }

    /// The facts of an object of the store.
    pub(super) fn facts_of(&self, object: &FileHandle, attributes: FileAttributes) -> ObjectFacts {
        let mounted_on = self.pseudo.export_of(object).map(|export| export.number);
        ObjectFacts { attributes, mounted_on }
    }
}

/// Everything that attributes are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttributeSource<'a> {
    pub(super) node: &'a Node,
    pub(super) object: &'a ObjectFacts,
    pub(super) system: &'a FileSystemFacts,
    pub(super) lease: u32,
    /// The owner and the group, as text.
    pub(super) owners: &'a [Decimal; 2],
}

/// The owner and the group of an object, as text.
pub(super) fn owners(attributes: &FileAttributes) -> [Decimal; 2] {
    [attributes.uid, attributes.gid].map(Decimal::of)
}

impl<'a> AttributeSource<'a> {
    /// The values of all attributes that objects support.
    pub(super) fn values(&self) -> AttributeValues<'a> {
        let ObjectFacts { attributes, mounted_on } = *self.object;
        let DeviceNumber { major, minor } = attributes.device;
        let [owner, group] = self.owners;
        let mut values = AttributeValues {
            supported_attrs: Some(supported()),
            kind: Some(kind(attributes.kind)),
            fh_expire_type: Some(0),
            change: Some(attributes.change),
            size: Some(attributes.size),
            named_attr: Some(false),
            fsid: Some(Fsid { major: attributes.fsid, minor: 0 }),
            lease_time: Some(self.lease),
            rdattr_error: Some(Status4::Ok),
            acl_support: Some(0),
            filehandle: Some(self.node.handle()),
            fileid: Some(attributes.fileid),
            mode: Some(attributes.mode),
            num_links: Some(attributes.nlink),
            owner: Some(Text(owner.text())),
            owner_group: Some(Text(group.text())),
            raw_dev: Some(DeviceNumber4 { major, minor }),
            space_used: Some(attributes.used),
            time_access: Some(time(attributes.atime)),
            time_metadata: Some(time(attributes.ctime)),
            time_modify: Some(time(attributes.mtime)),
            time_create: attributes.birth.map(time),
            mounted_on_fileid: Some(mounted_on.unwrap_or(attributes.fileid)),
            suppattr_exclcreat: Some(settable_exclusively()),
            ..AttributeValues::default()
        };
        self.add_file_system(&mut values);
        values
    }

    fn add_file_system(&self, values: &mut AttributeValues<'a>) {
        let FileSystemFacts { stat, info, names, limits } = *self.system;
        values.clone_blksize = limits.and_then(|limits| limits.clone_block);
        values.xattr_support = Some(limits.is_some_and(|limits| limits.has_xattrs));
        let stat = stat.unwrap_or_default();
        values.files_avail = Some(stat.available_files);
        values.files_free = Some(stat.free_files);
        values.files_total = Some(stat.total_files);
        values.space_avail = Some(stat.available_octets);
        values.space_free = Some(stat.free_octets);
        values.space_total = Some(stat.total_octets);
        let has = |property| info.is_none_or(|info| info.properties & property != 0);
        values.link_support = Some(has(FsInfo::LINK));
        values.symlink_support = Some(has(FsInfo::SYMLINK));
        values.can_set_time = Some(has(FsInfo::CAN_SET_TIME));
        values.homogeneous = Some(has(FsInfo::HOMOGENEOUS));
        values.unique_handles = Some(true);
        let size_max = info.map_or(i64::MAX.cast_unsigned(), |info| info.file_size_max);
        values.max_file_size = Some(size_max);
        let [read, write] = info.map_or([TRANSFER_MAX; 2], |info| [info.read_max, info.write_max]);
        (values.max_read, values.max_write) = (Some(read.into()), Some(write.into()));
        let grain = info.map_or(Time { seconds: 0, nanos: 1 }, |info| info.time_delta);
        values.time_delta = Some(time(grain.into()));
        values.max_link = Some(names.map_or(255, |names| names.link_max));
        values.max_name = Some(names.map_or(255, |names| names.name_max));
        values.no_trunc = Some(names.is_none_or(|names| names.no_trunc));
        values.chown_restricted = Some(names.is_none_or(|names| names.chown_restricted));
        values.case_insensitive = Some(names.is_some_and(|names| names.case_insensitive));
        values.case_preserving = Some(names.is_none_or(|names| names.case_preserving));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_decimal_numbers_and_nothing_else_is_an_owner() {
        for (number, text) in [(0, "0"), (7, "7"), (65_534, "65534"), (u32::MAX, "4294967295")] {
            assert_eq!(Decimal::of(number).text(), text.as_bytes());
            assert_eq!(Decimal::parse(text.as_bytes()), Ok(number));
        }
        for text in ["", "00", "07", "root", "1@domain", "4294967296", "-1", "+1", " 1"] {
            assert_eq!(Decimal::parse(text.as_bytes()), Err(Status4::BadOwner), "{text:?}");
        }
    }

    #[test]
    fn every_supported_attribute_has_a_value_but_for_those_that_are_only_set() {
        let tree = super::super::pseudo::PseudoTree::new(["a"].into_iter(), 1, 0);
        let object = ObjectFacts { attributes: tree.attributes(0).unwrap(), mounted_on: None };
        let source = AttributeSource {
            node: &Node::ROOT,
            object: &object,
            system: &FileSystemFacts::default(),
            lease: 90,
            owners: &owners(&object.attributes),
        };
        let mut expected = supported();
        expected.remove(Attribute::TimeAccessSet as u32);
        expected.remove(Attribute::TimeModifySet as u32);
        // Where it is not known, and where there is none.
        expected.remove(Attribute::TimeCreate as u32);
        expected.remove(Attribute::CloneBlksize as u32);
        let told = source.values().mask();
        assert!(told.is_subset(&expected) && expected.is_subset(&told));
    }
}
