//! Links between pages.

use crate::{Figure, FoundPlace, SourceTree};
use std::{fs, path::Path};
use walkdir::WalkDir;

/// Links of Markdown pages to files that do not exist, or to headings that those do not have.
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
    Figure::count("links", "links of pages to files or headings that are not there", 0.0, found)
}

fn broken(folder: &Path, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in prose(text) {
        for rest in line.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            let is_ours = !target.is_empty() && !target.contains("://") && !target.contains(' ');
            if is_ours && !leads_somewhere(folder, text, target) {
                found.push((at, target.to_owned()));
            }
        }
    }
    found
}

/// True when the file of `target` exists, and has the heading after `#` if it is a page.
fn leads_somewhere(folder: &Path, text: &str, target: &str) -> bool {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = folder.join(file);
    if heading.is_empty() || (!file.is_empty() && path.extension().is_none_or(|e| e != "md")) {
        return path.exists();
    }
    if file.is_empty() {
        return anchors(text).any(|anchor| anchor == heading);
    }
    fs::read_to_string(path).is_ok_and(|page| anchors(&page).any(|anchor| anchor == heading))
}

/// The anchors of a page's headings: letters and digits in lower case, and hyphens for blanks.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// The lines outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((at + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found_and_one_to_a_site_is_none() {
        let folder = crate::root();
        let text =
            "[a](README.md) [b](README.md#two-commands) [c](gone.md)\n[d](https://example.org/x)";
        assert_eq!(broken(&folder, text), [(1, "gone.md".to_owned())]);
    }

    #[test]
    fn a_link_to_a_heading_leads_to_the_page_that_has_it() {
        let folder = crate::root();
        let text = "# Here, and `now`\n[a](#here-and-now) [b](#there)\n[c](README.md#two-commands) \
                    [d](README.md#three)\n```\n# not-here\n[e](gone.md)\n```\n[f](#not-here)";
        let expected = [(2, "#there"), (3, "README.md#three"), (8, "#not-here")];
        assert_eq!(broken(&folder, text), expected.map(|(at, to)| (at, to.to_owned())));
    }
}
