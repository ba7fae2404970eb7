//! Widths of lines and lengths of files.

use crate::{Figure, FoundPlace, SourceFile, SourceTree};

const WIDTH: usize = 100;
const LENGTH: usize = 500;

/// Lines wider than 100 characters, in every file.
#[must_use]
pub fn wide(tree: &SourceTree) -> Figure {
    let mut found = Vec::new();
    for source in &tree.sources {
        for (at, line) in source.text.lines().enumerate() {
            if line.chars().count() > WIDTH {
                let text = line.trim().chars().take(60).collect();
                found.push(FoundPlace { file: source.path.clone(), line: at + 1, text });
            }
        }
    }
    Figure::count("width", "lines of more than 100 columns", 0.0, found)
}

/// Files of code with more than 500 lines, their tests not counted.
#[must_use]
pub fn long_files(tree: &SourceTree) -> Figure {
    let code = tree.code().filter(|source| !crate::functions::is_table(&source.path));
    let long = code.map(|source| (source, length(source)));
    let found = long.filter(|(_, lines)| *lines > LENGTH).map(|(source, lines)| FoundPlace {
        file: source.path.clone(),
        line: 0,
        text: format!("{lines} lines"),
    });
    Figure::count(
        "long-files",
        "files of code of more than 500 lines, tables of cases left out",
        0.0,
        found.collect(),
    )
}

/// Lines before the module of tests, which STYLE puts last.
fn length(source: &SourceFile) -> usize {
    let before = source.text.split_once("\n#[cfg(test)]\nmod tests {");
    before.map_or(source.text.as_str(), |(code, _)| code).lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_behind_the_code_are_not_counted() {
        let with = |tests: &str| {
            let text = format!("struct A;\n{tests}");
            length(&SourceFile::parse("a.rs".to_owned(), text).unwrap())
        };
        assert_eq!(with("\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n"), 1);
        assert_eq!(with("#[cfg(test)]\nmod tests;\nstruct B;\n"), 4);
    }
}
