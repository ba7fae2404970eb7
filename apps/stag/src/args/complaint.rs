//! Complaints of clap, each as one sentence.

use std::ffi::OsString;

/// Puts clap's complaint about `words` in one sentence that names the help of their subcommand.
pub fn sentence(error: &clap::Error, command: &clap::Command, words: &[OsString]) -> String {
    let help = helping(command, words);
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
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
    format!("{sentence}; see '{help} --help'")
}

/// The command that `words` lead to.
fn helping(command: &clap::Command, words: &[OsString]) -> String {
    let (mut found, mut name) = (command, command.get_name().to_owned());
    for word in words.iter().skip(1) {
        if let Some(within) = word.to_str().and_then(|word| found.find_subcommand(word)) {
            name = format!("{name} {}", within.get_name());
            found = within;
        }
    }
    name
}
