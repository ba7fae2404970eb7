//! Results as one HTML page: charts as inline SVG, without scripts and without external files.

mod chart;
mod lines;
mod tables;

use super::model::RunOutcome;
use chart::plain;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");
/// The browser loads and runs nothing, in spite of any name in a result.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Lists the properties that distinguish runs, in the order of their display.
fn parts(outcome: &RunOutcome) -> [String; 8] {
    let setup = &outcome.setup;
    let count =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    [
        setup.workload.name().to_owned(),
        if setup.size > 0 {
            format!("{} octets", chart::size(setup.size as u64))
        } else {
            String::new()
        },
        setup.url.clone(),
        setup
            .rate
            .map_or_else(|| "closed loop".to_owned(), |rate| format!("{}/s", chart::number(rate))),
        format!("depth {}", setup.depth),
        count(setup.connections, "connection"),
        count(setup.cores, "core"),
        if setup.verified || !setup.workload.has_payload() { "" } else { "not verified" }
            .to_owned(),
    ]
}

/// Returns the properties that all runs have in common, and a name for each run.
fn names(outcomes: &[RunOutcome]) -> (Vec<String>, Vec<String>) {
    let all: Vec<_> = outcomes.iter().map(parts).collect();
    let Some(first) = all.first() else { return (Vec::new(), Vec::new()) };
    let is_common: Vec<bool> = (0..first.len())
        .map(|part| all.iter().all(|parts| parts.get(part) == first.get(part)))
        .collect();
    let chosen = |parts: &[String], common: bool| -> Vec<String> {
        let parts = parts.iter().zip(&is_common);
        parts
            .filter(|(part, is)| **is == common && !part.is_empty())
            .map(|(part, _)| part.clone())
            .collect()
    };
    let known: Vec<_> = all.iter().map(|parts| chosen(parts, false).join(", ")).collect();
    let has_twins = |name: &String| known.iter().filter(|other| *other == name).count() > 1;
    let names = known.iter().zip(1..).map(|(name, number)| match name.as_str() {
        "" => format!("run {number}"),
        _ if has_twins(name) => format!("{name}, run {number}"),
        name => name.to_owned(),
    });
    (chosen(first, true), names.collect())
}

/// A page of all `outcomes`.
///
/// # Errors
/// A sentence that names the fault of a histogram.
pub fn page(outcomes: &[RunOutcome]) -> Result<String, String> {
    let (common, names) = names(outcomes);
    let title =
        if outcomes.len() == 1 { String::new() } else { format!("{} runs: ", outcomes.len()) };
    let title = plain(&(title + &common.join(", ")));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link \
         rel=\"icon\" href=\"data:,\">\n\
         <title>{title} · stag \
         bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    tables::lead(&mut page, outcomes);
    notes(&mut page, outcomes, &names);
    tables::results(&mut page, outcomes, &names);
    lines::charts(outcomes, &names)?.iter().for_each(|chart| chart.write(&mut page));
    tables::stages(&mut page, outcomes, &names);
    tables::facts(&mut page, outcomes);
    page.push_str(
        "<footer>Times are full round trips. <i>Service</i>: from when a call was given to the \
         engine to when its reply was \
         read and compared; <i>response</i>: from when it was meant to go out. n/a: fewer than 10 \
         samples lie beyond. Written by \
         <code>stag bench report</code>.</footer>\n</body>\n</html>\n",
    );
    Ok(page)
}

/// Writes the caveats that the figures alone do not show, at a prominent place. A caveat of many
/// runs is written once, with the first of them.
fn notes(page: &mut String, outcomes: &[RunOutcome], names: &[String]) {
    let mut said: Vec<(String, String, Vec<&str>)> = Vec::new();
    for (name, outcome) in names.iter().zip(outcomes) {
        for note in outcome.notes() {
            let (what, detail) = note.split_once(": ").unwrap_or((&note, ""));
            match said.iter_mut().find(|(known, ..)| known == what) {
                Some((.., of)) if of.last() == Some(&name.as_str()) && outcomes.len() > 1 => {}
                Some((.., of)) if outcomes.len() > 1 => of.push(name),
                _ => said.push((what.to_owned(), detail.to_owned(), vec![name])),
            }
        }
    }
    if said.is_empty() {
        return;
    }
    page.push_str("<div class=\"notes\" role=\"note\"><ul>\n");
    for (what, detail, of) in said {
        let whose = match of.as_slice() {
            _ if outcomes.len() == 1 => String::new(),
            [one] => format!(" ({one})"),
            [first, ..] => {
                format!(" ({} of {} runs, the first: {first})", of.len(), outcomes.len())
            }
            [] => String::new(),
        };
        let colon = if detail.is_empty() { "" } else { ": " };
        let _ =
            writeln!(page, "<li>{}{}{colon}{}</li>", plain(&what), plain(&whose), plain(&detail));
    }
    page.push_str("</ul></div>\n");
}

#[cfg(test)]
mod tests;
