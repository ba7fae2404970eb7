//! Contents of files: every size, every alignment, holes, ends.

use super::{
    SIZES,
    scene::{CheckScene, StepResult, done, holds, same},
};
use stag_echo::pattern::Pattern;
use stag_protocol::nfs::v3::{FileHandle, SetAttributes, StableHow};
use stag_verbs::Provider;

/// Octets of the file that is written at odd places, and how often.
const SCATTERED_LEN: u64 = 300_000;
const SCATTERED_WRITES: u64 = 60;
const SCATTERED_LEN_MAX: u64 = 70_000;

pub(crate) fn files<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    for stable in [StableHow::Unstable, StableHow::FileSync] {
        for len in SIZES {
            let name = format!("file-{len}-{stable:?}");
            let pattern = scene.pattern();
            let mut content = vec![0; len];
            pattern.fill(0, &mut content);
            let file = scene.make(scene.work, &name)?;
            scene.write(file, 0, &content, stable)?;
            compare_with(scene, &name, file, pattern, len)?;
            scene.remove(scene.work, &name)?;
        }
    }
    Ok(())
}

/// Reads a file and compares it with its pattern, not with the memory it was written from.
fn compare_with<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    name: &str,
    file: FileHandle,
    pattern: Pattern,
    len: usize,
) -> StepResult {
    same(format_args!("the size of {name}"), &(len as u64), &scene.attributes(name, file)?.size)?;
    let mut room = vec![0xa5; len + 1];
    let (count, eof) = scene.read(file, 0, &mut room)?;
    same(format_args!("octets of {name}"), &len, &count)?;
    holds(format_args!("the end of {name}"), eof, "eof", eof)?;
    let read = room.get(..len).unwrap_or_default();
    same(format_args!("the content of {name}"), &None, &pattern.differs(0, read))
}

/// Writes overlapping ranges of no alignment, also past the end, and compares with a copy in
/// memory.
pub(crate) fn odd_offsets<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let (dice, pattern) = (scene.pattern(), scene.pattern());
    let file = scene.make(scene.work, "scattered")?;
    let mut model = Vec::new();
    for turn in 0..SCATTERED_WRITES {
        let offset = number(dice, turn * 2) % SCATTERED_LEN;
        // A third are short: within a page, or across the border of two.
        let len_max = if turn % 3 == 0 { 40 } else { SCATTERED_LEN_MAX };
        let len = usize::try_from(number(dice, turn * 2 + 1) % len_max + 1).unwrap_or(1);
        let mut data = vec![0; len];
        pattern.fill(offset ^ (turn << 32), &mut data);
        let stable = if turn % 2 == 0 { StableHow::Unstable } else { StableHow::DataSync };
        scene.write(file, offset, &data, stable)?;
        let (start, end) =
            (usize::try_from(offset).unwrap_or(0), usize::try_from(offset).unwrap_or(0) + len);
        model.resize(model.len().max(end), 0);
        model.get_mut(start..end).expect("the model was made long enough").copy_from_slice(&data);
    }
    scene.compare("the scattered file", file, &model)?;
    for turn in 0..SCATTERED_WRITES {
        let start = usize::try_from(number(dice, 1_000 + turn * 2)).unwrap_or(0) % model.len();
        let len =
            usize::try_from(number(dice, 1_001 + turn * 2) % SCATTERED_LEN_MAX + 1).unwrap_or(1);
        let expected = model.get(start..model.len().min(start + len)).unwrap_or_default();
        let mut room = vec![0xa5; len];
        let (count, eof) = scene.read(file, start as u64, &mut room)?;
        let what = format!("{len} octets at {start} of {}", model.len());
        same(&what, &expected.len(), &count)?;
        same(format_args!("eof of {what}"), &(start + len >= model.len()), &eof)?;
        holds(
            &what,
            room.get(..count) == Some(expected),
            "what was written there",
            "something else",
        )?;
    }
    scene.remove(scene.work, "scattered")
}

fn number(dice: Pattern, turn: u64) -> u64 {
    let mut octets = [0; 8];
    dice.fill(turn * 8, &mut octets);
    u64::from_le_bytes(octets)
}

/// READs that begin before, at and past the end, and a WRITE that leaves a hole.
pub(crate) fn end_of_file<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let file = scene.make(scene.work, "end")?;
    scene.write(file, 0, b"0123456789", StableHow::FileSync)?;
    for (offset, len, count, eof) in [
        (0, 9, 9, false),
        (0, 10, 10, true),
        (9, 1, 1, true),
        (9, 5, 1, true),
        (10, 1, 0, true),
        (99, 7, 0, true),
    ] {
        let what = format!("READ of {len} octets at {offset} of a file of 10");
        let came = done(&what, scene.client.read(file, offset, &mut vec![0; len]))?;
        same(what, &(count, eof), &(came.count, came.eof))?;
    }
    let nothing = done("READ of no octet", scene.client.read(file, 3, &mut []))?;
    same("READ of no octet", &0, &nothing.count)?;
    scene.write(file, 70_001, b"far", StableHow::Unstable)?;
    let mut expected = vec![0; 70_004];
    expected.get_mut(..10).expect("it is longer").copy_from_slice(b"0123456789");
    expected.get_mut(70_001..).expect("it is longer").copy_from_slice(b"far");
    scene.compare("the file with a hole", file, &expected)?;
    scene.remove(scene.work, "end")
}

/// Shorter and longer: what was cut off never comes back.
pub(crate) fn truncate<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let file = scene.make(scene.work, "truncated")?;
    let pattern = scene.pattern();
    let mut model = vec![0; 100_000];
    pattern.fill(0, &mut model);
    scene.write(file, 0, &model, StableHow::Unstable)?;
    for size in [99_999, 65_537, 4_097, 4_096, 4_095, 70_000, 1, 5, 0, 3, 65_536, 0] {
        let attributes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        done(format_args!("SETATTR size {size}"), scene.client.setattr(file, attributes, None))?;
        model.resize(usize::try_from(size).unwrap_or(0), 0);
        scene.compare(&format!("the file cut or grown to {size}"), file, &model)?;
    }
    scene.remove(scene.work, "truncated")
}
