//! The map file of Kerberos principals: a line `principal = uid:gid[,group…]` for each principal
//! whose user of this host the operator gives, in front of krb5.conf and the name service.

use stag_protocol::rpc::{Gids, UnixUser};
use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// Longest file that is read.
pub const USER_MAP_LEN_MAX: u64 = 4 << 20;

/// Principals with the users that a file gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMap {
    users: HashMap<String, UnixUser>,
}

/// A fault of such a file: the file, the line if there is one, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMapFault {
    path: PathBuf,
    line: Option<usize>,
    why: String,
}

impl fmt::Display for UserMapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, why) = (self.path.display(), &self.why);
        match self.line {
            Some(line) => write!(f, "{path}:{line}: {why}"),
            None => write!(f, "the map of principals {path} {why}"),
        }
    }
}

impl std::error::Error for UserMapFault {}

impl UserMap {
    /// Reads a file.
    ///
    /// # Errors
    /// The first fault, with its line.
    pub fn read(path: &Path) -> Result<Self, UserMapFault> {
        let fault = |line, why| UserMapFault { path: path.to_owned(), line, why };
        let unreadable = |error: io::Error| {
            fault(None, format!("cannot be read ({error}); fix: make it, readable for this user"))
        };
        let about = fs::metadata(path).map_err(unreadable)?;
        // A FIFO would wait for a writer.
        if !about.is_file() || about.len() > USER_MAP_LEN_MAX {
            return Err(fault(None, "is no regular file of at most 4 MiB".to_owned()));
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text).map_err(|(line, why)| fault(Some(line), why))
    }

    /// The users of a file's text; else the number of the first line that has a fault, and why.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut users = HashMap::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = without_comment(content).trim();
            if content.is_empty() {
                continue;
            }
            let (principal, user) = entry(content).map_err(|why| (line, why))?;
            if let Some(first) = places.insert(principal, line) {
                let why = format!("{principal} has a user in line {first} already: keep one");
                return Err((line, why));
            }
            users.insert(principal.to_owned(), user);
        }
        Ok(Self { users })
    }

    /// The user of a principal.
    #[must_use]
    pub fn user(&self, principal: &str) -> Option<UnixUser> {
        self.users.get(principal).copied()
    }

    /// The number of principals.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// True if it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

/// A line up to its comment, which begins with a `#` that is first or follows a blank.
fn without_comment(line: &str) -> &str {
    let is_start = |at: &usize| line.get(..*at).is_some_and(is_blank_at_end);
    let start = line.match_indices('#').map(|(at, _)| at).find(is_start);
    start.and_then(|at| line.get(..at)).unwrap_or(line)
}

fn is_blank_at_end(text: &str) -> bool {
    text.is_empty() || text.ends_with(char::is_whitespace)
}

/// A line that has a principal.
fn entry(line: &str) -> Result<(&str, UnixUser), String> {
    let form = "write alice@REALM = UID:GID or alice@REALM = UID:GID,GROUP,…";
    let (principal, user) =
        line.rsplit_once('=').ok_or_else(|| format!("it has no '=': {form}"))?;
    let principal = principal.trim();
    if principal.is_empty() || principal.contains(char::is_whitespace) {
        return Err(format!("{principal:?} is no principal: {form}"));
    }
    let realm =
        principal.rsplit_once('@').filter(|(name, realm)| !name.is_empty() && !realm.is_empty());
    if realm.is_none() {
        return Err(format!("{principal} has no realm: write it as {principal}@REALM"));
    }
    let (uid, groups) =
        user.split_once(':').ok_or_else(|| format!("{principal} has no group: {form}"))?;
    let uid = number(uid)?;
    let groups = groups.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
    let (gid, others) = groups.split_first().ok_or(form)?;
    let gids = Gids::new(others).ok_or_else(|| {
        format!("{principal} has {} groups after the first one, and 16 at most count", others.len())
    })?;
    Ok((principal, UnixUser { uid, gid: *gid, gids }))
}

/// The number of a user or group. The largest one means "none" in system calls.
fn number(text: &str) -> Result<u32, String> {
    let text = text.trim();
    let is_plain = text.bytes().all(|octet| octet.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_plain && *number != u32::MAX);
    number.ok_or_else(|| format!("{text:?} is no number from 0 to {}", u32::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (usize, String) {
        UserMap::parse(text).unwrap_err()
    }

    #[test]
    fn principals_have_the_users_of_their_lines() {
        let text = "# people\n\nalice@A.TEST = 1000:100\n  \
                    bob@A.TEST=1001 : 100 , 5,6 # and groups\n\
                    nfs/c1.a.test@A.TEST = 0:0\r\nodd#name@A.TEST = 7:8\n\to=x@A.TEST = 9:9";
        let map = UserMap::parse(text).unwrap();
        let user =
            |uid, gid, gids: &[u32]| Some(UnixUser { uid, gid, gids: Gids::new(gids).unwrap() });
        assert_eq!(map.len(), 5);
        assert_eq!(map.user("alice@A.TEST"), user(1000, 100, &[]));
        assert_eq!(map.user("bob@A.TEST"), user(1001, 100, &[5, 6]));
        assert_eq!(map.user("nfs/c1.a.test@A.TEST"), user(0, 0, &[]));
        assert_eq!(map.user("odd#name@A.TEST"), user(7, 8, &[]));
        assert_eq!(map.user("o=x@A.TEST"), user(9, 9, &[]));
        assert_eq!(map.user("alice@B.TEST"), None);
        assert!(UserMap::parse("# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn a_fault_has_its_line_and_what_to_write() {
        for (text, line, part) in [
            ("\nalice@A", 2, "no '='"),
            ("= 1:1", 1, "no principal"),
            ("alice smith@A = 1:1", 1, "no principal"),
            ("alice = 1:1", 1, "write it as alice@REALM"),
            ("@A = 1:1", 1, "no realm"),
            ("alice@ = 1:1", 1, "no realm"),
            ("alice@A = 1", 1, "no group"),
            ("alice@A = alice:1", 1, "\"alice\" is no number"),
            ("alice@A = +1:1", 1, "\"+1\" is no number"),
            ("alice@A = 1:", 1, "\"\" is no number"),
            ("alice@A = 1:2,", 1, "\"\" is no number"),
            ("alice@A = 4294967295:1", 1, "is no number"),
            ("a@A = 1:1\nb@A = 2:2\na@A = 3:3", 3, "line 1 already"),
        ] {
            let (at, why) = fault(text);
            assert!(at == line && why.contains(part), "{text:?}: {at}: {why}");
        }
        let groups = ["7"; 17];
        assert!(
            UserMap::parse(&format!("a@A = 1:{}", groups.join(","))).is_ok(),
            "16 and the first"
        );
        assert!(fault(&format!("a@A = 1:1,{}", groups.join(","))).1.contains("17 groups"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_sentence() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("map");
        let sentence = UserMap::read(&path).unwrap_err().to_string();
        let begin = format!("the map of principals {} cannot be read (", path.display());
        assert!(sentence.starts_with(&begin), "{sentence}");
        assert!(UserMap::read(home.path()).unwrap_err().to_string().contains("no regular file"));
        fs::write(&path, "a@A = 1:1\nb\n").unwrap();
        let sentence = UserMap::read(&path).unwrap_err().to_string();
        assert!(sentence.starts_with(&format!("{}:2: it has no", path.display())), "{sentence}");
        fs::write(&path, "a@A = 1:1\n").unwrap();
        assert_eq!(UserMap::read(&path).unwrap().len(), 1);
    }
}
