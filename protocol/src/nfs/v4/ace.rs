//! Entries of access control lists (RFC 8881 §6.2.1), and their bits.

use super::{Owner4, forms::record};

record! {
    /// An entry of an access control list (`nfsace4`).
    Ace<'a> {
        /// [`Ace::ALLOW`], [`Ace::DENY`], audit or alarm.
        kind: u32,
        /// Inheritance ([`flag`]), and whether `who` is a group.
        flags: u32,
        /// Rights that the entry is about ([`right`]).
        mask: u32,
        /// The user or group.
        who: Owner4<'a>,
    }
}

impl Ace<'_> {
    /// The rights are granted (`ACE4_ACCESS_ALLOWED_ACE_TYPE`).
    pub const ALLOW: u32 = 0;
    /// The rights are denied (`ACE4_ACCESS_DENIED_ACE_TYPE`).
    pub const DENY: u32 = 1;
    /// Value of the attribute `aclsupport` for entries of these two kinds.
    pub const ALLOW_AND_DENY: u32 = 0x1 | 0x2;
    /// The file's owner.
    pub const OWNER: &'static [u8] = b"OWNER@";
    /// The file's group.
    pub const GROUP: &'static [u8] = b"GROUP@";
    /// Everybody, the owner and the group included.
    pub const EVERYONE: &'static [u8] = b"EVERYONE@";
}

/// Bits of [`Ace::flags`].
pub mod flag {
    /// New files get the entry.
    pub const FILE_INHERIT: u32 = 0x1;
    /// New directories get the entry.
    pub const DIRECTORY_INHERIT: u32 = 0x2;
    /// The entry does not count for the directory itself.
    pub const INHERIT_ONLY: u32 = 0x8;
    /// The entry is about a group.
    pub const IDENTIFIER_GROUP: u32 = 0x40;
}

/// Bits of [`Ace::mask`].
pub mod right {
    /// To read a file, and to list a directory.
    pub const READ_DATA: u32 = 0x1;
    /// To write to a file, and to add files to a directory.
    pub const WRITE_DATA: u32 = 0x2;
    /// To append to a file, and to add directories to a directory.
    pub const APPEND_DATA: u32 = 0x4;
    /// To execute a file, and to search a directory.
    pub const EXECUTE: u32 = 0x20;
    /// To remove from a directory.
    pub const DELETE_CHILD: u32 = 0x40;
    /// To read attributes.
    pub const READ_ATTRIBUTES: u32 = 0x80;
    /// To change times.
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    /// To read the list.
    pub const READ_ACL: u32 = 0x2_0000;
    /// To change list and mode.
    pub const WRITE_ACL: u32 = 0x4_0000;
    /// To wait for the file's data on stable storage.
    pub const SYNCHRONIZE: u32 = 0x10_0000;
}
