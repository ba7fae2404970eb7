//! Renders our own Markdown pages as text of 80 columns: headings, paragraphs, lists, fenced blocks
//! and tables, of which a row becomes its first cell and the others below it.

use super::topics;
use std::mem;

const COLUMNS: usize = 80;
const BOLD: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";

/// A page, in parts that begin with a heading each.
#[derive(Debug)]
pub struct Page<'p> {
    sections: Vec<Vec<&'p str>>,
}

impl<'p> Page<'p> {
    /// Divides a page into its sections.
    pub fn of(text: &'p str) -> Self {
        let (mut sections, mut is_fenced) = (vec![Vec::new()], false);
        for line in text.lines() {
            is_fenced ^= line.trim_start().starts_with("```");
            if !is_fenced && line.starts_with('#') {
                sections.push(Vec::new());
            }
            if let Some(section) = sections.last_mut() {
                section.push(line);
            }
        }
        Self { sections }
    }

    /// The whole page as text, headings in bold.
    pub fn rendered(&self) -> String {
        self.sections.iter().map(|section| rendered(section)).collect()
    }

    /// The sections with all of `words`, in any case. None when there is none.
    pub fn sections_with(&self, words: &[String]) -> Option<String> {
        let words: Vec<_> = words.iter().map(|word| word.to_lowercase()).collect();
        let has_all = |section: &&Vec<&str>| {
            let text = section.join(" ").to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        };
        let found = self.sections.iter().filter(has_all);
        let found: String = found.map(|section| rendered(&rows_with(section, &words))).collect();
        (!found.is_empty()).then_some(found)
    }
}

/// A section without the rows of its tables that lack one of the words, if there is a row with all.
fn rows_with<'p>(section: &[&'p str], words: &[String]) -> Vec<&'p str> {
    let mut is_fenced = false;
    let lines: Vec<_> = section
        .iter()
        .map(|line| {
            is_fenced ^= line.trim_start().starts_with("```");
            (*line, !is_fenced && line.starts_with('|'))
        })
        .collect();
    let has_all = |line: &str| {
        let line = line.to_lowercase();
        words.iter().all(|word| line.contains(word.as_str()))
    };
    let found = lines.iter().any(|(line, is_row)| *is_row && has_all(line));
    let lines = lines.into_iter();
    lines
        .filter(|(line, is_row)| !found || !is_row || has_all(line))
        .map(|(line, _)| line)
        .collect()
}

/// The same text without what a terminal shows as bold.
pub fn plain(text: &str) -> String {
    text.replace(BOLD, "").replace(PLAIN, "")
}

/// Lines that wait for more of their paragraph.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// Columns in front of the first line, and of the lines after it.
    mark: String,
    indent: usize,
}

impl Paragraph {
    fn flush(&mut self, out: &mut String) {
        let Self { text, mark, indent } = mem::take(self);
        wrap(&inline(&text), &mark, indent, out);
    }
}

fn rendered(section: &[&str]) -> String {
    let (mut out, mut paragraph, mut is_fenced) = (String::new(), Paragraph::default(), false);
    for line in section {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            paragraph.flush(&mut out);
            is_fenced = !is_fenced;
        } else if is_fenced {
            out.push_str(&format!("    {line}\n").replace("    \n", "\n"));
        } else if trimmed.is_empty() {
            paragraph.flush(&mut out);
            out.push('\n');
        } else if let Some(title) = line.trim_start_matches('#').strip_prefix(' ')
            && line.starts_with('#')
        {
            out.push_str(&format!("{BOLD}{}{PLAIN}\n", inline(title)));
        } else if trimmed.starts_with('|') {
            paragraph.flush(&mut out);
            row(trimmed, &mut out);
        } else if let Some((mark, text)) = item(trimmed) {
            paragraph.flush(&mut out);
            let before = line.len() - trimmed.len();
            let mark = format!("{:before$}{mark} ", "");
            paragraph = Paragraph { text: text.to_owned(), indent: mark.chars().count(), mark };
        } else {
            paragraph.text.push(' ');
            paragraph.text.push_str(trimmed);
        }
    }
    paragraph.flush(&mut out);
    out
}

/// The mark and the text of an item of a list.
fn item(line: &str) -> Option<(&str, &str)> {
    let (mark, text) = line.split_once(' ')?;
    let number = mark.strip_suffix('.');
    let is_number = number.is_some_and(|number| number.parse::<u8>().is_ok());
    (mark == "-" || is_number).then_some((mark, text))
}

/// A row of a table: its first cell, and the others below it. The line below the head is left out.
fn row(line: &str, out: &mut String) {
    if line.chars().all(|c| "|-: ".contains(c)) {
        return;
    }
    let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
    wrap(&inline(cells.next().unwrap_or_default()), "  ", 2, out);
    for cell in cells.filter(|cell| !cell.is_empty()) {
        wrap(&inline(cell), "      ", 6, out);
    }
}

/// Text without the marks of code and emphasis, and with links replaced by their targets.
fn inline(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text.trim());
    while let Some((before, link)) = rest.split_once('[') {
        out.push_str(before);
        let parts = link.split_once("](").and_then(|(name, behind)| {
            let (target, behind) = behind.split_once(')')?;
            (!name.contains('[')).then_some((name, target, behind))
        });
        let Some((name, target, behind)) = parts else {
            out.push('[');
            rest = link;
            continue;
        };
        out.push_str(name);
        let (page, heading) = target.split_once('#').unwrap_or((target, ""));
        let file = page.trim_start_matches("../");
        match topics::by_file(page) {
            _ if page.is_empty() => out.push_str(&format!(" (\"{}\")", heading.replace('-', " "))),
            Some(topic) => out.push_str(&format!(" ('stag help {}')", topic.name)),
            // A file of the repository.
            None if file.len() < page.len() => out.push_str(&format!(" ({file})")),
            None => out.push_str(&format!(" ({target})")),
        }
        rest = behind;
    }
    out.push_str(rest);
    out.replace("**", "").replace('`', "")
}

/// Appends `text` in lines of at most 80 columns, the first after `mark`, the others indented.
fn wrap(text: &str, mark: &str, indent: usize, out: &mut String) {
    let (mut line, mut is_empty) = (mark.to_owned(), true);
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out.push_str(&line);
            out.push('\n');
            (line, is_empty) = (" ".repeat(indent), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    if !is_empty {
        out.push_str(&line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\nSome `code` and a [link](errors.md#x), which goes on for so \
        long that\nits line has to be broken.\n\n## Two\n\n- an item\n  of two lines\n\n| a | b |\n\
        |---|---|\n| `x` | [y](gone.md) |\n\n```sh\n# no heading\nstag\n```\n";

    #[test]
    fn headings_paragraphs_lists_tables_and_blocks_become_text() {
        assert_eq!(
            plain(&Page::of(PAGE).rendered()),
            "A page\n\nSome code and a link ('stag help errors'), which goes on for so long that \
             its\nline has to be broken.\n\nTwo\n\n- an item of two lines\n\n  a\n      b\n  x\n\
             \x20     y (gone.md)\n\n    # no heading\n    stag\n"
        );
    }

    #[test]
    fn of_a_table_the_rows_with_all_words_are_shown_and_links_say_where_they_lead() {
        let page = "# A\n\nSome [there](#one-more) and [kits](../../tuning/kits/README.md).\n\n\
                    | one | x |\n| two | x |\n\n## B\n\ntwo x\n";
        let found = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(ToString::to_string).collect();
            plain(&Page::of(page).sections_with(&words).unwrap())
        };
        let links = "A\n\nSome there (\"one more\") and kits (tuning/kits/README.md).\n\n";
        assert_eq!(found(&["two", "x"]), format!("{links}  two\n      x\n\nB\n\ntwo x\n"));
        assert_eq!(found(&["one", "two"]), format!("{links}  one\n      x\n  two\n      x\n\n"));
    }

    #[test]
    fn sections_are_found_by_all_of_their_words() {
        let page = Page::of(PAGE);
        let found = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(ToString::to_string).collect();
            page.sections_with(&words).map(|text| plain(&text).lines().next().unwrap().to_owned())
        };
        assert_eq!(found(&["ITEM", "stag"]).as_deref(), Some("Two"));
        assert_eq!(found(&["broken"]).as_deref(), Some("A page"));
        assert_eq!(found(&["broken", "item"]), None);
    }
}
