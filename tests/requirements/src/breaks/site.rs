//! The lines that rules cite: an id in a comment, and the line of code that it belongs to.

use crate::sources::bracketed;
use std::collections::{BTreeMap, BTreeSet};

/// A line of code that a comment gives to one or more rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkSite {
    /// The file, by its path in the workspace.
    pub file: String,
    /// The line of code, counted from 1.
    pub line: usize,
    /// Text of that line without its indentation.
    pub text: String,
    /// Number of cited lines before it in the file that read the same; [`number`] counts it.
    pub nth: usize,
    /// The ids of the rules.
    pub rules: Vec<String>,
}

/// All lines of a file that carry one of `ids`, in order.
///
/// A comment after code speaks of its own line. A comment on its own speaks of the next line that
/// is neither comment nor empty. Several comments may speak of one line.
#[must_use]
pub fn sites(file: &str, text: &str, ids: &BTreeSet<&str>) -> Vec<MarkSite> {
    let mut found: Vec<MarkSite> = Vec::new();
    let mut waiting: Vec<String> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let (code, comment) = line.split_once("//").unwrap_or((line, ""));
        let cited = bracketed(comment).filter(|id| ids.contains(id)).map(str::to_owned);
        waiting.extend(cited);
        if code.trim().is_empty() || waiting.is_empty() {
            continue;
        }
        let mut rules = std::mem::take(&mut waiting);
        rules.sort();
        rules.dedup();
        found.push(MarkSite {
            file: file.to_owned(),
            line: number,
            text: line.trim().to_owned(),
            nth: 0,
            rules,
        });
    }
    found
}

/// Counts the lines of each file that read the same, in their order.
pub fn number<'a>(sites: impl Iterator<Item = &'a mut MarkSite>) {
    let mut alike: BTreeMap<(String, String), BTreeSet<usize>> = BTreeMap::new();
    let sites: Vec<&mut MarkSite> = sites.collect();
    let key = |site: &MarkSite| (site.file.clone(), site.text.clone());
    for site in &sites {
        alike.entry(key(site)).or_default().insert(site.line);
    }
    for site in sites {
        let lines = alike.get(&key(site));
        site.nth = lines.map_or(0, |lines| lines.range(..site.line).count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_speaks_of_its_own_line_or_of_the_next_one_with_code() {
        let text = "//! About [1-1].\nfn a() {\n    // why [1-1] and [1-2]\n    // and [1-3], \
            [9-9]\n\n    b();\n    c(); // [1-2]\n    d();\n}\n";
        let ids = BTreeSet::from(["1-1", "1-2", "1-3"]);
        let found = sites("x.rs", text, &ids);
        let short: Vec<_> = found.iter().map(|site| (site.line, site.rules.join(" "))).collect();
        assert_eq!(
            short,
            [(2, "1-1".to_owned()), (6, "1-1 1-2 1-3".to_owned()), (7, "1-2".to_owned())]
        );
        assert_eq!(found[1].text, "b();");
    }

    #[test]
    fn lines_that_read_the_same_are_counted_in_each_file() {
        let ids = BTreeSet::from(["1-1"]);
        let text = "a(); // [1-1]\nb(); // [1-1]\na(); // [1-1]\n";
        let mut found = [sites("x.rs", text, &ids), sites("y.rs", text, &ids)].concat();
        // A rule's own change begins at a line that another rule cites, too.
        found.push(found[2].clone());
        number(found.iter_mut());
        let counted: Vec<usize> = found.iter().map(|site| site.nth).collect();
        assert_eq!(counted, [0, 0, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn a_file_without_ids_has_no_line() {
        assert_eq!(sites("x.rs", "// [1-1]\nfn a() {}\n", &BTreeSet::from(["1-2"])), []);
    }
}
