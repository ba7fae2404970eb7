//! Operations on names, handles, attributes and directories (RFC 8881 §18).

use super::HasStatus;
use crate::nfs::v4::forms::{numbers, record};
use crate::nfs::v4::types::LINK_LEN_MAX;
use crate::nfs::v4::{
    Bitmap, ChangeInfo, DeviceNumber4, FileKind4, Name4, RawAttributes, Stateid, Status4, Text,
    Verifier4,
};
use crate::nfs::{Bulk, List};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, padded};

record! {
    /// Arguments of ACCESS (RFC 8881 §18.1.1).
    #[derive(Copy)]
    Access4Args {
        /// Rights that are asked for.
        rights: u32,
    }
}

record! {
    /// Results of ACCESS.
    #[derive(Copy)]
    Access4Ok {
        /// Rights that the server can check.
        supported: u32,
        /// Of those, the ones that the caller has.
        granted: u32,
    }
}

/// Kinds of objects that CREATE makes (`createtype4`, RFC 8881 §18.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateKind<'a> {
    /// A symbolic link to this path. DDP-eligible.
    Link(Bulk<'a>),
    /// A block device.
    Block(DeviceNumber4),
    /// A character device.
    Character(DeviceNumber4),
    /// A socket.
    Socket,
    /// A pipe.
    Fifo,
    /// A directory.
    Directory,
    /// A kind that CREATE does not make: NFS4ERR_BADTYPE.
    Other(u32),
}

impl<'a> Codec<'a> for CreateKind<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        const LINK: u32 = FileKind4::Link as u32;
        const BLOCK: u32 = FileKind4::Block as u32;
        const CHARACTER: u32 = FileKind4::Character as u32;
        const SOCKET: u32 = FileKind4::Socket as u32;
        const FIFO: u32 = FileKind4::Fifo as u32;
        const DIRECTORY: u32 = FileKind4::Directory as u32;
        Ok(match reader.u32()? {
            LINK => Self::Link(Bulk::parse_bounded(reader, LINK_LEN_MAX)?),
            BLOCK => Self::Block(Codec::parse(reader)?),
            CHARACTER => Self::Character(Codec::parse(reader)?),
            SOCKET => Self::Socket,
            FIFO => Self::Fifo,
            DIRECTORY => Self::Directory,
            // RFC 8881 §18.4.1 [8881-11]: other types have no content and are refused by BADTYPE
            other => Self::Other(other),
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Link(path) => {
                FileKind4::Link.emit(writer)?;
                path.emit(writer)
            }
            Self::Block(device) => {
                FileKind4::Block.emit(writer)?;
                device.emit(writer)
            }
            Self::Character(device) => {
                FileKind4::Character.emit(writer)?;
                device.emit(writer)
            }
            Self::Socket => FileKind4::Socket.emit(writer),
            Self::Fifo => FileKind4::Fifo.emit(writer),
            Self::Directory => FileKind4::Directory.emit(writer),
            Self::Other(kind) => writer.u32(*kind),
        }
    }
}

record! {
    /// Arguments of CREATE (RFC 8881 §18.4.1).
    Create4Args<'a> {
        /// Kind of the object.
        kind: CreateKind<'a>,
        /// Its name.
        name: Name4<'a>,
        /// Attributes to set.
        attributes: RawAttributes<'a>,
    }
}

record! {
    /// Results of CREATE.
    Create4Ok {
        /// The directory before and after.
        change: ChangeInfo,
        /// Attributes that were set.
        set: Bitmap,
    }
}

record! {
    /// Arguments of RENAME (RFC 8881 §18.26.1).
    #[derive(Copy)]
    Rename4Args<'a> {
        /// Name in the saved directory.
        old: Name4<'a>,
        /// Name in the current directory.
        new: Name4<'a>,
    }
}

record! {
    /// Results of RENAME.
    Rename4Ok {
        /// The saved directory before and after.
        source: ChangeInfo,
        /// The current directory before and after.
        target: ChangeInfo,
    }
}

record! {
    /// Arguments of SETATTR (RFC 8881 §18.30.1).
    #[derive(Copy)]
    SetAttr4Args<'a> {
        /// For a change of the size: the open, lock or delegation that allows it.
        stateid: Stateid,
        /// Attributes to set.
        attributes: RawAttributes<'a>,
    }
}

record! {
    /// Results of SETATTR (RFC 8881 §18.30.2).
    SetAttr4Result {
        /// Status.
        // RFC 8881 §18.30.2 [8881-12]: the attributes that were set are returned also on failure
        status: Status4,
        /// Attributes that were set, also when a later one failed.
        set: Bitmap,
    }
}

impl HasStatus for SetAttr4Result {
    fn status(&self) -> Status4 {
        self.status
    }
}

record! {
    /// Arguments of READDIR (RFC 8881 §18.23.1).
    ReadDir4Args {
        /// Place to go on; 0 = at the beginning.
        cookie: u64,
        /// From the listing that gave the cookie.
        verifier: Verifier4,
        /// Octets of names and cookies at most: a hint.
        dir_count: u32,
        /// Octets of the results after the status at most.
        max_count: u32,
        /// Attributes wanted.
        attributes: Bitmap,
    }
}

record! {
    /// An entry of a directory (`entry4`).
    #[derive(Copy)]
    Entry4<'a> {
        /// Position from which the entries after this one are read.
        cookie: u64,
        /// Its name.
        name: Name4<'a>,
        /// Its attributes.
        attributes: RawAttributes<'a>,
    }
}

record! {
    /// Results of READDIR.
    ReadDir4Ok<'a> {
        /// To give with a cookie.
        verifier: Verifier4,
        /// Entries.
        entries: List<'a, Entry4<'a>>,
        /// True if the directory ends here.
        eof: bool,
    }
}

/// Results of READLINK: the path. DDP-eligible (RFC 8881 §18.24.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPath<'a>(pub Bulk<'a>);

impl<'a> Codec<'a> for LinkPath<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Bulk::parse_bounded(reader, LINK_LEN_MAX).map(Self)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.0.emit(writer)
    }
}

numbers! {
    /// Protection that RPCSEC_GSS gives (`rpc_gss_svc_t`).
    GssService {
        /// Authentication only.
        None = 1,
        /// Integrity.
        Integrity = 2,
        /// Privacy.
        Privacy = 3,
    }
}

/// A mechanism of RPCSEC_GSS (`rpcsec_gss_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GssMechanism<'a> {
    /// Object identifier.
    pub oid: Text<'a, 1024>,
    /// Quality of protection.
    pub quality: u32,
    /// Protection.
    pub service: GssService,
}

crate::xdr::structure!(GssMechanism<'a> { oid, quality, service });

impl GssMechanism<'static> {
    /// Object identifier of Kerberos 5, 1.2.840.113554.1.2.2 (RFC 4121 §4.1), without DER's tag and
    /// length.
    pub const KERBEROS_OID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
    /// Octets of Kerberos as a security flavor of a list.
    pub const KERBEROS_LEN: usize = 4 + 4 + padded(Self::KERBEROS_OID.len()) + 4 + 4;

    /// Kerberos 5 with this protection, and the default quality.
    pub const fn kerberos(service: GssService) -> Self {
        Self { oid: Text(&Self::KERBEROS_OID), quality: 0, service }
    }
}

/// A security flavor that the server accepts (`secinfo4`, RFC 8881 §18.29.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityFlavor<'a> {
    /// RPCSEC_GSS with this mechanism.
    Gss(GssMechanism<'a>),
    /// A flavor that its number defines: AUTH_NONE is 0, AUTH_SYS is 1.
    Plain(u32),
}

impl SecurityFlavor<'_> {
    /// Number of RPCSEC_GSS (RFC 2203 §5).
    const GSS: u32 = 6;
}

impl<'a> Codec<'a> for SecurityFlavor<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        match reader.u32()? {
            Self::GSS => Codec::parse(reader).map(Self::Gss),
            flavor => Ok(Self::Plain(flavor)),
        }
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Gss(mechanism) => {
                writer.u32(Self::GSS)?;
                mechanism.emit(writer)
            }
            Self::Plain(flavor) => {
                debug_assert_ne!(*flavor, Self::GSS, "RPCSEC_GSS has a mechanism");
                writer.u32(*flavor)
            }
        }
    }
}

numbers! {
    /// Object of a SECINFO_NO_NAME (`secinfo_style4`).
    SecInfoStyle {
        /// The current filehandle.
        Current = 0,
        /// The parent of the current filehandle.
        Parent = 1,
    }
}
