//! Results of each procedure that a client calls: cut after every word, with every word that
//! cannot be.

use super::{AskedCall, CallKind, table::ServerDefectTable};
use crate::play::rule;
use crate::wire::*;

/// Octets of a successful reply header.
const HEADER: usize = 24;

const CALLS: [(&str, &str, CallKind, usize); 7] = [
    ("getattr", "RFC 1813 §3.3.1", CallKind::Stat, 88),
    ("lookup", "RFC 1813 §3.3.3", CallKind::Look, 32),
    ("readlink", "RFC 1813 §3.3.5", CallKind::Link, 24),
    ("read", "RFC 1813 §3.3.6", CallKind::Read, 20),
    ("write", "RFC 1813 §3.3.7", CallKind::Write, 28),
    ("fsinfo", "RFC 1813 §3.3.19", CallKind::Info, 56),
    ("commit", "RFC 1813 §3.3.21", CallKind::Commit, 20),
];

pub(super) fn add(table: &mut ServerDefectTable) {
    for (name, clause, does, len) in CALLS {
        for octets in (0..len).step_by(4) {
            table.results(
                &format!("{name}-cut-behind-{octets}-octets"),
                rule(clause, "call fails"),
                does,
                move |asked| cut(asked.results(), HEADER + octets),
            );
        }
        for status in [3, 4, 16, 98, 10_000, 10_009, u32::MAX] {
            table.results(
                &format!("{name}-status-{status}"),
                rule(clause, "call fails"),
                does,
                move |asked| with_word(asked.results(), HEADER, status),
            );
        }
        table.results(
            &format!("{name}-with-a-word-behind-it"),
            rule(clause, "call fails"),
            does,
            |asked| [asked.results(), vec![0, 0, 0, 1]].concat(),
        );
    }
    statuses(table);
    words(table);
}

/// Every status of NFS version 3, as GETATTR and LOOKUP fail with it. A call that meets
/// NFS3ERR_JUKEBOX is asked again.
fn statuses(table: &mut ServerDefectTable) {
    for status in [
        1, 2, 5, 6, 13, 17, 18, 19, 20, 21, 22, 27, 28, 30, 31, 63, 66, 69, 70, 71, 10_001, 10_002,
        10_003, 10_004, 10_005, 10_006, 10_007, 10_008,
    ] {
        let wanted = if status == 10_008 { "call succeeds" } else { "call fails" };
        table.results(
            &format!("getattr-fails-by-{status}"),
            rule("RFC 1813 §2.6", wanted),
            CallKind::Stat,
            move |asked| success(asked.xid).u32(status).0,
        );
    }
    for (name, does) in [("lookup", CallKind::Look), ("readlink", CallKind::Link)] {
        table.results(
            &format!("{name}-fails-without-attributes"),
            rule("RFC 1813 §2.6", "call fails"),
            does,
            |asked| success(asked.xid).words(&[70, 0]).0,
        );
        table.results(
            &format!("{name}-fails-and-is-cut"),
            rule("RFC 1813 §2.6", "call fails"),
            does,
            |asked| success(asked.xid).words(&[70]).0,
        );
    }
}

/// A word that is invalid at its place: its value, and its octet in the results.
fn words(table: &mut ServerDefectTable) {
    let wrong: [(&str, CallKind, usize, &[u32]); 13] = [
        ("getattr-kind", CallKind::Stat, 4, &[0, 8, 0x100, u32::MAX]),
        ("lookup-handle-length", CallKind::Look, 4, &[65, 0x1000, 1 << 31, u32::MAX]),
        ("lookup-object-attributes", CallKind::Look, 24, &[2, u32::MAX]),
        ("lookup-directory-attributes", CallKind::Look, 28, &[2, u32::MAX]),
        ("readlink-attributes", CallKind::Link, 4, &[2, 0xFF00]),
        ("readlink-path-length", CallKind::Link, 8, &[13, 0x1000, 1 << 31, u32::MAX]),
        ("read-attributes", CallKind::Read, 4, &[2, u32::MAX]),
        ("read-count", CallKind::Read, 8, &[0, 1, 8_191, 8_193, 1 << 31, u32::MAX]),
        ("read-end-of-file", CallKind::Read, 12, &[2, 0x100, u32::MAX]),
        ("read-data-length", CallKind::Read, 16, &[0, 1, 8_191, 8_193, 1 << 31, u32::MAX]),
        ("write-count", CallKind::Write, 12, &[8_193, 1 << 31, u32::MAX]),
        ("write-stable-how", CallKind::Write, 16, &[0, 1, 3, u32::MAX]),
        ("commit-attributes", CallKind::Commit, 4, &[2, u32::MAX]),
    ];
    for (name, does, at, values) in wrong {
        for value in values {
            let (value, change) = (*value, HEADER + at);
            table.results(
                &format!("{name}-is-{value:#x}"),
                rule("RFC 1813 §3.3, RFC 4506 §4", "call fails"),
                does,
                move |asked: &AskedCall| with_word(asked.results(), change, value),
            );
        }
    }
    // Numbers that are strange and allowed.
    for (name, does, at, value) in [
        ("getattr-of-no-links", CallKind::Stat, 12, 0),
        ("getattr-of-strange-mode", CallKind::Stat, 8, u32::MAX),
        ("getattr-of-a-large-size", CallKind::Stat, 24, u32::MAX),
        ("fsinfo-of-no-reads", CallKind::Info, 8, 0),
        ("fsinfo-of-4-gib", CallKind::Info, 8, u32::MAX),
        ("fsinfo-of-strange-properties", CallKind::Info, 52, u32::MAX),
    ] {
        table.results(name, rule("RFC 1813 §3.3", "call succeeds"), does, move |asked| {
            with_word(asked.results(), HEADER + at, value)
        });
    }
}
