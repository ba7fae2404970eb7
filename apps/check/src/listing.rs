//! A large directory, listed exactly by both procedures.

use super::scene::{CheckScene, StepResult, done, holds, same};
use stag_client::DirEntry;
use stag_protocol::nfs::v3::{CreateHow, FileHandle, FileKind, SetAttributes};
use stag_verbs::Provider;
use std::collections::BTreeMap;

/// One entry in this number is a directory.
const DIRECTORY_EVERY: u32 = 50;
/// Octets of a READDIR page: a small one, and one that needs a Reply chunk.
const PAGES: [u32; 2] = [1_024, 32_768];

/// Names of many lengths, so that pages end at different places.
fn name(number: u32) -> String {
    let tail = usize::try_from(number % 37).unwrap_or(0);
    format!("entry-{number:05}{}", "-".repeat(tail))
}

pub(crate) fn listing<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let dir = scene.make_dir(scene.work, "large")?;
    let empty = done("READDIRPLUS of an empty directory", scene.client.readdirplus(dir))?;
    same("names in an empty directory", &BTreeMap::new(), &named("READDIRPLUS", empty)?)?;
    let made = fill(scene, dir)?;
    let plus = done("READDIRPLUS", scene.client.readdirplus(dir))?;
    for DirEntry { name, fileid, attributes, .. } in &plus {
        let name = name.escape_ascii();
        if let Some(attributes) = attributes {
            same(
                format_args!("the number of {name} in its attributes"),
                fileid,
                &attributes.fileid,
            )?;
        }
    }
    check_handles(scene, &plus)?;
    compare("READDIRPLUS", &made, named("READDIRPLUS", plus)?)?;
    for count in PAGES {
        let what = format!("READDIR in pages of {count} octets");
        let listed = done(&what, scene.client.readdir(dir, count))?;
        compare(&what, &made, named(&what, listed)?)?;
    }
    for number in 0..scene.plan.entries {
        if number % DIRECTORY_EVERY == 0 {
            scene.remove_dir(dir, &name(number))?;
        } else {
            scene.remove(dir, &name(number))?;
        }
    }
    let left = done("READDIRPLUS", scene.client.readdirplus(dir))?;
    same("names left", &BTreeMap::new(), &named("READDIRPLUS", left)?)?;
    scene.remove_dir(scene.work, "large")
}

type Names = BTreeMap<Vec<u8>, u64>;

/// Makes the entries; gives their names with their numbers.
fn fill<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    dir: FileHandle,
) -> Result<Names, super::CheckFailure> {
    let mut made = Names::new();
    for number in 0..scene.plan.entries {
        let name = name(number);
        let result = if number % DIRECTORY_EVERY == 0 {
            scene.client.mkdir(dir, name.as_bytes(), 0o755)
        } else {
            let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
            scene.client.create(dir, name.as_bytes(), CreateHow::Guarded(attributes))
        };
        let created = done(format_args!("making {name}"), result)?;
        let fileid = match created.attributes {
            Some(attributes) => attributes.fileid,
            None => {
                let found = scene.find(dir, &name)?;
                scene.attributes(&name, found)?.fileid
            }
        };
        made.insert(name.into_bytes(), fileid);
    }
    Ok(made)
}

/// Handles that a listing gives have to work; a sample is enough.
fn check_handles<P: Provider>(scene: &mut CheckScene<'_, P>, listed: &[DirEntry]) -> StepResult {
    for entry in listed.iter().step_by(97).filter(|entry| entry.name != b"." && entry.name != b"..")
    {
        let Some(handle) = entry.handle else { continue };
        let name = entry.name.escape_ascii().to_string();
        let attributes = scene.attributes(&name, handle)?;
        same(
            format_args!("the number of {name} by its handle"),
            &entry.fileid,
            &attributes.fileid,
        )?;
        let is_dir = made_as_directory(&entry.name);
        let kind = if is_dir { FileKind::Directory } else { FileKind::Regular };
        same(format_args!("the kind of {name}"), &kind, &attributes.kind)?;
    }
    Ok(())
}

/// Returns true if `fill` made a directory of this name.
fn made_as_directory(name: &[u8]) -> bool {
    let digits = name.get(6..11).and_then(|digits| std::str::from_utf8(digits).ok());
    digits
        .and_then(|digits| digits.parse::<u32>().ok())
        .is_some_and(|number| number % DIRECTORY_EVERY == 0)
}

/// The names of a listing without `.` and `..`, none of which may come twice.
fn named(what: &str, listed: Vec<DirEntry>) -> Result<Names, super::CheckFailure> {
    let mut names = Names::new();
    for entry in listed {
        if entry.name == b"." || entry.name == b".." {
            continue;
        }
        let twice = names.contains_key(&entry.name);
        holds(what, !twice, "each name once", entry.name.escape_ascii().to_string())?;
        names.insert(entry.name, entry.fileid);
    }
    Ok(names)
}

fn compare(what: &str, made: &Names, listed: Names) -> StepResult {
    let text = |name: &[u8]| name.escape_ascii().to_string();
    for (name, fileid) in made {
        let expected = format!("{} with number {fileid}", text(name));
        let found = listed.get(name);
        holds(what, found == Some(fileid), &expected, found)?;
    }
    let stranger = listed.keys().find(|name| !made.contains_key(*name));
    holds(what, stranger.is_none(), "no other name", stranger.map(|name| text(name)))
}
