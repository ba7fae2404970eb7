//! First and last steps: the properties that a server reports, a working directory, its removal.

use super::scene::{CheckScene, CheckedValue, StepResult, done, holds, same};
use stag_client::Error;
use stag_engine::config::ITEM_MAX;
use stag_protocol::{
    nfs::{
        mount,
        v3::{self, Access, FileHandle, FileKind},
        v4,
    },
    rpc::Accepted,
};
use stag_verbs::Provider;

/// A program that no server has, from the range for private use (RFC 5531 §8.2).
const NO_PROGRAM: u32 = 0x2fff_fff0;
/// Directories that clean-up goes down into: deeper ones are not ours.
const DEPTH_MAX: usize = 16;

pub(crate) fn null<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    done("NULL of NFS", scene.client.null())?;
    done("NULL of MOUNT", scene.mount().mount_null())
}

/// Checks that absent programs, versions and procedures are refused in the words of RPC (RFC 5531
/// §9).
pub(crate) fn programs<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    // A server of version 4 alone need not have MOUNT, and has NULL and COMPOUND.
    let version = if scene.client.minor_version().is_some() { v4::VERSION } else { v3::VERSION };
    let unknown = match version {
        v3::VERSION => scene.mount().call_empty(mount::PROGRAM, mount::VERSION, 6),
        _ => Err(Error::Rejected(Accepted::ProcUnavail)),
    };
    let mut call =
        |program, version, procedure| scene.client.call_empty(program, version, procedure);
    let rejected = |status| Err(Error::Rejected(status));
    same("an unknown program", &rejected(Accepted::ProgUnavail), &call(NO_PROGRAM, 1, 0))?;
    same(
        "an unknown procedure of NFS",
        &rejected(Accepted::ProcUnavail),
        &call(v3::PROGRAM, version, 22),
    )?;
    same("an unknown procedure of MOUNT", &rejected(Accepted::ProcUnavail), &unknown)?;
    let garbage = call(v3::PROGRAM, version, v3::Procedure::GetAttr.number());
    same("GETATTR without arguments", &rejected(Accepted::GarbageArgs), &garbage)?;
    let mismatch = call(v3::PROGRAM, 99, 0);
    let is_mismatch = matches!(
        mismatch,
        Err(Error::Rejected(Accepted::ProgMismatch { low, high }))
            if (low..=high).contains(&version)
    );
    let expected = format!("PROG_MISMATCH with a range that holds {version}");
    holds("version 99 of NFS", is_mismatch, &expected, mismatch)
}

pub(crate) fn exports<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let exports = done("EXPORT", scene.mount().exports())?;
    let names: Vec<_> =
        exports.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    let listed = exports.iter().any(|path| path == scene.export.as_bytes());
    holds("EXPORT", listed, &format!("a list with {}", scene.export), names)
}

pub(crate) fn mount<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let export = scene.export;
    scene.root = done(format_args!("MNT {export}"), scene.mount().mount(export))?;
    let missing = format!("{export}-that-does-not-exist");
    let came = scene.mount().mount(&missing);
    let is_refused = matches!(came, Err(Error::Mount(mount::Status::NoEnt | mount::Status::Acces)));
    holds(format_args!("MNT {missing}"), is_refused, "NoEnt or Acces", came)?;
    let kind = scene.attributes("the root", scene.root)?.kind;
    same("the root's kind", &FileKind::Directory, &kind)
}

pub(crate) fn file_system<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let info = done("FSINFO", scene.client.fsinfo(scene.root))?;
    holds(
        "FSINFO",
        info.read_max > 0 && info.write_max > 0,
        "READs and WRITEs of some size",
        info,
    )?;
    holds("FSINFO", info.file_size_max >= 1 << 31, "files of 2 GiB", info)?;
    let usable = |len: u32| usize::try_from(len).unwrap_or(usize::MAX).min(ITEM_MAX);
    (scene.read_max, scene.write_max) = (usable(info.read_max), usable(info.write_max));
    let stat = done("FSSTAT", scene.client.fsstat(scene.root))?;
    holds("FSSTAT", stat.free_octets <= stat.total_octets, "no more free than there is", stat)?;
    holds(
        "FSSTAT",
        stat.available_octets <= stat.free_octets,
        "no more for us than is free",
        stat,
    )?;
    let conf = done("PATHCONF", scene.client.pathconf(scene.root))?;
    holds("PATHCONF", (14..=4_095).contains(&conf.name_max), "names of 14 to 4,095 octets", conf)?;
    scene.name_max = usize::try_from(conf.name_max).unwrap_or(255);
    let wanted = Access::READ | Access::LOOKUP;
    let access = done("ACCESS of the root", scene.client.access(scene.root, wanted))?;
    holds("ACCESS of the root", access.contains(wanted), "leave to read and look up", access)
}

pub(crate) fn workspace<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let name = scene.plan.directory.clone();
    scene.base = scene.root;
    for above in &scene.plan.below {
        let shown = above.escape_ascii();
        scene.base =
            done(format_args!("LOOKUP {shown}"), scene.client.lookup(scene.base, above))?.object;
    }
    scene.work = scene.make_dir(scene.base, &name)?;
    scene.is_dirty = true;
    let found = scene.find(scene.base, &name)?;
    let (made, found) =
        (scene.attributes("the directory", scene.work)?, scene.attributes(&name, found)?);
    same("the directory's number", &made.fileid, &found.fileid)
}

/// Takes away the working directory with all that failed steps left in it, and shows that it is
/// gone.
pub(crate) fn clean_up<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let name = scene.plan.directory.clone();
    empty(scene, scene.work, 0)?;
    scene.remove_dir(scene.base, &name)?;
    scene.is_dirty = false;
    let came = scene.client.lookup(scene.base, name.as_bytes());
    super::scene::refused(format_args!("LOOKUP {name}"), &[v3::Status::NoEnt], came)?;
    let export = scene.export;
    done("UMNT", scene.mount().unmount(export))
}

fn empty<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    dir: FileHandle,
    depth: usize,
) -> CheckedValue<()> {
    holds("the working directory", depth < DEPTH_MAX, "fewer directories in each other", depth)?;
    for entry in done("READDIRPLUS while cleaning up", scene.client.readdirplus(dir))? {
        let name = entry.name.as_slice();
        if name == b"." || name == b".." {
            continue;
        }
        let found = done("LOOKUP while cleaning up", scene.client.lookup(dir, name))?.object;
        if scene.attributes("what is left", found)?.kind == FileKind::Directory {
            empty(scene, found, depth + 1)?;
            done("RMDIR while cleaning up", scene.client.rmdir(dir, name))?;
        } else {
            done("REMOVE while cleaning up", scene.client.remove(dir, name))?;
        }
    }
    Ok(())
}
