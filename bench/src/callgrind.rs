//! Instruction counts under callgrind, which other load on the host does not change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

const NOTHING: &str = "nothing was counted";

/// Returns the command that is run, as one would type it.
pub fn shown(program: &str, subject: &str, times: u64) -> String {
    format!("valgrind --tool=callgrind --toggle-collect='*measured*' {program} {subject} {times}")
}

/// Instructions of `subject`, each of `times` times, by a counting program (`stag-counts` and
/// its like) at `program`.
///
/// # Errors
/// When valgrind or the program fails, with its words.
pub fn count(program: &Path, subject: &str, times: u64) -> Result<f64, String> {
    let all = total(program, &[subject, &times.to_string()], &[])?;
    if all > times as f64 { Ok(all / times as f64) } else { Err(format!("{subject}: {NOTHING}")) }
}

/// Instructions of the counted part of a program that is started with these arguments, and with
/// this environment in addition to its own.
///
/// # Errors
/// When valgrind or the program fails, with its words.
pub fn total(
    program: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<f64, String> {
    let profile = profile(program, arguments, environment, &[])?;
    let total =
        profile.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse::<f64>().ok());
    total.filter(|total| *total > 0.0).ok_or_else(|| format!("{arguments:?}: {NOTHING}"))
}

/// Returns the instructions that locked the bus while `subject` ran, each with its function: those
/// of `program` itself, not of the libraries that it calls.
///
/// # Errors
/// When valgrind, objdump or the program fails, with its words.
pub fn locked(program: &Path, subject: &str, times: u64) -> Result<Vec<String>, String> {
    let listing = Command::new("objdump")
        .args(["-d", "-C", "--no-show-raw-insn"])
        .arg(program)
        .output()
        .map_err(|error| format!("objdump: {error}"))?;
    let locked = locked_in(&String::from_utf8_lossy(&listing.stdout));
    let by_address = ["--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"];
    let arguments = [subject, &times.to_string()];
    let executed = executed_in(&profile(program, &arguments, &[], &by_address)?, program);
    if executed.is_empty() {
        return Err(format!("{subject}: no instruction of the program was counted"));
    }
    Ok(locked.into_iter().filter(|(at, _)| executed.contains(at)).map(|(_, of)| of).collect())
}

fn profile(
    program: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
    options: &[&str],
) -> Result<String, String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measured*"])
        .args(options)
        .arg(format!("--callgrind-out-file={}", file.path().display()))
        .arg(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    if !run.status.success() {
        let said = [run.stdout, run.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        return Err(format!("{arguments:?}: {}", said.concat()));
    }
    fs::read_to_string(file.path()).map_err(|error| error.to_string())
}

/// Addresses of the locked instructions in a listing of objdump, with their functions.
fn locked_in(listing: &str) -> BTreeMap<u64, String> {
    let (mut function, mut locked) = ("", BTreeMap::new());
    for line in listing.lines() {
        if let Some(name) = line.split_once(" <").and_then(|(_, rest)| rest.strip_suffix(">:")) {
            function = name;
            continue;
        }
        // An exchange with memory locks without saying so.
        let is_locked =
            line.contains("\tlock ") || (line.contains("\txchg ") && line.contains('('));
        let Some((at, instruction)) = line.split_once(':').filter(|_| is_locked) else { continue };
        if let Ok(at) = u64::from_str_radix(at.trim(), 16) {
            locked.insert(at, format!("{function}: {}", instruction.trim()));
        }
    }
    locked
}

/// Addresses of the program's instructions that a profile by addresses has counted.
fn executed_in(profile: &str, program: &Path) -> BTreeSet<u64> {
    let (mut is_ours, mut executed) = (false, BTreeSet::new());
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_ours = Path::new(object.trim()) == program;
        } else if let Some((at, _)) = line.strip_prefix("0x").and_then(|at| at.split_once(' '))
            && is_ours
        {
            executed.extend(u64::from_str_radix(at, 16));
        }
    }
    executed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_instruction_counts_if_it_was_executed_in_the_program_itself() {
        let listing = "\n\
            0000000000001000 <ours::count>:\n\
            \x20   1000:\tlock incq (%rax)\n\
            \x20   1004:\txchg   %al,0x190(%rbx)\n\
            \x20   1008:\txchg   %ax,%ax\n\
            \x20   100a:\tret\n";
        let locked = locked_in(listing);
        assert_eq!(locked.keys().copied().collect::<Vec<_>>(), [0x1000, 0x1004]);
        assert_eq!(locked[&0x1000], "ours::count: lock incq (%rax)");
        let profile = "positions: instr line\n\
            ob=/lib/libc.so\nfn=other\n0x1004 7 1\n\
            ob=/bin/counts\nfn=ours::count\n0x1000 5 2\ncalls=1 0x2000 3\n0x100a 9 1\n";
        let executed = executed_in(profile, Path::new("/bin/counts"));
        assert_eq!(executed.into_iter().collect::<Vec<_>>(), [0x1000, 0x100a]);
    }
}
