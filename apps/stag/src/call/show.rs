//! Display of objects: as `ls -l` and `stat` show them, and as JSON.

use super::remote::{Object, shown};
use jiff::Timestamp;
use serde_json::{Value, json};
use stag_protocol::nfs::v3::{FileKind, Time};
use std::fmt::Write;

/// The letter of a kind in a mode, and its name.
const fn kind(kind: FileKind) -> (char, &'static str) {
    match kind {
        FileKind::Regular => ('-', "file"),
        FileKind::Directory => ('d', "directory"),
        FileKind::Block => ('b', "block device"),
        FileKind::Character => ('c', "character device"),
        FileKind::Symlink => ('l', "symbolic link"),
        FileKind::Socket => ('s', "socket"),
        FileKind::Fifo => ('p', "pipe"),
    }
}

/// A mode as `ls -l` shows it.
fn mode(object: &Object) -> String {
    let (letter, mode) = (kind(object.attributes.kind).0, object.attributes.mode);
    let mut text = String::from(letter);
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => set,
            (false, true) => unset,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time in UTC.
fn time(time: Time) -> String {
    let moment = Timestamp::from_second(time.seconds.into());
    moment.unwrap_or_default().strftime("%F %T").to_string()
}

/// One line of `ls -l`. `path` is where a symbolic link points.
pub fn line(object: &Object, path: Option<&[u8]>) -> String {
    let attributes = object.attributes;
    let mut text = format!(
        "{} {:>3} {:>5} {:>5} {:>12} {} {}",
        mode(object),
        attributes.nlink,
        attributes.uid,
        attributes.gid,
        attributes.size,
        time(attributes.mtime),
        shown(&object.name)
    );
    if let Some(path) = path {
        let _ = write!(text, " -> {}", shown(path));
    }
    text.push('\n');
    text
}

/// All attributes.
pub fn stat(object: &Object, path: Option<&[u8]>) -> String {
    let attributes = object.attributes;
    let mut text =
        format!("name    {}\nkind    {}\n", shown(&object.name), kind(attributes.kind).1);
    if let Some(path) = path {
        let _ = writeln!(text, "target  {}", shown(path));
    }
    let _ = writeln!(text, "mode    {:04o} {}", attributes.mode & 0o7777, mode(object));
    let _ = writeln!(text, "owner   uid {} gid {}", attributes.uid, attributes.gid);
    let _ = writeln!(text, "size    {} octets, {} used", attributes.size, attributes.used);
    let _ = writeln!(text, "links   {}", attributes.nlink);
    let _ = writeln!(text, "file    {} on {:#x}", attributes.fileid, attributes.fsid);
    for (name, at) in
        [("read", attributes.atime), ("written", attributes.mtime), ("changed", attributes.ctime)]
    {
        let _ = writeln!(text, "{name:<7} {}.{:09} UTC", time(at), at.nanos);
    }
    let _ = writeln!(text, "handle  {}", hex(object.handle.octets()));
    text
}

/// As a JSON object. `url` is where it can be called.
pub fn object(object: &Object, path: Option<&[u8]>, url: &str) -> Value {
    let attributes = object.attributes;
    let at = |time: Time| json!({ "seconds": time.seconds, "nanos": time.nanos });
    json!({
        "name": shown(&object.name),
        "url": url,
        "kind": kind(attributes.kind).1,
        "target": path.map(shown),
        "mode": attributes.mode & 0o7777,
        "uid": attributes.uid,
        "gid": attributes.gid,
        "size": attributes.size,
        "used": attributes.used,
        "nlink": attributes.nlink,
        "fileid": attributes.fileid,
        "fsid": attributes.fsid,
        "atime": at(attributes.atime),
        "mtime": at(attributes.mtime),
        "ctime": at(attributes.ctime),
        "handle": hex(object.handle.octets()),
    })
}

/// Octets as hexadecimal digits.
pub fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_777, "2026-11-20"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            let shown = time(Time { seconds: days * 86_400, nanos: 0 });
            assert_eq!(shown, format!("{date} 00:00:00"), "{days}");
        }
        assert_eq!(time(Time { seconds: 86_399, nanos: 0 }), "1970-01-01 23:59:59");
    }
}
