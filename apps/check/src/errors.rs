//! Calls that have to fail, and the errors they have to fail with (the error lists of RFC 1813
//! §3.3).

use super::scene::{CheckScene, CheckedValue, StepResult, done, holds, refused, same};
use stag_client::Error;
use stag_protocol::{
    nfs::v3::{CreateHow, FileHandle, SetAttributes, StableHow, Status},
    rpc::Accepted,
};
use stag_verbs::Provider;

const GUARDED: CreateHow = CreateHow::Guarded(SetAttributes {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: stag_protocol::nfs::v3::SetTime::Keep,
    mtime: stag_protocol::nfs::v3::SetTime::Keep,
});

/// Answer of the Linux server to arguments that no file system could take: the server does not even
/// decode them.
const UNREAD: Error = Error::Rejected(Accepted::GarbageArgs);

/// The refusal that arguments which were not decoded would have met.
fn unread<T>(status: Status, came: Result<T, Error>) -> Result<T, Error> {
    came.map_err(|error| if error == UNREAD { Error::Nfs(status) } else { error })
}

pub(crate) fn names<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let work = scene.work;
    let client = &mut *scene.client;
    let missing = [Status::NoEnt];
    refused("LOOKUP of nothing", &missing, client.lookup(work, b"nothing"))?;
    refused("REMOVE of nothing", &missing, client.remove(work, b"nothing"))?;
    refused("RMDIR of nothing", &missing, client.rmdir(work, b"nothing"))?;
    refused("RENAME of nothing", &missing, client.rename(work, b"nothing", work, b"something"))?;

    let longest = vec![b'n'; scene.name_max];
    let too_long = vec![b'n'; scene.name_max + 1];
    done("CREATE of the longest name", client.create(work, &longest, GUARDED))?;
    done("LOOKUP of the longest name", client.lookup(work, &longest))?;
    done("REMOVE of the longest name", client.remove(work, &longest))?;
    let long = [Status::NameTooLong];
    refused(
        "CREATE of a name too long",
        &long,
        unread(Status::NameTooLong, client.create(work, &too_long, GUARDED)),
    )?;
    refused(
        "MKDIR of a name too long",
        &long,
        unread(Status::NameTooLong, client.mkdir(work, &too_long, 0o755)),
    )?;
    refused(
        "SYMLINK of a name too long",
        &long,
        unread(Status::NameTooLong, client.symlink(work, &too_long, b"path")),
    )?;
    refused(
        "LOOKUP of a name too long",
        &long,
        unread(Status::NameTooLong, client.lookup(work, &too_long)),
    )?;

    // RFC 1813 names several for a name that is none; that nothing happens is what counts.
    let unfit = [
        Status::Inval,
        Status::Acces,
        Status::Exist,
        Status::NoEnt,
        Status::IsDir,
        Status::NotEmpty,
        Status::Perm,
    ];
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
        let shown = name.escape_ascii();
        refused(
            format_args!("CREATE of \"{shown}\""),
            &unfit,
            unread(Status::Inval, client.create(work, name, GUARDED)),
        )?;
        refused(
            format_args!("MKDIR of \"{shown}\""),
            &unfit,
            unread(Status::Inval, client.mkdir(work, name, 0o755)),
        )?;
        refused(
            format_args!("REMOVE of \"{shown}\""),
            &unfit,
            unread(Status::Inval, client.remove(work, name)),
        )?;
        refused(
            format_args!("RMDIR of \"{shown}\""),
            &unfit,
            unread(Status::Inval, client.rmdir(work, name)),
        )?;
    }
    // Nothing above the export's root can be reached (RFC 1813 §3.3.3).
    let is_version4 = client.minor_version().is_some();
    let root = done("GETATTR of the root", client.getattr(scene.root))?;
    match client.lookup(scene.root, b"..") {
        Ok(found) => {
            let above = done("GETATTR of .. of the root", client.getattr(found.object))?;
            // By version 4 the root of all exports is above.
            let is_root = (root.fsid, root.fileid) == (above.fsid, above.fileid);
            holds(".. of the root", is_root || is_version4, "the root itself", above.fileid)
        }
        came => {
            refused("LOOKUP of .. in the root", &[Status::NoEnt, Status::Acces, Status::Perm], came)
        }
    }
}

/// Directories where a file is wanted, and the other way round.
pub(crate) fn kinds<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let work = scene.work;
    let (dir, file) = (scene.make_dir(work, "dir")?, scene.make(work, "file")?);
    scene.make(dir, "inside")?;
    let client = &mut *scene.client;
    let exists = [Status::Exist];
    refused(
        "CREATE, guarded, of a name that exists",
        &exists,
        client.create(work, b"file", GUARDED),
    )?;
    refused("MKDIR of a name that exists", &exists, client.mkdir(work, b"file", 0o755))?;
    refused("SYMLINK of a name that exists", &exists, client.symlink(work, b"dir", b"path"))?;
    let full = [Status::NotEmpty, Status::Exist];
    refused("RMDIR of a directory with content", &full, client.rmdir(work, b"dir"))?;
    let no_file = [Status::IsDir, Status::Inval];
    refused("READ of a directory", &no_file, client.read(dir, 0, &mut [0; 10]))?;
    refused("WRITE to a directory", &no_file, client.write(dir, 0, b"data", StableHow::Unstable))?;
    refused("READLINK of a file", &[Status::Inval], client.readlink(file))?;
    let refusals = [Status::IsDir, Status::Perm, Status::Acces, Status::Exist];
    refused("REMOVE of a directory", &refusals, client.remove(work, b"dir"))?;
    let no_dir = [Status::NotDir];
    refused("RMDIR of a file", &no_dir, client.rmdir(work, b"file"))?;
    refused("LOOKUP in a file", &no_dir, client.lookup(file, b"name"))?;
    refused("CREATE in a file", &no_dir, client.create(file, b"name", GUARDED))?;
    refused("READDIR of a file", &no_dir, client.readdir(file, 4_096))?;
    refused("READDIRPLUS of a file", &no_dir, client.readdirplus(file))?;
    let into = [Status::IsDir, Status::Exist, Status::NotEmpty];
    refused(
        "RENAME of a file over a directory",
        &into,
        client.rename(work, b"file", work, b"dir"),
    )?;
    let over = [Status::NotDir, Status::Exist];
    refused(
        "RENAME of a directory over a file",
        &over,
        client.rename(work, b"dir", work, b"file"),
    )?;
    let itself = [Status::Inval];
    refused(
        "RENAME of a directory into itself",
        &itself,
        client.rename(work, b"dir", dir, b"deeper"),
    )?;
    let linked = [Status::IsDir, Status::Perm, Status::Inval, Status::Acces];
    refused("LINK to a directory", &linked, client.link(dir, work, b"link"))?;
    scene.remove(dir, "inside")?;
    scene.remove_dir(work, "dir")?;
    scene.remove(work, "file")
}

/// Handles of removed objects, and handles that were never given.
pub(crate) fn handles<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let (file, dir) = (scene.make(scene.work, "gone")?, scene.make_dir(scene.work, "gone-too")?);
    scene.remove(scene.work, "gone")?;
    scene.remove_dir(scene.work, "gone-too")?;
    scene.is_gone("a removed file", file)?;
    let client = &mut *scene.client;
    refused(
        "LOOKUP in a removed directory",
        &[Status::Stale, Status::NoEnt],
        client.lookup(dir, b"name"),
    )?;
    refused(
        "CREATE in a removed directory",
        &[Status::Stale, Status::NoEnt],
        client.create(dir, b"name", GUARDED),
    )?;
    let forged = [Status::BadHandle, Status::Stale];
    let octets = scene.work.octets().to_vec();
    let mut ignored = Vec::new();
    for at in 0..octets.len() {
        let mut changed = octets.clone();
        changed.get_mut(at).into_iter().for_each(|octet| *octet ^= 0x40);
        if !is_refused(scene, at, &changed, &forged)? {
            ignored.push(at);
        }
    }
    if !ignored.is_empty() {
        scene.note(format!("the server ignores octets {ignored:?} of a directory's handle"));
    }
    for len in [0, 1, octets.len().saturating_sub(1)] {
        let cut = octets.get(..len).unwrap_or_default();
        refuse_handle(scene, &format!("the directory's handle, cut to {len}"), cut, &forged)?;
    }
    refuse_handle(scene, "a handle of 64 zeros", &[0; FileHandle::MAX], &forged)?;
    let attributes = scene.attributes("the directory", scene.work)?;
    holds("the directory after all that", attributes.nlink > 0, "still there", attributes)
}

/// Returns false if the server takes the working directory's handle with octet `at` changed for the
/// handle of that directory. Two handles may name one object (RFC 1813 §2.5): of tmpfs, knfsd
/// ignores octet 3, the kind of file number. No such handle may lead to another object.
fn is_refused<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    at: usize,
    changed: &[u8],
    forged: &[Status],
) -> CheckedValue<bool> {
    let what = format!("the directory's handle, octet {at} changed");
    let Some(handle) = FileHandle::new(changed) else { return Ok(true) };
    let Ok(found) = scene.client.getattr(handle) else {
        return refuse_handle(scene, &what, changed, forged).map(|()| true);
    };
    let directory = scene.attributes("the directory", scene.work)?;
    same(
        format_args!("the object of {what}"),
        &(directory.fsid, directory.fileid),
        &(found.fsid, found.fileid),
    )?;
    Ok(false)
}

fn refuse_handle<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    what: &str,
    octets: &[u8],
    statuses: &[Status],
) -> StepResult {
    let Some(handle) = FileHandle::new(octets) else { return Ok(()) };
    let came = scene.client.getattr(handle);
    match came {
        Err(UNREAD) if octets.is_empty() => Ok(()),
        came => refused(format_args!("GETATTR by {what}"), statuses, came),
    }
}
