//! Types common to many operations (RFC 8881 §3.2, §3.3).

use core::{fmt, marker::PhantomData};

use super::forms::{numbers, record};
use crate::nfs::v3::FileKind;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, halves, hyper};

/// Octets of a filehandle at most (`NFS4_FHSIZE`, RFC 8881 §3.1).
pub const HANDLE_LEN_MAX: usize = 128;
/// Octets of owners of clients, opens and locks at most (`NFS4_OPAQUE_LIMIT`, RFC 8881 §3.1).
pub const OPAQUE_LEN_MAX: usize = 1024;
/// Octets of the longest name that is parsed: far above any file system's limit, so that the server
/// answers NFS4ERR_NAMETOOLONG and not NFS4ERR_BADXDR.
pub const NAME_LEN_MAX: usize = 4096;
/// Octets of the longest path in a symbolic link that is parsed: Linux' limit.
pub const LINK_LEN_MAX: usize = 4096;

/// A verifier: opaque, compared only (`verifier4`).
pub type Verifier4 = [u8; 8];
/// The name of a session (`sessionid4`).
pub type SessionId = [u8; 16];
/// A filehandle: octets that mean something to the server only.
pub type Handle4<'a> = Text<'a, HANDLE_LEN_MAX>;
/// A name in a directory (`component4`), as it came.
pub type Name4<'a> = Text<'a, NAME_LEN_MAX>;
/// The owner of a client, an open or a lock.
pub type Owner4<'a> = Text<'a, OPAQUE_LEN_MAX>;

/// Opaque data or a string of at most `MAX` octets, borrowed from the message.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Text<'a, const MAX: usize>(pub &'a [u8]);

impl<'a, const MAX: usize> Codec<'a> for Text<'a, MAX> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        // RFC 8881 §3.1 [8881-2]: filehandles and owners have a longest length
        reader.opaque(MAX).map(Self)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        debug_assert!(self.0.len() <= MAX, "the type bounds its content");
        writer.opaque(self.0)
    }
}

impl<const MAX: usize> fmt::Debug for Text<'_, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A counted array, read from a message or written from a slice. A parsed one stores nothing: each
/// item is read when it is requested, and parsing has walked over all of them.
pub struct Array<'a, T>(ListSource<'a, T>);

enum ListSource<'a, T> {
    Wire { reader: Reader<'a>, count: u32, item: PhantomData<T> },
    Slice(&'a [T]),
}

impl<'a, T> Array<'a, T> {
    /// Borrows the items to emit.
    pub const fn of(items: &'a [T]) -> Self {
        Self(ListSource::Slice(items))
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        match &self.0 {
            ListSource::Wire { count, .. } => usize::try_from(*count).unwrap_or(usize::MAX),
            ListSource::Slice(items) => items.len(),
        }
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Codec<'a> + Clone> Array<'a, T> {
    /// Iterates over the items.
    pub fn items(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let (mut reader, count, slice) = match &self.0 {
            ListSource::Wire { reader, count, .. } => (reader.clone(), *count, &[][..]),
            ListSource::Slice(items) => (Reader::new(&[]), 0, *items),
        };
        let parsed = (0..count).map_while(move |_| T::parse(&mut reader).ok());
        parsed.chain(slice.iter().cloned())
    }
}

impl<'a, T: Codec<'a>> Codec<'a> for Array<'a, T> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        const { assert!(size_of::<T>() > 0) }; // an item takes octets, so the message bounds them
        let count = reader.u32()?;
        let start = reader.clone();
        for _ in 0..count {
            T::parse(reader)?;
        }
        Ok(Self(ListSource::Wire { reader: start, count, item: PhantomData }))
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(u32::try_from(self.len()).map_err(|_| NoRoom)?)?;
        match &self.0 {
            ListSource::Slice(items) => items.iter().try_for_each(|item| item.emit(writer)),
            ListSource::Wire { reader, count, .. } => {
                let mut reader = reader.clone();
                let items = (0..*count).map_while(|_| T::parse(&mut reader).ok());
                items.into_iter().try_for_each(|item| item.emit(writer))
            }
        }
    }
}

impl<T> Clone for Array<'_, T> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            ListSource::Wire { reader, count, item } => {
                ListSource::Wire { reader: reader.clone(), count: *count, item: *item }
            }
            ListSource::Slice(items) => ListSource::Slice(items),
        })
    }
}

impl<T> Default for Array<'_, T> {
    fn default() -> Self {
        Self::of(&[])
    }
}

impl<'a, T: Codec<'a> + Clone + PartialEq> PartialEq for Array<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.items().eq(other.items())
    }
}

impl<'a, T: Codec<'a> + Clone + Eq> Eq for Array<'a, T> {}

impl<'a, T: Codec<'a> + Clone + fmt::Debug> fmt::Debug for Array<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.items()).finish()
    }
}

record! {
    /// The name of an open, of locks or of a delegation (`stateid4`, RFC 8881 §8.2).
    #[derive(Copy, Hash)]
    Stateid {
        /// Counts changes of the state; 0 stands for the newest.
        seqid: u32,
        /// The state itself.
        other: [u8; 12],
    }
}

// RFC 8881 §8.2.3 [8881-3]: four stateids have a meaning of their own
impl Stateid {
    /// Names no open and no lock: I/O is checked against share reservations only.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// As [`Stateid::ANONYMOUS`], and a READ may bypass locks.
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// Stands for the current stateid of the compound.
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// Never valid: what CLOSE gives back.
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    /// Returns true for the two that stand for no state (RFC 8881 §8.2.3).
    pub fn is_anonymous(&self) -> bool {
        *self == Self::ANONYMOUS || *self == Self::READ_BYPASS
    }

    /// Returns true if `other` is reserved: all zeros or all ones.
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

record! {
    /// A directory's change attribute around an operation (`change_info4`).
    #[derive(Copy)]
    ChangeInfo {
        /// True if there was no other change of the directory in between.
        atomic: bool,
        /// Before the operation.
        before: u64,
        /// After it.
        after: u64,
    }
}

record! {
    /// The name of a file system within its server (`fsid4`).
    #[derive(Copy, Hash)]
    Fsid {
        /// Major part.
        major: u64,
        /// Minor part.
        minor: u64,
    }
}

record! {
    /// Numbers of a device (`specdata4`).
    #[derive(Copy)]
    DeviceNumber4 {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    }
}

/// Seconds since 1970 and nanoseconds (`nfstime4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time4 {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds to add, as received: a server refuses 10⁹ and more by NFS4ERR_INVAL.
    pub nanoseconds: u32,
}

impl Codec<'_> for Time4 {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let [high, low, nanoseconds] = reader.words()?;
        Ok(Self { seconds: hyper(high, low).cast_signed(), nanoseconds })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let [high, low] = halves(self.seconds.cast_unsigned());
        writer.words([high, low, self.nanoseconds])
    }
}

numbers! {
    /// The type of an object (`nfs_ftype4`).
    FileKind4 {
        /// A regular file.
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        Block = 3,
        /// A character device.
        Character = 4,
        /// A symbolic link.
        Link = 5,
        /// A socket.
        Socket = 6,
        /// A pipe.
        Fifo = 7,
        /// A directory of named attributes.
        AttributeDirectory = 8,
        /// A named attribute.
        NamedAttribute = 9,
    }
}

impl From<FileKind> for FileKind4 {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Regular => Self::Regular,
            FileKind::Directory => Self::Directory,
            FileKind::Block => Self::Block,
            FileKind::Character => Self::Character,
            FileKind::Symlink => Self::Link,
            FileKind::Socket => Self::Socket,
            FileKind::Fifo => Self::Fifo,
        }
    }
}

record! {
    /// An open-owner or lock-owner (`state_owner4`).
    StateOwner<'a> {
        /// Ignored in version 4.1: the session's client counts.
        client_id: u64,
        /// The owner within the client.
        owner: Owner4<'a>,
    }
}
