//! Attributes of objects and of their file systems (RFC 8881 §5, RFC 7862 §12).

use stag_protocol::{
    nfs::{
        v3::{FileHandle, FileKind, FsInfo, FsStat, PathConf, Time},
        v4::{
            Ace, Attribute, Bitmap, ChangeInfo, FileKind4, Fsid, OpenArguments, STAT_ATTRIBUTES,
            Status4, Time4, emit_attributes, share,
        },
    },
    xdr::{Codec as _, NoRoom, Writer},
};

pub(in crate::v4) mod acl;
pub(in crate::v4) mod settable;

use self::acl::{AceOf, emit_aces};
use super::{
    Nfs4,
    context::{CompoundContext, OpResult, filehandle::Node},
};
use crate::owner_names::{OwnerForm, OwnerKind};
use stag_nfs_store::{
    FileAttributes, FileTime, ObjectChange, Store, StoreLimits, TRANSFER_MAX, emit_stat,
};

/// Facts about a file system that do not depend on an object.
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
    /// Number of the directory entry that an export's root is mounted on.
    pub(super) mounted_on: Option<u64>,
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

/// Attributes that objects support: the readable ones, and times and umask, which are set only.
pub(super) const SUPPORTED: Bitmap = {
    use Attribute as A;
    Bitmap::of_attributes(&[
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
        A::Acl,
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
        A::ModeUmask,
        A::XattrSupport,
        A::OpenArguments,
    ])
};

/// Attributes that EXCLUSIVE4_1 sets. The times are not among them, as the verifier is stored in
/// them; a new file has no size.
pub(super) const SETTABLE_EXCLUSIVELY: Bitmap = Bitmap::of_attributes(&[
    Attribute::Mode,
    Attribute::Owner,
    Attribute::OwnerGroup,
    Attribute::ModeUmask,
]);

/// Supported options of OPEN (RFC 9754 §2): each bit stands for the value of its number. Neither
/// timestamps of delegations nor delegations instead of opens are among them.
fn open_arguments() -> OpenArguments {
    let want = [share::WANT_ANY_DELEGATION, share::WANT_NO_DELEGATION, share::WANT_CANCEL];
    OpenArguments {
        share_access: Bitmap::of([share::READ, share::WRITE, share::BOTH]),
        share_deny: Bitmap::of([0, share::READ, share::WRITE, share::BOTH]),
        share_access_want: Bitmap::of(want.map(|want| want >> 8)),
        // NULL, PREVIOUS, DELEGATE_CUR, FH and DELEG_CUR_FH.
        claim: Bitmap::of([0, 1, 2, 4, 5]),
        // UNCHECKED4, GUARDED4, EXCLUSIVE4 and EXCLUSIVE4_1.
        create_mode: Bitmap::of([0, 1, 2, 3]),
    }
}

/// The files, the octets and the names of a file system: attributes for which the store is asked.
const SPACE: Bitmap = Bitmap::of_attributes(&[
    Attribute::FilesAvail,
    Attribute::FilesFree,
    Attribute::FilesTotal,
    Attribute::SpaceAvail,
    Attribute::SpaceFree,
    Attribute::SpaceTotal,
]);
const LIMITS: Bitmap = Bitmap::of_attributes(&[
    Attribute::LinkSupport,
    Attribute::SymlinkSupport,
    Attribute::CanSetTime,
    Attribute::Homogeneous,
    Attribute::MaxFileSize,
    Attribute::MaxRead,
    Attribute::MaxWrite,
    Attribute::TimeDelta,
    Attribute::UniqueHandles,
]);
const NAMES: Bitmap = Bitmap::of_attributes(&[
    Attribute::CaseInsensitive,
    Attribute::CasePreserving,
    Attribute::ChownRestricted,
    Attribute::MaxLink,
    Attribute::MaxName,
    Attribute::NoTrunc,
]);
const EXTENSIONS: Bitmap = Bitmap::of_attributes(&[
    Attribute::SupportedAttrs,
    Attribute::Acl,
    Attribute::AclSupport,
    Attribute::CloneBlksize,
    Attribute::XattrSupport,
]);

/// Returns true if facts about a file system are asked for.
pub(super) fn needs_file_system(asked: &Bitmap) -> bool {
    [&SPACE, &LIMITS, &NAMES, &EXTENSIONS].into_iter().any(|facts| asked.meets(facts))
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Asks for the facts about an object's file system from which these attributes are derived.
    pub(super) fn file_system(&mut self, node: &Node, asked: &Bitmap) -> OpResult<FileSystemFacts> {
        let Node::Object(object) = node else { return Ok(FileSystemFacts::default()) };
        let mut facts = FileSystemFacts::default();
        if asked.meets(&SPACE) {
            facts.stat = Some(self.fsstat(object)?.0);
        }
        if asked.meets(&LIMITS) {
            facts.info = Some(self.fsinfo(object)?.0);
        }
        if asked.meets(&NAMES) {
            facts.names = Some(self.pathconf(object)?.0);
        }
        if asked.meets(&EXTENSIONS) {
            facts.limits = Some(self.limits(object)?);
        }
        Ok(facts)
    }

    /// Asks for the facts about an object.
    pub(super) fn object_facts(&mut self, node: &Node) -> OpResult<ObjectFacts> {
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
        ObjectFacts { attributes, mounted_on: self.mounted_on(object, attributes.kind) }
    }

    /// Number of the directory entry that an object is mounted on, if it is an export's root.
    #[inline]
    pub(super) fn mounted_on(&self, object: &FileHandle, kind: FileKind) -> Option<u64> {
        // The root of an export is a directory.
        let root = || self.pseudo.export_of(object).map(|export| export.number);
        if kind == FileKind::Directory { root() } else { None }
    }
}

/// Attributes of an entry whose file may have been changed by the holder of a delegation. Without
/// `fsid` Linux takes them for the name alone, and does not refresh its cached attributes.
const NAMED: Bitmap = Bitmap::of_attributes(&[
    Attribute::Type,
    Attribute::RdattrError,
    Attribute::Fileid,
    Attribute::MountedOnFileid,
]);

/// Everything that attributes are derived from.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttributeSource<'a> {
    pub(super) node: &'a Node,
    pub(super) object: &'a ObjectFacts,
    pub(super) system: &'a FileSystemFacts,
    pub(super) owners: OwnerForm<'a>,
    /// The entries of its access control list, if that is asked for.
    pub(super) aces: Option<&'a [AceOf]>,
    pub(super) lease: u32,
}

impl AttributeSource<'_> {
    /// Attributes that have a value.
    fn mask(&self) -> Bitmap {
        let mut mask = SUPPORTED;
        mask.remove(Attribute::TimeAccessSet as u32);
        mask.remove(Attribute::TimeModifySet as u32);
        mask.remove(Attribute::ModeUmask as u32);
        if self.aces.is_none() {
            mask.remove(Attribute::Acl as u32);
        }
        if self.object.attributes.birth.is_none() {
            mask.remove(Attribute::TimeCreate as u32);
        }
        if self.system.limits.is_none_or(|limits| limits.clone_block.is_none()) {
            mask.remove(Attribute::CloneBlksize as u32);
        }
        mask
    }

    /// Writes the attributes that identify a directory's entry, and that the rest are not
    /// available.
    pub(super) fn emit_unknown(
        &self,
        asked: &Bitmap,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        emit_attributes(&asked.intersection(&NAMED), writer, |attribute, writer| match attribute {
            Attribute::RdattrError => writer.u32(Status4::Delay as u32),
            _ => self.emit_one(attribute, writer),
        })
    }

    /// Writes each attribute in `asked` that has a value (RFC 8881 §5.5).
    pub(super) fn emit(&self, asked: &Bitmap, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        if *asked == STAT_ATTRIBUTES && matches!(self.owners, OwnerForm::Numbers) {
            let ObjectFacts { attributes, mounted_on } = self.object;
            return emit_stat(attributes, mounted_on.unwrap_or(attributes.fileid), writer);
        }
        // RFC 8881 §18.7.3: an answer has only attributes that were asked for
        let mask = asked.intersection(&self.mask());
        emit_attributes(&mask, writer, |attribute, writer| self.emit_one(attribute, writer))
    }

    /// Writes the value of one attribute, if it has one.
    #[inline]
    pub(super) fn emit_one(
        &self,
        attribute: Attribute,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        use Attribute as A;
        let ObjectFacts { attributes: object, mounted_on } = self.object;
        match attribute {
            A::SupportedAttrs => self.system.supported(&EXTENSIONS).emit(writer),
            A::Type => writer.u32(FileKind4::from(object.kind) as u32),
            A::FhExpireType => writer.u32(0),
            A::Acl => emit_aces(self.aces.unwrap_or_default(), self.owners, writer),
            A::Change => writer.u64(object.change),
            A::Size => writer.u64(object.size),
            A::NamedAttr => writer.bool(false),
            A::Fsid => Fsid { major: object.fsid, minor: 0 }.emit(writer),
            A::LeaseTime => writer.u32(self.lease),
            A::RdattrError => writer.u32(Status4::Ok as u32),
            A::Filehandle => self.node.handle().emit(writer),
            A::Fileid => writer.u64(object.fileid),
            A::Mode => writer.u32(object.mode),
            A::NumLinks => writer.u32(object.nlink),
            A::Owner => self.owners.emit(OwnerKind::User, object.uid, writer),
            A::OwnerGroup => self.owners.emit(OwnerKind::Group, object.gid, writer),
            A::RawDev => writer.words([object.device.major, object.device.minor]),
            A::SpaceUsed => writer.u64(object.used),
            A::TimeAccess => Time4::from(object.atime).emit(writer),
            A::TimeMetadata => Time4::from(object.ctime).emit(writer),
            A::TimeModify => Time4::from(object.mtime).emit(writer),
            A::TimeCreate => object.birth.map_or(Ok(()), |birth| Time4::from(birth).emit(writer)),
            A::MountedOnFileid => writer.u64(mounted_on.unwrap_or(object.fileid)),
            A::SuppattrExclcreat => SETTABLE_EXCLUSIVELY.emit(writer),
            A::OpenArguments => open_arguments().emit(writer),
            other => self.system.emit_one(other, writer),
        }
    }
}

impl FileSystemFacts {
    fn has_acls(&self) -> bool {
        self.limits.is_some_and(|limits| limits.has_acls)
    }

    /// Attributes that its objects support, as far as they are `asked` about.
    pub(super) fn supported(&self, asked: &Bitmap) -> Bitmap {
        let mut supported = SUPPORTED;
        if !self.has_acls() && asked.meets(&EXTENSIONS) {
            supported.remove(Attribute::Acl as u32);
        }
        supported
    }

    /// Writes the value of one attribute of a file system, if it has one. Facts that were not asked
    /// of the store have the usual value.
    fn emit_one(&self, attribute: Attribute, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        use Attribute as A;
        let Self { stat, info, names, limits } = *self;
        let stat = stat.unwrap_or_default();
        let has = |property| info.is_none_or(|info| info.properties & property != 0);
        match attribute {
            A::AclSupport => writer.u32(if self.has_acls() { Ace::ALLOW_AND_DENY } else { 0 }),
            A::FilesAvail => writer.u64(stat.available_files),
            A::FilesFree => writer.u64(stat.free_files),
            A::FilesTotal => writer.u64(stat.total_files),
            A::SpaceAvail => writer.u64(stat.available_octets),
            A::SpaceFree => writer.u64(stat.free_octets),
            A::SpaceTotal => writer.u64(stat.total_octets),
            A::LinkSupport => writer.bool(has(FsInfo::LINK)),
            A::SymlinkSupport => writer.bool(has(FsInfo::SYMLINK)),
            A::CanSetTime => writer.bool(has(FsInfo::CAN_SET_TIME)),
            A::Homogeneous => writer.bool(has(FsInfo::HOMOGENEOUS)),
            A::UniqueHandles => writer.bool(true),
            A::MaxFileSize => {
                writer.u64(info.map_or(i64::MAX.cast_unsigned(), |info| info.file_size_max))
            }
            A::MaxRead => writer.u64(info.map_or(TRANSFER_MAX, |info| info.read_max).into()),
            A::MaxWrite => writer.u64(info.map_or(TRANSFER_MAX, |info| info.write_max).into()),
            A::TimeDelta => {
                let grain = info.map_or(Time { seconds: 0, nanos: 1 }, |info| info.time_delta);
                Time4::from(FileTime::from(grain)).emit(writer)
            }
            A::MaxLink => writer.u32(names.map_or(255, |names| names.link_max)),
            A::MaxName => writer.u32(names.map_or(255, |names| names.name_max)),
            A::NoTrunc => writer.bool(names.is_none_or(|names| names.no_trunc)),
            A::ChownRestricted => writer.bool(names.is_none_or(|names| names.chown_restricted)),
            A::CaseInsensitive => writer.bool(names.is_some_and(|names| names.case_insensitive)),
            A::CasePreserving => writer.bool(names.is_none_or(|names| names.case_preserving)),
            A::CloneBlksize => {
                let block = limits.and_then(|limits| limits.clone_block);
                block.map_or(Ok(()), |block| writer.u32(block))
            }
            A::XattrSupport => writer.bool(limits.is_some_and(|limits| limits.has_xattrs)),
            other => {
                debug_assert!(!SUPPORTED.contains(other as u32), "{other:?} has a value");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::{nfs::v4::RawAttributes, xdr::Reader};

    #[test]
    fn every_supported_attribute_has_a_value_but_for_those_that_are_only_set() {
        let tree = crate::v4::context::pseudo_fs::PseudoTree::new(["a"].into_iter(), 1, 0);
        let mut object = ObjectFacts { attributes: tree.attributes(0).unwrap(), mounted_on: None };
        let mut system = FileSystemFacts::default();
        for (birth, clone_block) in [(None, None), (Some(FileTime::default()), Some(4_096))] {
            object.attributes.birth = birth;
            system.limits = Some(StoreLimits {
                clone_block,
                has_xattrs: true,
                has_acls: true,
                time_delta_ns: 1,
                change_grows: false,
            });
            let source = AttributeSource {
                node: &Node::ROOT,
                object: &object,
                system: &system,
                owners: OwnerForm::Numbers,
                aces: Some(&[]),
                lease: 90,
            };
            let mut expected = SUPPORTED;
            expected.remove(Attribute::TimeAccessSet as u32);
            expected.remove(Attribute::TimeModifySet as u32);
            expected.remove(Attribute::ModeUmask as u32);
            if birth.is_none() {
                // If unknown, and if there is none.
                expected.remove(Attribute::TimeCreate as u32);
                expected.remove(Attribute::CloneBlksize as u32);
            }
            let alone = SUPPORTED.numbers().map(|number| Bitmap::of([number]));
            for asked in alone.chain([SUPPORTED, STAT_ATTRIBUTES, Bitmap::EMPTY]) {
                let mut octets = [0; 2_048];
                let mut writer = Writer::new(&mut octets);
                source.emit(&asked, &mut writer).unwrap();
                let len = writer.len();
                // Values written by the fast path are the same octets.
                let mut one_by_one = [0; 2_048];
                let mut writer = Writer::new(&mut one_by_one);
                let mask = asked.intersection(&source.mask());
                emit_attributes(&mask, &mut writer, |one, writer| source.emit_one(one, writer))
                    .unwrap();
                assert_eq!(octets, one_by_one, "{asked:?}");
                let told: RawAttributes<'_> = Reader::new(&octets[..len]).whole().unwrap();
                assert_eq!(told.mask, asked.intersection(&expected));
                // Each value has the form of its attribute, and nothing follows the last one.
                assert_eq!(told.values().unwrap().mask(), told.mask, "{asked:?}");
            }
        }
    }
}
