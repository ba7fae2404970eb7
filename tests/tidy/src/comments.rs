//! Openings of comments, and requirement marks without words.

use crate::{Figure, FoundPlace, SourceFile, SourceTree};

const RIDDLES: [&str; 7] = ["What", "Whether", "Who", "Whose", "Whom", "How", "Where"];

/// Doc comments that begin with a question instead of a noun or a verb (STYLE 13).
#[must_use]
pub fn riddles(tree: &SourceTree) -> Figure {
    let (mut found, mut all) = (Vec::new(), 0);
    for source in &tree.sources {
        for (line, text) in openings(source) {
            all += 1;
            let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if RIDDLES.contains(&first) {
                found.push(FoundPlace { file: source.path.clone(), line, text: text.to_owned() });
            }
        }
    }
    let about = "doc comments that begin with What, Whether, Who, How or Where";
    Figure::share("riddles", about, 0.0, found, all)
}

/// First lines of doc comments, with their numbers.
fn openings(source: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let mut is_inside = false;
    source.text.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let is_first = text.is_some() && !is_inside;
        is_inside = text.is_some();
        let text = text.map(str::trim).filter(|text| is_first && !text.is_empty())?;
        Some((at + 1, text))
    })
}

/// Marks of requirements that stand alone: `// [rfc-5]` instead of
/// `// [rfc-5]: receives for replies are reserved`.
#[must_use]
pub fn bare_marks(tree: &SourceTree) -> Figure {
    let mut found = Vec::new();
    // The checker of requirements speaks about marks.
    let is_about = |source: &&SourceFile| !source.path.starts_with("tests/requirements/");
    for source in tree.sources.iter().filter(is_about) {
        for (at, line) in source.text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            if is_bare(comment) {
                let text = comment.trim().to_owned();
                found.push(FoundPlace { file: source.path.clone(), line: at + 1, text });
            }
        }
    }
    Figure::count("bare-marks", "requirement marks without words", 0.0, found)
}

/// True for a comment that ends with a mark's bracket and has nothing but sources before it.
fn is_bare(comment: &str) -> bool {
    let Some((before, mark)) = comment.trim_end().rsplit_once('[') else { return false };
    let Some((prefix, number)) = mark.strip_suffix(']').and_then(|id| id.rsplit_once('-')) else {
        return false;
    };
    let is_id = prefix.chars().all(char::is_alphanumeric)
        && !number.is_empty()
        && number.chars().all(|digit| digit.is_ascii_digit());
    let is_source = |word: &str| {
        ["RFC", "draft", "and", "§"].contains(&word)
            || word.starts_with('§')
            || word.starts_with('[')
            || word.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    };
    is_id && before.trim_start_matches(['/', '!']).split_whitespace().all(is_source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_each_comment_is_judged() {
        let text = "/// Whether it is.\n/// What more.\nstruct A;\n/// Doubles a grant.\n/// \
            How.\nstruct B;\n";
        let source = SourceFile::parse("a.rs".to_owned(), text.to_owned()).unwrap();
        let figure = riddles(&SourceTree { root: "/".into(), sources: vec![source] });
        assert_eq!((figure.value, figure.found.len()), (50.0, 1));
    }

    #[test]
    fn a_mark_needs_words() {
        for bare in [" [8166-5]", " RFC 8166 §4.5.2 [8166-53], draft 004 §6.4.1 [exp-38]"] {
            assert!(is_bare(bare), "{bare}");
        }
        for worded in
            [" RFC 8166 §3 [8166-5]: receives are reserved", " see [Foo]", " a list [1-2] x"]
        {
            assert!(!is_bare(worded), "{worded}");
        }
    }
}
