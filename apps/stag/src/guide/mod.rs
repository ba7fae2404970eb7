//! `stag help`: the pages of the operator's guide in the terminal.

pub mod options;
mod render;
mod topics;

use crate::{Error, caller::say};
use clap::Command;
use options::HelpOptions;
use render::Page;
use std::{fmt::Write, io::IsTerminal};
use topics::{TOPICS, Topic};

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// The page of symptoms, searched for words that name no topic.
const SYMPTOMS: &str = "troubleshooting";

/// Shows the list, a page, sections of one, or the help of a part of `command`.
///
/// # Errors
/// A sentence when there is no such page or section.
pub fn run(options: &HelpOptions, mut command: Command) -> Result<(), Error> {
    if matches!(&options.words[..], [word] if word == "--help" || word == "-h") {
        let help = command.find_subcommand("help").cloned().unwrap_or(command);
        say(help.bin_name("stag help").render_long_help().to_string());
        return Ok(());
    }
    let Some(asked) = &options.topic else {
        say(list());
        return Ok(());
    };
    if let Some(topic) = TOPICS.iter().find(|topic| topic.name == asked) {
        return show(topic, &options.words);
    }
    if let Some(found) = command.find_subcommand_mut(asked) {
        let name = format!("stag {}", found.get_name());
        say(found.clone().bin_name(name).render_long_help().to_string());
        return Ok(());
    }
    // The words of a message, as it was seen.
    let seen: Vec<_> = std::iter::once(asked).chain(&options.words).cloned().collect();
    let symptoms = TOPICS.iter().find(|topic| topic.name == SYMPTOMS);
    if let Some(text) = symptoms.and_then(|topic| Page::of(topic.text).sections_with(&seen)) {
        print(text);
        return Ok(());
    }
    let names: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
    Err(Error::usage(format!(
        "there is no topic and no command {asked:?}; the topics are {}",
        names.join(", ")
    )))
}

fn show(topic: &Topic, words: &[String]) -> Result<(), Error> {
    let page = Page::of(topic.text);
    let text = match words {
        [] => page.rendered(),
        words => page.sections_with(words).ok_or_else(|| {
            Error::usage(format!(
                "no section of {:?} has all of the words {:?}; 'stag help {0}' shows the page",
                topic.name,
                words.join(" ")
            ))
        })?,
    };
    print(text);
    Ok(())
}

fn print(text: String) {
    say(if std::io::stdout().is_terminal() { text } else { render::plain(&text) });
}

fn list() -> String {
    let mut text =
        "Topics of the operator's guide ('stag help TOPIC', 'stag help TOPIC WORD…'):\n".to_owned();
    for topic in TOPICS {
        let _ = writeln!(text, "  {:<16} {}", topic.name, topic.title());
    }
    text.push_str("\nOptions of a command: 'stag COMMAND --help'; 'stag --help' lists them.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_a_terminal_of_80_columns() {
        let list = list();
        assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
        assert_eq!(list.lines().count(), TOPICS.len() + 3);
    }

    #[test]
    fn no_page_loses_a_word_on_its_way_to_the_terminal() {
        let is_word = |word: &&str| word.len() > 3 && word.chars().all(char::is_alphanumeric);
        for topic in TOPICS {
            let shown = render::plain(&Page::of(topic.text).rendered());
            let mut shown = shown.split_whitespace().filter(is_word);
            let prose = topic.text.lines().filter(|line| !line.contains(['[', '`', '|', '*']));
            for word in prose.flat_map(str::split_whitespace).filter(is_word) {
                assert!(shown.any(|other| other == word), "{}: {word}", topic.name);
            }
        }
    }
}
