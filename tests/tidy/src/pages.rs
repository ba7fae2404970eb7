//! Links between pages.

use crate::{Figure, FoundPlace, SourceTree};
use std::{fs, path::Path};
use walkdir::WalkDir;

/// Links of Markdown pages to files that do not exist.
#[must_use]
pub fn broken_links(tree: &SourceTree) -> Figure {
    let mut found = Vec::new();
    let walk = WalkDir::new(&tree.root).sort_by_file_name();
    let wanted = walk.into_iter().filter_entry(crate::tree::is_wanted).filter_map(Result::ok);
    for entry in
        wanted.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "md"))
    {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let folder = entry.path().parent().unwrap_or(&tree.root);
        let below = entry.path().strip_prefix(&tree.root).unwrap_or(entry.path());
        for (line, target) in broken(folder, &text) {
            found.push(FoundPlace { file: below.display().to_string(), line, text: target });
        }
    }
    Figure::count("links", "links of pages to files that are not there", 0.0, found)
}

fn broken(folder: &Path, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            let is_ours = !target.is_empty() && !target.contains("://") && !target.contains(' ');
            if is_ours && !folder.join(target).exists() {
                found.push((at + 1, target.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found_and_one_to_a_site_is_none() {
        let folder = crate::root();
        let text = "[a](README.md) [b](README.md#two) [c](gone.md)\n[d](https://example.org/x)";
        assert_eq!(broken(&folder, text), [(1, "gone.md".to_owned())]);
    }
}
