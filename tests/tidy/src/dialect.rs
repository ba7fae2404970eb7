//! Words of a house dialect in comments and pages (STYLE 15). Engineers of the field hardly use
//! them in these senses: in comments of quinn, smoltcp and s2n-quic each occurs less than once in
//! 1,000 lines. The limits only fall.

use crate::{Figure, FoundPlace, SourceTree, figure::count};
use std::fs;
use walkdir::WalkDir;

/// A word, or several of one sense, with the limit of each 1,000 lines.
struct DialectWord {
    name: &'static str,
    about: &'static str,
    /// In lower case, as words of a line.
    words: &'static [&'static str],
    limit: f64,
}

const WORDS: &[DialectWord] = &[
    DialectWord {
        name: "behind",
        about: "\"behind\" for after, past, beyond or below",
        words: &["behind"],
        limit: 0.5,
    },
    DialectWord {
        name: "nobody",
        about: "\"nobody\", \"somebody\", \"whoever\" in place of the noun",
        words: &["nobody", "somebody", "whoever"],
        limit: 0.3,
    },
    DialectWord {
        name: "told",
        about: "\"tell\" and \"told\" for report, notify or log",
        words: &["tell", "tells", "told"],
        limit: 0.6,
    },
    DialectWord {
        name: "those-that",
        about: "\"those that\" in place of the plain noun",
        words: &["those that"],
        limit: 0.2,
    },
    DialectWord {
        name: "under-way",
        about: "\"under way\", \"on its way\" for in flight or pending",
        words: &["under way", "on its way", "on their way"],
        limit: 0.4,
    },
    DialectWord {
        name: "lies",
        about: "\"lie\" and \"lies\" for is at or is stored in",
        words: &["lie", "lies"],
        limit: 0.2,
    },
    DialectWord {
        name: "so-many",
        about: "\"so many\" for the number or N",
        words: &["so many"],
        limit: 0.1,
    },
];

/// One figure for each word: occurrences in 1,000 lines of comments and of pages.
#[must_use]
pub fn all(tree: &SourceTree) -> Vec<Figure> {
    let lines = lines(tree);
    let all = count(lines.len()) / 1_000.0;
    let figure = |word: &DialectWord| {
        let found: Vec<FoundPlace> =
            lines.iter().filter(|place| occurs(word, &place.text)).cloned().collect();
        let value = if all == 0.0 { 0.0 } else { count(found.len()) / all };
        Figure { name: word.name, about: word.about, value, unit: "‰", limit: word.limit, found }
    };
    WORDS.iter().map(figure).collect()
}

/// Returns true if one of the words occurs in a line, as a word and not as a part of one.
fn occurs(word: &DialectWord, line: &str) -> bool {
    let plain: String = line
        .chars()
        .map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' })
        .collect();
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    word.words.iter().any(|word| plain.contains(&format!(" {word} ")))
}

/// Lines of comments in sources, and of pages and texts of help. The tables of requirements quote
/// their specifications.
fn lines(tree: &SourceTree) -> Vec<FoundPlace> {
    let mut found = Vec::new();
    // This file is about the words.
    for source in tree.sources.iter().filter(|source| !source.path.ends_with("dialect.rs")) {
        let comments = source.text.lines().enumerate();
        let comments = comments.filter(|(_, line)| line.trim_start().starts_with("//"));
        found.extend(comments.map(|(at, line)| place(&source.path, at, line)));
    }
    let walk = WalkDir::new(&tree.root).sort_by_file_name();
    for entry in walk.into_iter().filter_entry(crate::tree::is_wanted).filter_map(Result::ok) {
        let below = entry.path().strip_prefix(&tree.root).unwrap_or(entry.path());
        let is_page = below.extension().is_some_and(|ending| ending == "md" || ending == "txt");
        if !is_page || below.starts_with("docs/requirements") {
            continue;
        }
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let below = below.display().to_string();
        let worded = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        found.extend(worded.map(|(at, line)| place(&below, at, line)));
    }
    found
}

fn place(file: &str, at: usize, line: &str) -> FoundPlace {
    FoundPlace { file: file.to_owned(), line: at + 1, text: line.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceFile;

    #[test]
    fn a_word_is_found_as_a_word_whatever_stands_around_it() {
        let word = &DialectWord { name: "", about: "", words: &["lie", "so many"], limit: 0.0 };
        for line in ["/// Octets lie there.", "(lie)", "// So  many of them", "lie"] {
            assert!(occurs(word, line), "{line}");
        }
        for line in ["// believe", "client", "so manyfold", "many so"] {
            assert!(!occurs(word, line), "{line}");
        }
    }

    #[test]
    fn comments_are_counted_and_code_is_not() {
        let text = "// Behind it.\nfn a() { let behind = 1; } // behind\n/// Before.\nfn b() {}\n";
        let source = SourceFile::parse("a.rs".to_owned(), text.to_owned()).unwrap();
        let root = std::env::temp_dir().join("no such folder");
        let figures = all(&SourceTree { root, sources: vec![source] });
        let behind = figures.iter().find(|figure| figure.name == "behind").unwrap();
        assert_eq!((behind.value, behind.found.len(), behind.found[0].line), (500.0, 1, 1));
    }
}
