//! The cluster file: settings shared by gateways that serve the same files, so that a client that
//! moves between them finds the same file system. All have the same file handle key and export ids,
//! and so the same `fsid` of RFC 1813 §2.6.
//!
//! The file is TOML, readable for its owner only (mode 0600), since the key permits forging file
//! handles. An id is never reused, as in a state directory; `next` is the next one to assign.

use super::{
    config::{ExportId, check_name},
    handle::HandleKey,
    state_dir::{cannot, check_private, replace},
};
use crate::start_error::StartError;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Deserialize;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs::{File, OpenOptions},
    hash::Hasher as _,
    io::{Read, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Bytes of the longest name of a cluster.
const NAME_MAX: usize = 64;
/// Bytes of the longest cluster file that is read.
const FILE_MAX: u64 = 1 << 20;

/// Properties that the gateways of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct Cluster {
    name: String,
    key: [u8; HandleKey::LEN],
    next: u32,
    exports: BTreeMap<String, ExportId>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({}, {:?})", self.name, self.exports)
    }
}

/// The file's TOML form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    name: String,
    key: String,
    next: u32,
    exports: BTreeMap<String, u32>,
}

impl Cluster {
    /// Makes a cluster with a new key, and with these exports.
    ///
    /// # Errors
    /// A sentence when a name is invalid, or the system returns no random numbers.
    pub fn new(name: &str, exports: &[String]) -> Result<Self, StartError> {
        check_cluster_name(name)?;
        let mut key = [0; HandleKey::LEN];
        getrandom(&mut key, GetRandomFlags::empty())
            .map_err(|error| StartError(format!("the system gives no random numbers: {error}")))?;
        let mut cluster = Self { name: name.to_owned(), key, next: 1, exports: BTreeMap::new() };
        cluster.add(exports)?;
        Ok(cluster)
    }

    /// Assigns ids to more exports.
    ///
    /// # Errors
    /// A sentence when a name is invalid or has an id already; nothing is added then.
    pub fn add(&mut self, exports: &[String]) -> Result<(), StartError> {
        let mut more = self.clone();
        for name in exports {
            check_name(name)?;
            let id = ExportId(more.next);
            more.next = more
                .next
                .checked_add(1)
                .ok_or_else(|| StartError("no export id is left".to_owned()))?;
            if more.exports.insert(name.clone(), id).is_some() {
                return Err(StartError(format!("the cluster has an export {name} already")));
            }
        }
        *self = more;
        Ok(())
    }

    /// Reads a cluster file.
    ///
    /// # Errors
    /// A sentence when it cannot be read, is readable for others, or is not a cluster file.
    pub fn read(path: &Path) -> Result<Self, StartError> {
        let file = File::open(path).map_err(cannot("read", path))?;
        check_private(&file, path)?;
        let mut text = String::new();
        file.take(FILE_MAX).read_to_string(&mut text).map_err(cannot("read", path))?;
        Self::parse(&text)
            .map_err(|why| StartError(format!("{} is no cluster file: {why}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: ClusterFile =
            toml::from_str(text).map_err(|error| error.to_string().trim().replace('\n', " "))?;
        let ClusterFile { name, key, next, exports } = file;
        check_cluster_name(&name).map_err(|error| error.0)?;
        let key = key_of(&key).ok_or("its key is not 32 hexadecimal digits")?;
        let mut ids: Vec<_> = exports.values().copied().collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err("two of its exports have the same id".to_owned());
        }
        if ids.first() == Some(&0) || ids.last().is_some_and(|last| *last >= next) {
            return Err(format!("the ids of its exports are not from 1 to {next} - 1"));
        }
        for name in exports.keys() {
            check_name(name).map_err(|error| error.0)?;
        }
        let exports = exports.into_iter().map(|(name, id)| (name, ExportId(id))).collect();
        Ok(Self { name, key, next, exports })
    }

    /// Writes the cluster to a file that must not exist.
    ///
    /// # Errors
    /// A sentence when it exists or cannot be written.
    pub fn create(&self, path: &Path) -> Result<(), StartError> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(
            |error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => StartError(format!(
                    "{} exists: its key may be in use, so it is not replaced; give another name",
                    path.display()
                )),
                _ => cannot("write", path)(error),
            },
        )?;
        let written = file.write_all(self.text().as_bytes()).and_then(|()| file.sync_all());
        written.map_err(cannot("write", path))
    }

    /// Replaces a cluster file as a whole.
    ///
    /// # Errors
    /// A sentence when it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), StartError> {
        let path = std::path::absolute(path).map_err(cannot("write", path))?;
        let (Some(directory), Some(name)) =
            (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            return Err(StartError(format!("{} cannot name a file", path.display())));
        };
        replace(directory, name, self.text().as_bytes())
    }

    fn text(&self) -> String {
        let Self { name, key, next, exports } = self;
        let mut text = format!(
            "# Gateways of Stag that serve the same files have the same copy of this file. It is \
             secret:\n# whoever reads the key can make file handles. 'stag cluster --help' says \
             more.\nname = \"{name}\"\nkey = \"{:032x}\"\n# The id that the next export gets: none \
             is given twice.\nnext = {next}\n\n[exports]\n",
            u128::from_be_bytes(*key)
        );
        for (name, ExportId(id)) in exports {
            let _ = writeln!(text, "{} = {id}", quoted(name));
        }
        text
    }

    /// Returns the name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the exports that have an id, in the order of their names.
    pub fn exports(&self) -> impl Iterator<Item = (&str, ExportId)> {
        self.exports.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Returns the id of the export with this name.
    pub fn id_of(&self, export: &str) -> Option<ExportId> {
        self.exports.get(export).copied()
    }

    /// Returns the secret by which gateways recognise each other's version 4 sessions.
    pub fn session_secret(&self) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(b"sessions of version 4");
        hasher.finish128().as_bytes()
    }

    /// Returns the key of the file handles.
    pub fn handles(&self) -> HandleKey {
        HandleKey::new(&self.key)
    }
}

/// Quotes a name as a basic string of TOML. It has no control characters.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn key_of(text: &str) -> Option<[u8; HandleKey::LEN]> {
    let is_plain = text.len() == 2 * HandleKey::LEN && text.bytes().all(|c| c.is_ascii_hexdigit());
    let number = is_plain.then(|| u128::from_str_radix(text, 16).ok())??;
    Some(number.to_be_bytes())
}

fn check_cluster_name(name: &str) -> Result<(), StartError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_plain) {
        return Err(StartError(format!(
            "{name:?} cannot name a cluster: 1 to {NAME_MAX} letters, digits, dots, hyphens and \
             underscores"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_cluster_file_is_made_once_read_again_and_grows() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("blue.toml");
        let odd = names(&["data", "a \"b\" \\ c", "é.1"]);
        let mut cluster = Cluster::new("blue", &odd).unwrap();
        cluster.create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(Cluster::read(&path).unwrap(), cluster);
        assert_eq!(
            odd.iter().map(|name| cluster.id_of(name).unwrap().0).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        let twice = cluster.create(&path).unwrap_err().to_string();
        assert!(twice.contains("exists") && twice.contains("not replaced"), "{twice}");

        cluster.add(&names(&["more"])).unwrap();
        cluster.save(&path).unwrap();
        let read = Cluster::read(&path).unwrap();
        assert_eq!((read.id_of("more"), read.id_of("none")), (Some(ExportId(4)), None));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(cluster.add(&names(&["new", "data"])).is_err());
        assert_eq!(cluster, read, "nothing was added");
    }

    #[test]
    fn an_id_is_not_given_again_when_an_export_was_taken_out() {
        let mut cluster = Cluster::new("blue", &names(&["a", "b"])).unwrap();
        let text = cluster.text().replace("\"b\" = 2\n", "");
        cluster = Cluster::parse(&text).unwrap();
        cluster.add(&names(&["c"])).unwrap();
        assert_eq!(cluster.id_of("c"), Some(ExportId(3)));
    }

    #[test]
    fn what_is_no_cluster_file_is_refused_with_the_reason() {
        let text = Cluster::new("blue", &names(&["a", "b"])).unwrap().text();
        assert!(Cluster::parse(&text).is_ok());
        for (from, to, part) in [
            ("name = \"blue\"", "name = \"b/b\"", "cannot name a cluster"),
            ("key = \"", "key = \"0", "32 hexadecimal digits"),
            ("key = \"", "kex = \"", "kex"),
            ("next = 3", "next = 2", "from 1 to 2 - 1"),
            ("\"a\" = 1", "\"a\" = 0", "from 1 to 3 - 1"),
            ("\"a\" = 1", "\"a\" = 2", "same id"),
            ("\"a\" = 1", "\"a/c\" = 1", "cannot name an export"),
            ("\"a\" = 1", "\"a\" = -1", "-1"),
            ("[exports]", "[export]", "export"),
        ] {
            let error = Cluster::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(part), "{to}: {error}");
        }
        for name in ["", "a b", "é", &"x".repeat(65)] {
            assert!(Cluster::new(name, &[]).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_not_taken() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("blue.toml");
        Cluster::new("blue", &names(&["a"])).unwrap().create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Cluster::read(&path).unwrap_err().to_string().contains("mode 0600"));
        let none = Cluster::read(&home.path().join("none")).unwrap_err().to_string();
        assert!(none.starts_with("cannot read"), "{none}");
    }
}
