//! Complaints of clap, each as one sentence.

use std::ffi::OsString;

/// Puts clap's complaint about `words` in one sentence that names the help of their subcommand.
pub fn sentence(error: &clap::Error, command: &clap::Command, words: &[OsString]) -> String {
    let help = leading_to(command, words).1;
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let within = leading_to(command, words).0;
        let shown = within.get_subcommands().filter(|command| !command.is_hide_set());
        let known: Vec<_> = shown.map(clap::Command::get_name).collect();
        return format!("a command is missing: {}; see '{help} --help'", known.join(" or "));
    }
    let text = error.render().to_string();
    let parts = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let parts = parts
        .filter(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let mut sentence = String::new();
    for part in parts {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        let joint = match sentence.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        };
        sentence.push_str(joint);
        sentence.push_str(part.strip_prefix("tip: ").unwrap_or(part));
    }
    format!("{}; see '{help} --help'", plain_numbers(&sentence))
}

/// A sentence with the words of the standard library about a word that is no number replaced.
pub fn plain_numbers(sentence: &str) -> String {
    [
        ("invalid digit found in string", "it has to be a whole number"),
        ("cannot parse integer from empty string", "it has to be a whole number"),
        ("invalid float literal", "it has to be a number"),
        ("cannot parse float from empty string", "it has to be a number"),
        ("number too large to fit in target type", "the number is too large"),
        ("number too small to fit in target type", "the number is too small"),
    ]
    .iter()
    .fold(sentence.to_owned(), |sentence, (said, plain)| sentence.replace(said, plain))
}

/// The command that `words` lead to, and its name with those of its parents.
fn leading_to<'a>(command: &'a clap::Command, words: &[OsString]) -> (&'a clap::Command, String) {
    let (mut found, mut name) = (command, command.get_name().to_owned());
    for word in words.iter().skip(1) {
        if let Some(within) = word.to_str().and_then(|word| found.find_subcommand(word)) {
            name = format!("{name} {}", within.get_name());
            found = within;
        }
    }
    (found, name)
}
