//! Quoting of names for a shell and for `/etc/fstab`, and of a peer's texts for a terminal.

use std::{fmt::Write, os::unix::ffi::OsStrExt, path::Path};

/// One word of a shell's command line.
pub fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:[]=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// One field of a line of `fstab(5)`: blanks and backslashes as octal numbers.
pub fn fstab(text: &str) -> String {
    let mut field = String::new();
    for c in text.chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' | '#' => field.push_str(&format!("\\{:03o}", u32::from(c))),
            _ => field.push(c),
        }
    }
    field
}

/// Returns true for a character that moves a terminal's cursor, or changes the direction of the
/// text around it.
fn controls(c: char) -> bool {
    let turns = ['\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    let ends_line = '\u{2028}'..='\u{2029}';
    c.is_control() || ends_line.contains(&c) || turns.iter().any(|range| range.contains(&c))
}

/// A name of a peer for display: two different names never look alike. Octets that are no text,
/// characters that control a terminal, and backslashes are escaped.
pub fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' || controls(c) { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for octet in chunk.invalid() {
            let _ = write!(text, "\\x{octet:02x}");
        }
    }
    text
}

/// The same of a local path, whose last names may come from a peer.
pub fn shown_path(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

/// One line of a text that may contain a peer's words: characters that control a terminal, or end a
/// line, are escaped.
pub fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if controls(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// The same of several lines, which stay lines.
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The same of JSON: escapes that JSON has.
pub fn json(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    for c in text.chars() {
        if controls(c) && c != '\n' {
            let _ = write!(json, "\\u{:04x}", u32::from(c));
        } else {
            json.push(c);
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_others_are_quoted() {
        assert_eq!(shell("127.0.0.1:/data"), "127.0.0.1:/data");
        assert_eq!(shell("[::1]:/a b"), "'[::1]:/a b'");
        assert_eq!(shell("it's"), r"'it'\''s'");
        assert_eq!(shell(""), "''");
        assert_eq!(fstab(r"/a b\c#d"), r"/a\040b\134c\043d");
    }

    #[test]
    fn no_name_controls_a_terminal_and_no_two_look_alike() {
        assert_eq!(shown("ä b".as_bytes()), "ä b");
        assert_eq!(shown(b"a\xff\x1b[2J\n"), "a\\xff\\u{1b}[2J\\n");
        assert_eq!(shown("\u{9b}31m\u{202e}txt.exe".as_bytes()), "\\u{9b}31m\\u{202e}txt.exe");
        assert_eq!(shown(b"a\\x1b"), "a\\\\x1b");
        let names: [&[u8]; 8] =
            [b"\n", b"\\n", b"\\\\n", b"\xff", b"\\xff", b"\x7f", b"\x1b", b"\\u{1b}"];
        let all: std::collections::BTreeSet<_> = names.iter().map(|name| shown(name)).collect();
        assert_eq!(all.len(), names.len());
        assert!(all.iter().all(|text| !text.contains(controls)), "{all:?}");
    }

    #[test]
    fn lines_stay_lines_and_nothing_else_moves_the_cursor() {
        assert_eq!(lines("a\x1b[1A\nb\r\tc\n"), "a\\u{1b}[1A\nb\\r\\tc\n");
        assert_eq!(line("a\nb"), "a\\nb");
        let value = serde_json::json!({ "path": "a\u{9b}b\u{202e}\n\x7f" });
        let printed = json(&format!("{value:#}\n"));
        assert!(!printed.contains(|c| controls(c) && c != '\n'), "{printed}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), value);
    }
}
