//! `docs/errors.md` explains every message of the log, every reason for which a peer is turned away
//! or has no TLS session, and every notice of a start.

use stag_engine::{Cause, ConnectLimit};
use stag_verbs::{FabricFault, Terminate};
use std::{collections::BTreeSet, fs, path::Path};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The string literals of `code`, as the compiler reads them.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '"' {
            continue;
        }
        let mut text = String::new();
        while let Some(c) = chars.next().filter(|c| *c != '"') {
            match c {
                '\\' if chars.next_if_eq(&'\n').is_some() => {
                    while chars.next_if(|c| c.is_whitespace()).is_some() {}
                }
                '\\' if chars.next_if_eq(&'n').is_some() => text.push('\n'),
                '\\' => text.extend(chars.next()),
                c => text.push(c),
            }
        }
        found.push(text);
    }
    found
}

/// The messages of all events in the source below `folder`, with their levels.
fn messages(folder: &Path, found: &mut BTreeSet<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            if !["tests", "target", "examples"].iter().any(|name| path.ends_with(name)) {
                messages(&path, found);
            }
            continue;
        }
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let code =
            source.split_once("\n#[cfg(test)]\nmod tests {").map_or(&*source, |(code, _)| code);
        for event in code.split("tracing::").skip(1) {
            let Some((level, rest)) = event.split_once("!(") else { continue };
            if !["error", "warn", "info", "debug", "trace"].contains(&level) {
                continue;
            }
            let message = literals(rest.split(");").next().unwrap()).pop().unwrap();
            found.insert((level.to_owned(), message));
        }
    }
}

fn page() -> String {
    fs::read_to_string(format!("{ROOT}/docs/errors.md")).unwrap()
}

#[test]
fn every_message_of_the_log_is_explained() {
    let mut found = BTreeSet::new();
    for folder in ["apps", "engine"] {
        messages(&Path::new(ROOT).join(folder), &mut found);
    }
    assert!(found.len() > 20, "{found:?}");
    let page = page();
    let explained = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let explained: BTreeSet<_> = explained
        .filter_map(|(message, rest)| {
            let (level, _) = rest.split_once(" | ")?;
            Some((level.to_owned(), message.to_owned()))
        })
        .filter(|(level, _)| ["error", "warn", "info", "debug", "trace"].contains(&level.as_str()))
        .collect();
    let missing: Vec<_> = found.difference(&explained).collect();
    let extra: Vec<_> = explained.difference(&found).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?} extra: {extra:#?}");
}

#[test]
fn every_reason_for_the_end_of_a_connection_is_explained() {
    let terminate = Terminate { layer: stag_verbs::Layer::Ddp, etype: 1, code: 2 };
    let faults = [
        FabricFault::Refused,
        FabricFault::TimedOut,
        FabricFault::Lost,
        FabricFault::AddressInUse,
        FabricFault::BadAddress,
        FabricFault::Exhausted,
        FabricFault::Denied,
        FabricFault::Corrupt,
    ];
    let causes = [
        Cause::Local,
        Cause::Slow,
        Cause::Stalled,
        Cause::Peer,
        Cause::Rejected,
        Cause::PeerFault(terminate),
        Cause::Terminated(terminate),
        Cause::Handshake,
        Cause::Tls,
    ];
    let limits = [
        ConnectLimit::Receives,
        ConnectLimit::Peers,
        ConnectLimit::Fabric,
        ConnectLimit::Descriptors,
        ConnectLimit::Stopping,
    ];
    let page = page();
    let causes = causes.into_iter().chain(faults.map(Cause::Fabric)).map(|cause| cause.to_string());
    for text in causes.chain(limits.map(|limit| limit.sentence().to_owned())) {
        let text = text.replace(&terminate.to_string(), "L/T/CC");
        assert!(page.contains(&format!("| `{text}` |")), "{text}");
    }
    let admission = fs::read_to_string(format!("{ROOT}/apps/stag/src/admission.rs")).unwrap();
    let refusals = admission.split_once("impl fmt::Display for Refusal").unwrap().1;
    for text in literals(refusals.split_once("\n}\n").unwrap().0) {
        assert!(page.contains(&format!("| `{text}` |")), "{text}");
    }
}

/// The first cells of the rows below a heading of the page, without their quotes.
fn rows(heading: &str) -> BTreeSet<String> {
    let page = page();
    let part = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let part = part.split("\n## ").next().unwrap();
    let cells = part.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    // Without the head of the table.
    cells.skip(1).map(|(cell, _)| cell.to_owned()).collect()
}

fn source(path: &str) -> String {
    let source = fs::read_to_string(format!("{ROOT}/{path}")).unwrap();
    source.split("\n#[cfg(test)]").next().unwrap().to_owned()
}

#[test]
fn every_reason_of_a_fabric_to_turn_peers_away_is_explained() {
    let source = source("apps/operate/src/observe/refusals.rs");
    let counted = source.split_once("const COUNTED").unwrap().1.split_once("\n];").unwrap().0;
    let why: BTreeSet<_> =
        literals(counted).into_iter().filter(|text| !text.starts_with('/')).collect();
    assert_eq!(why.len(), 8);
    assert_eq!(rows("Why a fabric turned peers away"), why);
}

#[test]
fn every_reason_of_ours_for_which_there_is_no_tls_session_is_explained() {
    let rows = rows("Why there is no TLS session");
    let mut found = 0;
    for path in
        ["engine/src/stream/tls.rs", "engine/src/stream/kernel_tls.rs", "engine/tls/src/session.rs"]
    {
        let source = source(path);
        for made in source.split("TlsError::").skip(1) {
            let sentence = ["from(\"", "new(\"", "new(format!(\""];
            let Some(start) = sentence.iter().find(|start| made.starts_with(**start)) else {
                continue;
            };
            let text = literals(&made[start.len() - 1..]).swap_remove(0);
            assert!(rows.contains(&text), "{text}");
            found += 1;
        }
    }
    assert_eq!(found, 7);
}

/// The sentences of a function.
fn sentences(path: &str, function: &str) -> Vec<String> {
    let source = source(path);
    let (_, rest) = source.split_once(function).unwrap();
    let body = rest.split("\n}\n").next().unwrap();
    // Others are parts of a sentence.
    literals(body).into_iter().filter(|text| text.len() > 25).collect()
}

#[test]
fn every_notice_of_a_start_is_explained() {
    let mut found = BTreeSet::new();
    for (path, function) in [
        ("apps/stag/src/serve/plan/client_rules.rs", "pub fn notice("),
        ("apps/stag/src/serve/plan/checks.rs", "pub fn unreachable("),
        ("apps/stag/src/serve/plan/exports.rs", "pub fn overlaps("),
        ("apps/stag/src/serve/plan/exports.rs", "fn overlap("),
        ("apps/stag/src/descriptors.rs", "pub fn notice("),
        ("apps/stag/src/tls.rs", "pub fn sentence("),
        ("apps/stag/src/serve/plan/kerberos.rs", "pub fn notices("),
    ] {
        found.extend(sentences(path, function));
    }
    for path in [
        "apps/stag/src/serve/plan/client_rules.rs",
        "apps/stag/src/serve/start/mod.rs",
        "apps/operate/src/observe/mod.rs",
        "apps/nfs/store/src/files/shared.rs",
        "apps/nfs/store/src/files/kernel_handles.rs",
    ] {
        let source = source(path);
        let mut parts = source.split(".push(").peekable();
        while let (Some(before), Some(pushed)) = (parts.next(), parts.peek()) {
            if before.trim_end().ends_with("notices") {
                found.insert(literals(pushed).swap_remove(0));
            }
        }
    }
    for path in ["report/startup_text.rs", "report/watching.rs", "start/nfs4_start.rs"] {
        let all = literals(&source(&format!("apps/stag/src/serve/{path}")));
        let said = all.iter().filter_map(|text| text.strip_prefix("notice: "));
        found.extend(said.map(|text| text.trim_end().to_owned()));
    }
    found.remove("{notice}");
    let rows = rows("Notices of a start");
    let missing: Vec<_> = found.difference(&rows).collect();
    let extra: Vec<_> = rows.difference(&found).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?} extra: {extra:#?}");
}
