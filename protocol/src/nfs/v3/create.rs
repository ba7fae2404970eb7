//! CREATE, MKDIR, SYMLINK and MKNOD: the procedures that make a name (RFC 1813 §3.3.8–3.3.11).

use super::{
    Attributes, CreateVerifier, DeviceNumber, DirOpArgs, Failure, FileHandle, FileKind, PATH_MAX,
    SetAttributes, WccData,
};
use crate::nfs::Bulk;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

/// Results of a successful CREATE, MKDIR, SYMLINK or MKNOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOk {
    /// Handle of the new object.
    pub object: Option<FileHandle>,
    /// Its attributes.
    pub attributes: Option<Attributes>,
    /// The directory before and after.
    pub dir_wcc: WccData,
}

structure!(CreateOk { object, attributes, dir_wcc });

/// Results of CREATE, MKDIR, SYMLINK and MKNOD; a failure carries the directory.
pub type CreateResult = Result<CreateOk, Failure<WccData>>;

/// Treatment of an existing name by CREATE (`createhow3`, RFC 1813 §3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Existing is fine.
    Unchecked(SetAttributes),
    /// Existing is an error.
    Guarded(SetAttributes),
    /// An existing file is an error unless this same call, known by its verifier, made it.
    Exclusive(CreateVerifier),
}

impl Codec<'_> for CreateHow {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        match reader.u32()? {
            0 => SetAttributes::parse(reader).map(Self::Unchecked),
            1 => SetAttributes::parse(reader).map(Self::Guarded),
            // RFC 1813 §3.3.8 [1813-59]: an EXCLUSIVE CREATE carries a verifier and no attributes
            2 => reader.array().map(Self::Exclusive),
            _ => Err(Error::BadValue),
        }
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Unchecked(attributes) => {
                writer.u32(0)?;
                attributes.emit(writer)
            }
            Self::Guarded(attributes) => {
                writer.u32(1)?;
                attributes.emit(writer)
            }
            Self::Exclusive(verifier) => {
                writer.u32(2)?;
                verifier.emit(writer)
            }
        }
    }
}

/// Arguments of CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateArgs<'a> {
    /// The name to make.
    pub place: DirOpArgs<'a>,
    /// Treatment of an existing name, and the attributes of the file.
    pub how: CreateHow,
}

structure!(CreateArgs<'a> { place, how });

/// Arguments of MKDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkDirArgs<'a> {
    /// The name to make.
    pub place: DirOpArgs<'a>,
    /// Of the directory.
    pub attributes: SetAttributes,
}

structure!(MkDirArgs<'a> { place, attributes });

/// Arguments of SYMLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymlinkArgs<'a> {
    /// The name to make.
    pub place: DirOpArgs<'a>,
    /// Of the link.
    pub attributes: SetAttributes,
    /// Target of the link, at most [`PATH_MAX`] octets. DDP-eligible.
    pub path: Bulk<'a>,
}

impl<'a> Codec<'a> for SymlinkArgs<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self {
            place: Codec::parse(reader)?,
            attributes: Codec::parse(reader)?,
            path: Bulk::parse_bounded(reader, PATH_MAX)?,
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.place.emit(writer)?;
        self.attributes.emit(writer)?;
        self.path.emit(writer)
    }
}

/// Kind of object that MKNOD makes (`mknoddata3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A character device.
    Character(SetAttributes, DeviceNumber),
    /// A block device.
    Block(SetAttributes, DeviceNumber),
    /// A socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// Not allowed in MKNOD: the answer is NFS3ERR_BADTYPE.
    Regular,
    /// Not allowed in MKNOD: the answer is NFS3ERR_BADTYPE.
    Directory,
    /// Not allowed in MKNOD: the answer is NFS3ERR_BADTYPE.
    Symlink,
}

impl NodeKind {
    /// The kind, without what belongs to it.
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::Character(..) => FileKind::Character,
            Self::Block(..) => FileKind::Block,
            Self::Socket(_) => FileKind::Socket,
            Self::Fifo(_) => FileKind::Fifo,
            Self::Regular => FileKind::Regular,
            Self::Directory => FileKind::Directory,
            Self::Symlink => FileKind::Symlink,
        }
    }
}

impl Codec<'_> for NodeKind {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match FileKind::parse(reader)? {
            FileKind::Character => Self::Character(Codec::parse(reader)?, Codec::parse(reader)?),
            FileKind::Block => Self::Block(Codec::parse(reader)?, Codec::parse(reader)?),
            FileKind::Socket => Self::Socket(Codec::parse(reader)?),
            FileKind::Fifo => Self::Fifo(Codec::parse(reader)?),
            FileKind::Regular => Self::Regular,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.kind().emit(writer)?;
        match self {
            Self::Character(attributes, device) | Self::Block(attributes, device) => {
                attributes.emit(writer)?;
                device.emit(writer)
            }
            Self::Socket(attributes) | Self::Fifo(attributes) => attributes.emit(writer),
            Self::Regular | Self::Directory | Self::Symlink => Ok(()),
        }
    }
}

/// Arguments of MKNOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkNodArgs<'a> {
    /// The name to make.
    pub place: DirOpArgs<'a>,
    /// Object to make.
    pub what: NodeKind,
}

structure!(MkNodArgs<'a> { place, what });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::survives;

    #[test]
    fn every_way_to_create_survives_and_no_other_exists() {
        let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        assert_eq!(survives!(CreateHow::Unchecked(attributes), CreateHow)[..4], [0, 0, 0, 0]);
        assert_eq!(survives!(CreateHow::Guarded(attributes), CreateHow)[..4], [0, 0, 0, 1]);
        let exclusive = survives!(CreateHow::Exclusive([1, 2, 3, 4, 5, 6, 7, 8]), CreateHow);
        assert_eq!(exclusive, [0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(CreateHow::parse(&mut Reader::new(&[0, 0, 0, 3])), Err(Error::BadValue));
    }

    #[test]
    fn every_kind_of_node_survives_and_no_other_exists() {
        let attributes = SetAttributes { uid: Some(9), ..SetAttributes::default() };
        let device = DeviceNumber { major: 8, minor: 1 };
        let nodes = [
            (NodeKind::Regular, 4),
            (NodeKind::Directory, 4),
            (NodeKind::Block(attributes, device), 4 + 28 + 8),
            (NodeKind::Character(attributes, device), 4 + 28 + 8),
            (NodeKind::Symlink, 4),
            (NodeKind::Socket(attributes), 4 + 28),
            (NodeKind::Fifo(attributes), 4 + 28),
        ];
        for (kind, (node, len)) in (1_u8..).zip(nodes) {
            let wire = survives!(node, NodeKind);
            assert_eq!((wire[..4].to_vec(), wire.len()), (std::vec![0, 0, 0, kind], len));
        }
        for kind in [0, 8] {
            assert_eq!(NodeKind::parse(&mut Reader::new(&[0, 0, 0, kind])), Err(Error::BadValue));
        }
    }
}
