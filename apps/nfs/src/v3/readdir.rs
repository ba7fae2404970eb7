//! READDIR and READDIRPLUS (RFC 1813 §3.3.16–3.3.17).

use stag_protocol::{
    nfs::v3::{
        Attributes, Entry, EntryPlus, Failure, FileHandle, Name, PlusLimits, ReadDirArgs,
        ReadDirPlusArgs, ReadDirPlusWriter, ReadDirWriter, Status,
    },
    xdr::Writer,
};

use crate::reply::{ReplyWriter, Results};
use stag_nfs_store::{self, LISTING_MAX, Listed, ListingStart, Procedures};

/// The status, before the part that `count` measures.
const STATUS_LEN: usize = 4;

type ListingAttributes = Option<Attributes>;

/// Bytes of results to reserve.
pub(super) fn results_len(count: u32) -> usize {
    STATUS_LEN + count.min(LISTING_MAX) as usize
}

pub(super) fn readdir(
    store: &mut impl Procedures,
    args: &ReadDirArgs,
    reply: &mut ReplyWriter,
) -> Status {
    let count = args.count.min(LISTING_MAX);
    let place = ListingStart::from(args);
    list(store, &args.dir, reply, |store, directory, writer| {
        let before = Some(directory);
        let mut list =
            ReadDirWriter::begin(writer, before, args.verifier, count).map_err(refusal(before))?;
        let listed = store.readdir(&args.dir, place, &mut |entry| list.push(&plain(entry)).is_ok());
        let listed = listed?;
        list.finish(listed.eof).map_err(refusal(before))?;
        Ok(listed)
    })
}

pub(super) fn readdirplus(
    store: &mut impl Procedures,
    args: &ReadDirPlusArgs,
    reply: &mut ReplyWriter,
) -> Status {
    list(store, &args.dir, reply, |store, directory, writer| {
        fill_plus(store, args, directory, writer)
    })
}

/// Writes a listing with attributes and handles; looks up each entry once, whatever the caller's
/// room.
pub(crate) fn fill_plus(
    store: &mut impl Procedures,
    args: &ReadDirPlusArgs,
    directory: Attributes,
    writer: &mut Writer<'_>,
) -> Result<Listed, Failure<ListingAttributes>> {
    let count = args.max_count.min(LISTING_MAX);
    let before = Some(directory);
    let limits = PlusLimits { dir_count: args.dir_count, max_count: count };
    let mut list =
        ReadDirPlusWriter::begin(writer, before, args.verifier, limits).map_err(refusal(before))?;
    let place = ListingStart::plus(args, list.room());
    let listed = store.readdirplus(&args.dir, place, &mut |entry| list.push(&plus(entry)).is_ok());
    let listed = listed?;
    list.finish(listed.eof).map_err(refusal(before))?;
    Ok(listed)
}

/// Lets `write` write a listing, then puts the verifier of the listing in its place.
///
/// The attributes are those from before the listing: a client that takes a list for older than it
/// is lists again, one that takes it for newer keeps it too long.
fn list<S: Procedures>(
    store: &mut S,
    directory: &FileHandle,
    reply: &mut ReplyWriter,
    write: impl FnOnce(
        &mut S,
        Attributes,
        &mut Writer<'_>,
    ) -> Result<Listed, Failure<ListingAttributes>>,
) -> Status {
    let outcome = store.getattr(directory).map_err(Failure::from).and_then(|attributes| {
        let attributes = Attributes::from(attributes);
        reply.write(|writer| {
            let listed = write(store, attributes, writer)?;
            let at = STATUS_LEN + 4 + Attributes::LEN;
            patch(writer, at, &listed.verifier);
            Ok(())
        })
    });
    match outcome {
        Ok(()) => Status::Ok,
        Err(failure) => reply.results(&Err::<(), _>(failure)),
    }
}

/// Overwrites the verifier at byte `at`.
fn patch(writer: &mut Writer<'_>, at: usize, verifier: &[u8; 8]) {
    let (words, _) = verifier.as_chunks();
    for (place, word) in (at..).step_by(4).zip(words) {
        writer
            .patch_u32(place, u32::from_be_bytes(*word))
            .expect("a listing begins with its verifier");
    }
}

fn refusal(about: ListingAttributes) -> impl Fn(Status) -> Failure<ListingAttributes> {
    move |status| Failure { status, attributes: about }
}

fn plain<'a>(entry: &stag_nfs_store::ListedEntry<'a>) -> Entry<'a> {
    Entry { fileid: entry.fileid, name: Name(entry.name), cookie: entry.cookie }
}

fn plus<'a>(entry: &stag_nfs_store::ListedEntry<'a>) -> EntryPlus<'a> {
    let (handle, attributes) = entry.object.unzip();
    EntryPlus { entry: plain(entry), attributes: attributes.map(Into::into), handle }
}
