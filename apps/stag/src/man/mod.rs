//! `stag man`: manual pages from the texts of `--help`, for packages.

pub mod options;

use crate::{Error, replace};
use clap::Command;
use options::ManOptions;
use std::{fs, io, path::Path};

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Writes all pages of `command`.
///
/// # Errors
/// A sentence when the directory takes no page.
pub fn run(options: &ManOptions, command: Command) -> Result<(), Error> {
    write(&options.directory, command).map_err(|error| {
        Error::failure(format!(
            "cannot write pages to {}: {}; make the directory",
            options.directory.display(),
            crate::plain(&error)
        ))
    })
}

fn write(directory: &Path, command: Command) -> io::Result<()> {
    let version = command.get_version().unwrap_or_default().to_owned();
    // Pages are made where no other user has planted a link, and replaced as whole files.
    let private = tempfile::tempdir()?;
    clap_mangen::generate_to(command, private.path())?;
    for entry in fs::read_dir(private.path())? {
        let entry = entry?;
        let page = laid_out(&fs::read_to_string(entry.path())?, &version);
        let write = |out: &mut dyn io::Write| out.write_all(page.as_bytes());
        replace::write_unsynced(&directory.join(entry.file_name()), write)?;
    }
    Ok(())
}

/// A page whose text after the options keeps its lines, as in `--help`, and whose footer has the
/// version alone: that of `--version` fills the line.
fn laid_out(page: &str, version: &str) -> String {
    let (mut out, mut is_kept) = (String::with_capacity(page.len() + 16), false);
    for line in page.lines() {
        if line.starts_with(".SH ") && std::mem::take(&mut is_kept) {
            out.push_str(".fi\n");
        }
        if line == ".SH EXTRA" {
            is_kept = true;
            out.push_str(".SH DETAILS\n.nf\n");
        } else if let Some((head, _)) = line.split_once("  \"").filter(|_| line.starts_with(".TH "))
        {
            out.push_str(&format!("{head}  \"stag {version}\"\n"));
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    if is_kept {
        out.push_str(".fi\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_keep_their_lines_and_the_foot_is_short() {
        let page = ".TH stag 1  \"stag 0.1.0 (commit 1; target: x)\" \n.SH NAME\nstag\n.SH EXTRA\n\
                    FILES\n  one\n\n  two\n.SH VERSION\nv\n";
        let shown = ".TH stag 1  \"stag 0.1.0\"\n.SH NAME\nstag\n.SH DETAILS\n.nf\nFILES\n  one\n\n\
                     \x20 two\n.fi\n.SH VERSION\nv\n";
        assert_eq!(laid_out(page, "0.1.0"), shown);
        let home = tempfile::tempdir().unwrap();
        write(home.path(), <crate::cli::Cli as clap::CommandFactory>::command()).unwrap();
        let page = fs::read_to_string(home.path().join("stag-serve.1")).unwrap();
        let count = |mark: &str| page.lines().filter(|line| *line == mark).count();
        assert_eq!((count(".nf"), count(".fi"), count(".SH EXTRA")), (1, 1, 0));
    }
}
