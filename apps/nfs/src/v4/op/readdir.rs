//! READDIR (RFC 8881 §18.23).

use std::sync::Arc;

use stag_protocol::{
    nfs::{
        List, ListWriter,
        v3::{FileHandle, PlusRoom, ReadDirPlusArgs},
        v4::{
            Attribute, AttributeValues, Bitmap, Operation, ReadDir4Args, Status4, check_readable,
        },
    },
    xdr::{NoRoom, Writer},
};

use super::{getattr::HOLDER_KNOWS, lookup::not_a_directory};
use crate::owner_names::OwnerLookups;
use crate::v4::{
    Nfs4,
    attributes::{AttributeSource, FileSystemFacts, ObjectFacts},
    context::{
        CompoundContext, OpExit, OpResult,
        filehandle::{Node, PseudoHandle},
        pseudo_fs::{Below, PseudoTree},
        state_calls::file_id,
    },
};
use stag_nfs_store::{LISTING_MAX, ListedEntry, ListingStart, Store};
use stag_nfs4_state::ConflictFilter;

/// Number, status and verifier before the entries.
const HEAD_LEN: usize = 4 + 4 + 8;
/// Octets that `max_count` includes besides the entries: verifier, end of the list, end of the
/// directory.
const FRAME_LEN: usize = 8 + List::<'static, ()>::END_LEN + 4;

pub(super) fn readdir<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &ReadDir4Args,
) -> OpResult {
    let node = context.current()?;
    check_readable(&args.attributes)?;
    // RFC 8881 §18.23.3 [8881-312]: cookies 1 and 2 stand for entries that are not listed
    if matches!(args.cookie, 1 | 2) {
        return Err(Status4::BadCookie.into());
    }
    if (args.max_count as usize) < FRAME_LEN {
        return Err(Status4::TooSmall.into());
    }
    match node {
        Node::Pseudo(handle) => read_pseudo(context, args, &handle),
        Node::Object(directory) => read_directory(context, args, &directory),
    }
}

/// Writes a listing: `fill` adds entries, and returns true if the directory ends after the last.
struct DirectoryListing<'w, 'b> {
    list: ListWriter<'w, 'b>,
    /// Octets before the list.
    begin: usize,
    /// Octets available for entries.
    room: usize,
    entries: u32,
    is_full: bool,
}

impl DirectoryListing<'_, '_> {
    fn push(&mut self, cookie: u64, name: &[u8], entry: &Entry<'_>) -> bool {
        if self.is_full {
            return false;
        }
        let room = self.room.saturating_sub(self.list.len() - self.begin);
        let pushed = self.list.push(|writer| {
            let before = writer.len();
            writer.u64(cookie)?;
            writer.opaque(name)?;
            entry.emit(writer)?;
            // The TRUE before the entry counts, too.
            if writer.len() - before + 4 > room { Err(NoRoom) } else { Ok(()) }
        });
        self.is_full = pushed.is_err();
        self.entries += u32::from(pushed.is_ok());
        pushed.is_ok()
    }
}

/// Attributes of an entry.
enum Entry<'a> {
    Known(&'a AttributeSource<'a>, &'a Bitmap),
    /// The holder of a write delegation may have other values.
    Held(&'a AttributeSource<'a>, &'a Bitmap),
    /// They are not available.
    Failed(Status4, &'a Bitmap),
}

impl Entry<'_> {
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Known(source, asked) => source.emit(asked, writer),
            Self::Held(source, asked) => source.emit_unknown(asked, writer),
            Self::Failed(status, asked) => {
                let values =
                    AttributeValues { rdattr_error: Some(*status), ..AttributeValues::default() };
                values.emit(asked, writer)
            }
        }
    }
}

/// Writes the results of a READDIR around entries that `fill` adds. `fill` returns the verifier,
/// and true if the directory ends after the last entry.
fn write_listing<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &ReadDir4Args,
    fill: impl FnOnce(
        &mut CompoundContext<'_, '_, S>,
        &mut DirectoryListing<'_, '_>,
    ) -> OpResult<([u8; 8], bool)>,
) -> OpResult {
    // The entries are written to the reply while the store is asked for them.
    let meanwhile = context.another_reply()?;
    let mut reply = std::mem::replace(&mut context.compound.reply, meanwhile);
    let room = (args.max_count.min(LISTING_MAX) as usize).saturating_sub(FRAME_LEN);
    let done = reply.write(|writer| {
        let begin = writer.len() + HEAD_LEN;
        writer.words([Operation::ReadDir as u32, Status4::Ok as u32, 0, 0]).map_err(too_small)?;
        let list = ListWriter::begin(writer, 4).map_err(too_small)?;
        let mut listing = DirectoryListing { list, begin, room, entries: 0, is_full: false };
        let filled = fill(context, &mut listing);
        let (entries, is_full) = (listing.entries, listing.is_full);
        let writer = listing.list.finish();
        let (verifier, eof) = filled?;
        // RFC 8881 §18.23.3 [8881-313]: not even one entry fits
        if entries == 0 && is_full {
            return Err(OpExit::from(Status4::TooSmall));
        }
        writer.bool(eof && !is_full).map_err(too_small)?;
        let (words, _) = verifier.as_chunks::<4>();
        for (at, word) in (begin - 8..begin).step_by(4).zip(words) {
            writer.patch_u32(at, u32::from_be_bytes(*word)).map_err(too_small)?;
        }
        Ok(())
    });
    context.compound.reply = reply;
    done
}

fn too_small(NoRoom: NoRoom) -> OpExit {
    Status4::TooSmall.into()
}

fn read_directory<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &ReadDir4Args,
    directory: &FileHandle,
) -> OpResult {
    let node = Node::Object(*directory);
    let system = context.file_system(&node, &args.attributes)?;
    let lease = context.nfs4.lease_seconds();
    let asked = args.attributes;
    // Attributes of one file can be refused: the client then asks for them by GETATTR.
    let may_be_refused =
        asked.meets(&HOLDER_KNOWS) && asked.contains(Attribute::RdattrError as u32);
    let held = if may_be_refused { context.held_files() } else { None };
    let (listed, ticket) = context.with_owners(|context, owners| {
        let mut rest = EntryRest { asked, system, lease, held, owners };
        (list_entries(context, args, directory, &mut rest), rest.owners.ticket)
    });
    match listed {
        Err(OpExit::Fail(Status4::NotDir)) => match not_a_directory(context, directory) {
            // RFC 8881 §18.23.4 [8881-314]: it has no SYMLINK
            OpExit::Fail(Status4::Symlink) => Err(Status4::NotDir.into()),
            stop => Err(stop),
        },
        // The entries are listed again once the names are known: a client would cache a number.
        Ok(()) => context.await_names(ticket),
        stop => stop,
    }
}

/// Writes the entries of a directory of a store.
fn list_entries<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &ReadDir4Args,
    directory: &FileHandle,
    rest: &mut EntryRest<'_>,
) -> OpResult {
    let count = args.max_count.min(LISTING_MAX);
    write_listing(context, args, |context, listing| {
        let mut from = (args.cookie, args.verifier);
        // A store that reads few entries at a time may read only `.` and `..`.
        loop {
            let plus = ReadDirPlusArgs {
                dir: *directory,
                cookie: from.0,
                verifier: from.1,
                dir_count: count,
                max_count: count,
            };
            let (mut failed, mut last) = (None, from.0);
            let mut visit = |entry: &ListedEntry<'_>| match push(listing, entry, rest) {
                Ok(is_taken) => {
                    if is_taken {
                        last = entry.cookie;
                    }
                    is_taken
                }
                Err(status) => {
                    failed = Some(status);
                    false
                }
            };
            let room = PlusRoom { names: count as usize, all: count as usize };
            let listed = context.list(&plus, ListingStart::plus(&plus, room), &mut visit)?;
            if let Some(status) = failed {
                return Err(status.into());
            }
            let goes_on = listing.entries == 0 && !listing.is_full && !listed.eof;
            if !goes_on || last == from.0 {
                return Ok((listed.verifier, listed.eof));
            }
            from = (last, listed.verifier);
        }
    })
}

/// Facts that all entries of a listing share.
struct EntryRest<'n> {
    asked: Bitmap,
    system: FileSystemFacts,
    lease: u32,
    /// Shows the files of write delegations, if there are any.
    held: Option<Arc<ConflictFilter>>,
    owners: OwnerLookups<'n>,
}

/// Adds an entry of a store; returns false when it does not fit. `.` and `..` are left out.
fn push(
    listing: &mut DirectoryListing<'_, '_>,
    entry: &ListedEntry<'_>,
    rest: &mut EntryRest<'_>,
) -> Result<bool, Status4> {
    let (cookie, name) = (entry.cookie, entry.name);
    let asked = &rest.asked;
    if matches!(name, b"." | b"..") {
        return Ok(true);
    }
    let Some((handle, attributes)) = entry.object else {
        // RFC 8881 §18.23.3: without rdattr_error, one entry fails them all.
        return match asked.contains(Attribute::RdattrError as u32) {
            true => Ok(listing.push(cookie, name, &Entry::Failed(Status4::Access, asked))),
            false => Err(Status4::Access),
        };
    };
    let node = Node::Object(handle);
    let object = ObjectFacts { attributes, mounted_on: None };
    rest.owners.look_up(asked, &attributes);
    let source = AttributeSource {
        node: &node,
        object: &object,
        system: &rest.system,
        owners: rest.owners.form(),
        // Left out: Linux asks for the list of one object only.
        aces: None,
        lease: rest.lease,
    };
    // RFC 8881 §10.4.3: only the holder of a write delegation knows size and times
    let is_held = rest.held.as_ref().is_some_and(|held| held.may_be_held(file_id(&handle)));
    let entry = if is_held { Entry::Held(&source, asked) } else { Entry::Known(&source, asked) };
    Ok(listing.push(cookie, name, &entry))
}

/// A directory of the pseudo file system: the entries that the caller sees.
fn read_pseudo<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &ReadDir4Args,
    handle: &PseudoHandle,
) -> OpResult {
    let directory = context.directory(handle)?;
    let verifier = context.nfs4.pseudo.verifier(directory);
    if args.cookie != 0 && args.verifier != verifier {
        return Err(Status4::NotSame.into());
    }
    let entries = context.nfs4.pseudo.behind(directory, args.cookie).ok_or(Status4::BadCookie)?;
    let asked = args.attributes;
    let (listed, ticket) = context.with_owners(|context, mut owners| {
        let listed = write_listing(context, args, |context, listing| {
            for entry in entries {
                if !push_below(context, listing, [directory, entry], &asked, &mut owners)? {
                    return Ok((verifier, false));
                }
            }
            Ok((verifier, true))
        });
        (listed, owners.ticket)
    });
    listed?;
    context.await_names(ticket)
}

/// The status of an entry that refuses the flavor of the call. The READDIR itself cannot have it.
fn wrong_flavor(asked: &Bitmap) -> OpExit {
    match asked.contains(Attribute::RdattrError as u32) {
        true => Status4::WrongSec.into(),
        false => Status4::Access.into(),
    }
}

/// Adds an entry of a directory of the pseudo file system, with the attributes of its target;
/// returns false when it does not fit.
fn push_below<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    listing: &mut DirectoryListing<'_, '_>,
    [directory, place]: [usize; 2],
    asked: &Bitmap,
    owners: &mut OwnerLookups<'_>,
) -> OpResult<bool> {
    let Some(entry) = context.nfs4.pseudo.entry(directory, place) else { return Ok(false) };
    let found = match entry.below {
        // Entries are hidden from callers that no export list beneath admits.
        Below::Directory(below) if !context.sees(below) => return Ok(true),
        Below::Export(export) if context.admission(export).is_err() => return Ok(true),
        // RFC 8881 §18.29.3 [8881-385]: READDIR reports a wrong flavor by the entry alone
        Below::Export(export) if context.refuses_at(export) => Err(wrong_flavor(asked)),
        Below::Directory(below) if context.refuses_beneath(below) => Err(wrong_flavor(asked)),
        Below::Directory(below) => {
            context.nfs4.pseudo.handle_of(below).map(Node::Pseudo).ok_or(Status4::Stale.into())
        }
        Below::Export(export) => context.export(export).map(Node::Object),
    };
    let found = found.and_then(|node| {
        let object = context.object_facts(&node)?;
        let system = context.file_system(&node, asked)?;
        Ok((node, object, system))
    });
    let Nfs4 { pseudo, .. } = &*context.nfs4;
    let Some(entry) = pseudo.entry(directory, place) else { return Ok(false) };
    let cookie = PseudoTree::cookie(place);
    match found {
        Ok((node, object, system)) => {
            let lease = context.nfs4.lease_seconds();
            owners.look_up(asked, &object.attributes);
            let source = AttributeSource {
                node: &node,
                object: &object,
                system: &system,
                owners: owners.form(),
                aces: None,
                lease,
            };
            Ok(listing.push(cookie, &entry.name, &Entry::Known(&source, asked)))
        }
        // An export that cannot be opened is listed nevertheless.
        Err(OpExit::Fail(status)) if asked.contains(Attribute::RdattrError as u32) => {
            Ok(listing.push(cookie, &entry.name, &Entry::Failed(status, asked)))
        }
        Err(stop) => Err(stop),
    }
}
