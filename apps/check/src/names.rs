//! Names and the objects that they name: rename, link, symbolic links, directories, attributes,
//! ways to create.

use super::scene::{CheckScene, StepResult, done, holds, refused, same};
use stag_client::Error;
use stag_protocol::nfs::v3::{
    Access, CreateHow, DeviceNumber, FileKind, NodeKind, SetAttributes, SetTime, StableHow, Status,
    Time,
};
use stag_verbs::Provider;

/// Octets of the paths in symbolic links. Beyond the third from the end a file system may say that
/// it is too long.
const LINK_LENS: [usize; 9] = [1, 3, 4, 10, 255, 1_000, 1_023, 3_999, 4_095];
/// Octets of a path in a link that every file system takes.
const LINK_LEN_SAFE: usize = 1_023;

pub(crate) fn rename<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let work = scene.work;
    let file = scene.make(work, "before")?;
    scene.write(file, 0, b"one", StableHow::FileSync)?;
    let id = scene.attributes("before", file)?.fileid;
    done("RENAME", scene.client.rename(work, b"before", work, b"after"))?;
    refused("LOOKUP of the old name", &[Status::NoEnt], scene.client.lookup(work, b"before"))?;
    let found = scene.find(work, "after")?;
    same("the number of the renamed file", &id, &scene.attributes("after", found)?.fileid)?;
    // A handle names the file, whatever its name is.
    scene.compare("the renamed file by its first handle", file, b"one")?;

    let other = scene.make(work, "other")?;
    scene.write(other, 0, b"two", StableHow::FileSync)?;
    done("RENAME over a file", scene.client.rename(work, b"after", work, b"other"))?;
    let found = scene.find(work, "other")?;
    scene.compare("the file renamed over another", found, b"one")?;
    scene.is_gone("the file that was replaced", other)?;

    let dir = scene.make_dir(work, "elsewhere")?;
    done("RENAME into a directory", scene.client.rename(work, b"other", dir, b"moved"))?;
    let found = scene.find(dir, "moved")?;
    scene.compare("the moved file", found, b"one")?;
    done("RENAME of a directory", scene.client.rename(work, b"elsewhere", work, b"renamed"))?;
    let found = scene.find(dir, "moved")?;
    scene.compare("the file in the renamed directory", found, b"one")?;
    done("RENAME to itself", scene.client.rename(dir, b"moved", dir, b"moved"))?;
    scene.remove(dir, "moved")?;
    scene.remove_dir(work, "renamed")
}

pub(crate) fn link<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let work = scene.work;
    let file = scene.make(work, "first")?;
    scene.write(file, 0, b"shared", StableHow::Unstable)?;
    done("LINK", scene.client.link(file, work, b"second"))?;
    let second = scene.find(work, "second")?;
    let (one, two) = (scene.attributes("first", file)?, scene.attributes("second", second)?);
    same("numbers of the two names", &one.fileid, &two.fileid)?;
    same("names of the file", &2, &two.nlink)?;
    scene.write(second, 6, b" data", StableHow::FileSync)?;
    scene.compare("what was written through the other name", file, b"shared data")?;
    refused(
        "LINK to a name that exists",
        &[Status::Exist],
        scene.client.link(file, work, b"second"),
    )?;
    scene.remove(work, "first")?;
    same("names of the file", &1, &scene.attributes("second", second)?.nlink)?;
    scene.compare("the file with one name left", second, b"shared data")?;
    scene.remove(work, "second")
}

pub(crate) fn symlink<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    for len in LINK_LENS {
        let name = format!("link-{len}");
        // Components of 200 octets, so that no part of the path is too long for a name.
        let path: Vec<u8> = (0..len)
            .map(|at| if at % 201 == 200 { b'/' } else { b'a' + (at % 26) as u8 })
            .collect();
        let made = scene.client.symlink(scene.work, name.as_bytes(), &path);
        if len > LINK_LEN_SAFE && matches!(made, Err(Error::Nfs(Status::NameTooLong))) {
            continue;
        }
        done(format_args!("SYMLINK to a path of {len} octets"), made)?;
        let link = scene.find(scene.work, &name)?;
        let attributes = scene.attributes(&name, link)?;
        same(format_args!("the kind of {name}"), &FileKind::Symlink, &attributes.kind)?;
        same(format_args!("the size of {name}"), &(len as u64), &attributes.size)?;
        let came = done(format_args!("READLINK {name}"), scene.client.readlink(link))?;
        holds(format_args!("READLINK {name}"), came == path, "the path that was written", came)?;
        scene.remove(scene.work, &name)?;
    }
    Ok(())
}

pub(crate) fn directories<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    const DEPTH: usize = 8;
    let mut chain = vec![scene.work];
    for depth in 0..DEPTH {
        let above = *chain.last().expect("it begins with the working directory");
        chain.push(scene.make_dir(above, &format!("level-{depth}"))?);
    }
    let innermost = *chain.last().expect("it begins with the working directory");
    let file = scene.make(innermost, "leaf")?;
    scene.write(file, 0, b"deep", StableHow::FileSync)?;
    scene.compare("the file deep down", file, b"deep")?;
    let up = scene.find(innermost, "..")?;
    let (up, above) =
        (scene.attributes("..", up)?, chain.get(DEPTH - 1).copied().unwrap_or(innermost));
    same("the directory above", &scene.attributes("it", above)?.fileid, &up.fileid)?;
    refused(
        "RMDIR of a directory with content",
        &[Status::NotEmpty, Status::Exist],
        scene.client.rmdir(scene.work, b"level-0"),
    )?;
    scene.remove(innermost, "leaf")?;
    for (depth, above) in chain.iter().take(DEPTH).enumerate().rev() {
        scene.remove_dir(*above, &format!("level-{depth}"))?;
    }
    refused(
        "LOOKUP of a removed directory",
        &[Status::NoEnt],
        scene.client.lookup(scene.work, b"level-0"),
    )
}

pub(crate) fn attributes<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let file = scene.make(scene.work, "attributes")?;
    for mode in [0o600, 0o644, 0o755, 0o400, 0o640] {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        done(format_args!("SETATTR mode {mode:o}"), scene.client.setattr(file, attributes, None))?;
        same("the mode", &mode, &scene.attributes("the file", file)?.mode)?;
    }
    let then = Time { seconds: 1_000_000_000, nanos: 0 };
    let times = SetAttributes {
        atime: SetTime::Client(Time { seconds: 1_000_000_007, nanos: 0 }),
        mtime: SetTime::Client(then),
        ..SetAttributes::default()
    };
    done("SETATTR times", scene.client.setattr(file, times, None))?;
    let set = scene.attributes("the file", file)?;
    same("mtime", &then, &set.mtime)?;
    same("atime", &1_000_000_007, &set.atime.seconds)?;
    let server = SetAttributes { mtime: SetTime::Server, ..SetAttributes::default() };
    let wrong = Time { seconds: set.ctime.seconds ^ 1, nanos: set.ctime.nanos };
    let came = scene.client.setattr(file, server, Some(wrong));
    refused("SETATTR guarded by another ctime", &[Status::NotSync], came)?;
    same("mtime after a guard that failed", &then, &scene.attributes("the file", file)?.mtime)?;
    done(
        "SETATTR guarded by the right ctime",
        scene.client.setattr(file, server, Some(set.ctime)),
    )?;
    let mtime = scene.attributes("the file", file)?.mtime;
    holds("mtime by the server's clock", mtime > then, "a later time", mtime)?;
    let access = done("ACCESS", scene.client.access(file, Access::READ | Access::MODIFY))?;
    same("ACCESS to a file with mode 640 of ours", &(Access::READ | Access::MODIFY), &access)?;
    scene.remove(scene.work, "attributes")
}

/// Pipes if the server makes them; what MKNOD is not for.
pub(crate) fn nodes<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let attributes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    match scene.client.mknod(scene.work, b"pipe", NodeKind::Fifo(attributes)) {
        Err(Error::Nfs(Status::NotSupp | Status::Perm | Status::BadType)) => {}
        made => {
            done("MKNOD of a pipe", made)?;
            let pipe = scene.find(scene.work, "pipe")?;
            same("the kind of a pipe", &FileKind::Fifo, &scene.attributes("pipe", pipe)?.kind)?;
            scene.remove(scene.work, "pipe")?;
        }
    }
    for what in [NodeKind::Regular, NodeKind::Directory, NodeKind::Symlink] {
        let refusals = [Status::BadType, Status::Inval, Status::NotSupp];
        refused(
            format_args!("MKNOD of a {what:?}"),
            &refusals,
            scene.client.mknod(scene.work, b"node", what),
        )?;
    }
    let device = NodeKind::Character(attributes, DeviceNumber { major: 1, minor: 3 });
    match scene.client.mknod(scene.work, b"device", device) {
        Ok(_) => scene.remove(scene.work, "device"),
        Err(Error::Nfs(Status::Perm | Status::Acces | Status::NotSupp | Status::BadType)) => Ok(()),
        other => done("MKNOD of a device", other).map(drop),
    }
}

/// The three ways to create (RFC 1813 §3.3.8).
pub(crate) fn create<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let work = scene.work;
    let unchecked = CreateHow::Unchecked(SetAttributes::default());
    let file = scene.make(work, "created")?;
    scene.write(file, 0, b"content", StableHow::FileSync)?;
    done(
        "CREATE, unchecked, of a file that exists",
        scene.client.create(work, b"created", unchecked),
    )?;
    scene.compare("the file created again", file, b"content")?;
    let cut = CreateHow::Unchecked(SetAttributes { size: Some(0), ..SetAttributes::default() });
    done("CREATE, unchecked, with size 0", scene.client.create(work, b"created", cut))?;
    scene.compare("the file created again with size 0", file, b"")?;
    let guarded = CreateHow::Guarded(SetAttributes::default());
    refused("CREATE, guarded", &[Status::Exist], scene.client.create(work, b"created", guarded))?;
    scene.remove(work, "created")?;

    let exclusive = |verifier| CreateHow::Exclusive(verifier);
    let (ours, theirs) = ([1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1]);
    done("CREATE, exclusive", scene.client.create(work, b"exclusive", exclusive(ours)))?;
    done("CREATE, exclusive, again", scene.client.create(work, b"exclusive", exclusive(ours)))?;
    let other = scene.client.create(work, b"exclusive", exclusive(theirs));
    refused("CREATE, exclusive, by somebody else", &[Status::Exist], other)?;
    scene.remove(work, "exclusive")
}
