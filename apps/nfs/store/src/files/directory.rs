//! READDIR and READDIRPLUS (RFC 1813 §3.3.16–3.3.17).
//!
//! A cookie is the file system's own offset after an entry. Names that come and go then do not move
//! the others, if the file system guarantees that (ext4, XFS, btrfs do; tmpfs since Linux 6.6).
//! Nothing else needs to be remembered, and the cookie verifier is always zero, as with Linux'
//! server.

use std::os::fd::BorrowedFd;

use rustix::{
    fs::{RawDir, RawDirEntry, SeekFrom, seek},
    io::{Errno, fcntl_dupfd_cloexec},
};
use stag_protocol::nfs::v3::{CookieVerifier, FileHandle, Status};

use super::{
    Files, Intent,
    attributes::{attributes, kind_of_entry},
    cache::FileSlotId,
    data::Want,
    errno::status,
    name::Meaning,
};
use crate::{Failed, FileAttributes, Listed, ListedEntry, ListingStart, Visitor};

const VERIFIER: CookieVerifier = [0; 8];
/// Minimum bytes requested from the file system: several entries with the longest name.
const WINDOW_MIN: usize = 4096;

/// Amount of detail that a listing gives about each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingDetail {
    Name,
    Object,
}

/// The receiver of entries, and the buffer for reading them from the system.
struct EntrySink<'a, 'v> {
    buffer: &'a mut [core::mem::MaybeUninit<u8>],
    visit: &'a mut Visitor<'v>,
}

impl Files {
    /// READDIR (RFC 1813 §3.3.16).
    ///
    /// # Errors
    /// The status of the reply; [`Status::BadCookie`] for a cookie that the server never issued.
    pub fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> Result<Listed, Failed<Option<FileAttributes>>> {
        self.list(directory, place, ListingDetail::Name, visit)
    }

    /// READDIRPLUS (RFC 1813 §3.3.17). `..`, mount points, and entries that cannot be looked up are
    /// listed without handle and attributes; entries removed meanwhile are left out.
    ///
    /// # Errors
    /// As [`Files::readdir`].
    pub fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> Result<Listed, Failed<Option<FileAttributes>>> {
        self.list(directory, place, ListingDetail::Object, visit)
    }

    fn list(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        detail: ListingDetail,
        visit: &mut Visitor<'_>,
    ) -> Result<Listed, Failed<Option<FileAttributes>>> {
        let slot = self.directory(directory, Intent::Look)?;
        if self.shared.policy.is_some() {
            let before = self.attributes(slot)?;
            self.review(slot, &before);
        }
        // The buffer is taken from the store while its entries are processed, and always put back.
        let mut listing = core::mem::take(&mut self.listing);
        let outcome =
            self.list_into(slot, place, detail, EntrySink { buffer: &mut listing, visit });
        self.listing = listing;
        let after = self.attributes(slot)?;
        match outcome {
            Ok(eof) => Ok(Listed { eof, verifier: VERIFIER, attributes: after }),
            Err(status) => Err(Failed { status, about: Some(after) }),
        }
    }

    fn list_into(
        &mut self,
        slot: FileSlotId,
        place: ListingStart,
        detail: ListingDetail,
        EntrySink { buffer, visit }: EntrySink<'_, '_>,
    ) -> Result<bool, Status> {
        // RFC 1813 §3.3.16 [1813-82]: a stale cookie or wrong verifier gets NFS3ERR_BAD_COOKIE
        if place.cookie != 0 && place.verifier != VERIFIER {
            return Err(Status::BadCookie);
        }
        let file = self.rewound(slot, place.cookie)?;
        let window = place.window.clamp(WINDOW_MIN, buffer.len());
        let window = buffer.get_mut(..window).expect("clamped");
        let mut entries = RawDir::new(file, window);
        let (mut room, handle_len) = (place.room, self.handle_of(slot).octets().len());
        let mut any = false;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(status)?;
            // An entry that cannot fit is not looked up. The first is always tried: it may be
            // smaller than most.
            let has_room = detail == ListingDetail::Name
                || room.take(entry.file_name().count_bytes(), handle_len);
            if any && !has_room {
                // RFC 1813 §3.3.16 [1813-81]: eof is TRUE exactly if no entry is left
                return Ok(false);
            }
            if let Some(entry) = self.describe(slot, &entry, detail)? {
                if !visit(&entry) {
                    return Ok(false);
                }
                any = true;
            }
        }
        Ok(true)
    }

    /// The directory's content from `cookie` on, as a separate descriptor, because the store is
    /// used while reading.
    fn rewound(&mut self, slot: FileSlotId, cookie: u64) -> Result<std::os::fd::OwnedFd, Status> {
        let file: BorrowedFd<'_> = self.data_of_any_kind(slot, Want::Read)?;
        // RFC 1813 §3.3.16 [1813-83]: an entry that stays is listed exactly once
        seek(file, SeekFrom::Start(cookie)).map_err(|error| match error {
            Errno::INVAL | Errno::OVERFLOW => Status::BadCookie,
            error => status(error),
        })?;
        let copy = |files: &Self| fcntl_dupfd_cloexec(files.cache.data(slot), 0);
        self.insist(&[slot], copy).map_err(status)
    }

    /// Describes an entry for the listing; none when the entry is gone.
    fn describe<'a>(
        &mut self,
        slot: FileSlotId,
        entry: &'a RawDirEntry<'_>,
        detail: ListingDetail,
    ) -> Result<Option<ListedEntry<'a>>, Status> {
        let (name, cookie) = (entry.file_name().to_bytes(), entry.next_entry_cookie());
        let own = self.cache.get(slot).identity;
        let is_root = own == self.export_of(slot).identity();
        // RFC 1813 §3.3.16 [1813-84]: no entry has file number zero
        let kind = kind_of_entry(entry.file_type());
        let plain = ListedEntry { fileid: entry.ino(), name, cookie, kind, object: None };
        let meaning = Meaning::of(name);
        let is_itself =
            meaning == Ok(Meaning::Itself) || (is_root && meaning == Ok(Meaning::Above));
        if is_itself {
            let object = match detail {
                ListingDetail::Name => None,
                ListingDetail::Object => Some((self.handle_of(slot), self.attributes(slot)?)),
            };
            // The parent of an export's root is that root.
            return Ok(Some(ListedEntry { fileid: own.file.inode, object, ..plain }));
        }
        let (Ok(Meaning::Entry(name)), ListingDetail::Object) = (meaning, detail) else {
            return Ok(Some(plain));
        };
        self.looks.set(self.looks.get() + 1);
        match self.entry(slot, name) {
            Ok(found) => {
                // RFC 1813 §3.3.17 [1813-88]: handle and attributes of an entry match LOOKUP or are
                // absent
                let handle = self.issue(slot, name, &found)?;
                let object = Some((handle, attributes(&found, self.export_of(slot))));
                Ok(Some(ListedEntry { fileid: found.stx_ino, object, ..plain }))
            }
            Err(Status::NoEnt) => Ok(None),
            Err(_) => Ok(Some(plain)),
        }
    }
}
