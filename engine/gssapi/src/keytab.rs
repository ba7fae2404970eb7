//! Keytab files (MIT's format 0x502), read for checks at start: their principals and encryption
//! types, and not their keys. Needs no library, so that `serve --check` works without one.
#![forbid(unsafe_code)]

use stag_gss::Enctype;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsStr,
    fmt, fs, io,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// Longest file that is read.
pub const KEYTAB_LEN_MAX: u64 = 1 << 20;
/// Most entries that are read.
pub const KEYTAB_ENTRIES_MAX: usize = 4_096;
/// Most components of a principal: `nfs/host` has two.
const COMPONENTS_MAX: u16 = 16;

/// A key in a keytab, without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeytabEntry {
    /// Components of the principal, as in `["nfs", "host"]`.
    pub components: Vec<String>,
    /// Its realm.
    pub realm: String,
    /// Version of the key.
    pub version: u32,
    /// Number of the encryption type.
    pub enctype: u32,
}

impl KeytabEntry {
    /// The principal in text, as in `nfs/host@REALM`.
    #[must_use]
    pub fn principal(&self) -> String {
        let escaped: Vec<String> = self.components.iter().map(|part| escape(part)).collect();
        format!("{}@{}", escaped.join("/"), escape(&self.realm))
    }

    /// True if it is for `service` at some host.
    #[must_use]
    pub fn is_of(&self, service: &str) -> bool {
        matches!(&*self.components, [first, _] if first == service)
    }
}

/// The defect of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeytabDefect {
    /// It does not begin with 05 02.
    Version,
    /// An entry reaches past the end of the file, or a part past the end of its entry.
    Cut,
    /// A principal has more components than any has.
    Components,
    /// It has more than [`KEYTAB_ENTRIES_MAX`] entries.
    Entries,
}

/// Reads a keytab's entries; deleted ones are left out.
///
/// # Errors
/// The first defect.
pub fn parse(file: &[u8]) -> Result<Vec<KeytabEntry>, KeytabDefect> {
    let mut rest = file.strip_prefix(&[5, 2]).ok_or(KeytabDefect::Version)?;
    let mut entries = Vec::new();
    // A length of 0 ends the list, and a negative one is that of a hole.
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = i32::from_be_bytes(*len);
        if len == 0 {
            return Ok(entries);
        }
        let size = usize::try_from(len.unsigned_abs()).map_err(|_| KeytabDefect::Cut)?;
        let (entry, after) = after.split_at_checked(size).ok_or(KeytabDefect::Cut)?;
        if len > 0 {
            if entries.len() == KEYTAB_ENTRIES_MAX {
                return Err(KeytabDefect::Entries);
            }
            entries.push(KeytabCursor(entry).entry()?);
        }
        rest = after;
    }
    if rest.is_empty() { Ok(entries) } else { Err(KeytabDefect::Cut) }
}

/// The rest of an entry.
struct KeytabCursor<'a>(&'a [u8]);

impl<'a> KeytabCursor<'a> {
    fn entry(mut self) -> Result<KeytabEntry, KeytabDefect> {
        let count = self.short()?;
        if count > COMPONENTS_MAX {
            return Err(KeytabDefect::Components);
        }
        let realm = self.text()?;
        let components = (0..count).map(|_| self.text()).collect::<Result<_, _>>()?;
        // Type of the name, and time at which the key was written.
        self.take::<8>()?;
        let [version] = *self.take()?;
        let enctype = self.short()?.into();
        let key_len = self.short()?.into();
        let after_key = self.0.get(key_len..).ok_or(KeytabDefect::Cut)?;
        // Newer writers repeat the version with 32 bits; 0 there is the older form's padding.
        let long = after_key.first_chunk().map(|octets| u32::from_be_bytes(*octets));
        let version = long.filter(|version| *version != 0).unwrap_or(version.into());
        Ok(KeytabEntry { components, realm, version, enctype })
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], KeytabDefect> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(KeytabDefect::Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn short(&mut self) -> Result<u16, KeytabDefect> {
        Ok(u16::from_be_bytes(*self.take()?))
    }

    fn text(&mut self) -> Result<String, KeytabDefect> {
        let len = self.short()?.into();
        let (text, rest) = self.0.split_at_checked(len).ok_or(KeytabDefect::Cut)?;
        self.0 = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// Escapes the characters that separate parts of a principal, and control characters.
fn escape(part: &str) -> String {
    part.chars().fold(String::new(), |mut text, c| {
        match c {
            '/' | '@' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
        text
    })
}

/// A keytab that cannot serve, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeytabProblem {
    path: PathBuf,
    service: String,
    cause: KeytabCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeytabCause {
    Missing,
    Unreadable(String),
    Defect(KeytabDefect),
    /// The principals that it has.
    NoService(Vec<String>),
    /// Encryption types of the service's keys.
    NoEnctype(Vec<u32>),
}

impl fmt::Display for KeytabProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, service) = (self.path.display(), &self.service);
        let add = format!("`kadmin ktadd -k {path} {service}/NAME`");
        match &self.cause {
            KeytabCause::Missing => write!(f, "keytab {path} is missing; fix: {add}"),
            KeytabCause::Unreadable(why) => write!(
                f,
                "keytab {path} cannot be read ({why}); fix: make it a file that this user owns, \
                 with mode 0600"
            ),
            KeytabCause::Defect(defect) => {
                let words = match defect {
                    KeytabDefect::Version => "it is no keytab of format 0x502",
                    KeytabDefect::Cut => "an entry is cut",
                    KeytabDefect::Components => "a principal has too many components",
                    KeytabDefect::Entries => "it has too many entries",
                };
                write!(f, "keytab {path} is damaged ({words}); fix: delete it, then {add}")
            }
            KeytabCause::NoService(others) if others.is_empty() => {
                write!(f, "keytab {path} has no principals; fix: {add}")
            }
            KeytabCause::NoService(others) => {
                let others = others.join(", ");
                write!(f, "keytab {path} has no {service}/ principal (it has {others}); fix: {add}")
            }
            KeytabCause::NoEnctype(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                let numbers = numbers.join(", ");
                write!(
                    f,
                    "keytab {path} has no AES key of {service}/ (encryption types {numbers}); \
                     fix: create keys of aes256-cts-hmac-sha384-192 for it, then {add}"
                )
            }
        }
    }
}

impl std::error::Error for KeytabProblem {}

/// The principals of a service in a keytab, each with the encryption types that are accepted.
pub type ServicePrincipals = BTreeMap<String, BTreeSet<u32>>;

/// Lists the principals of a service (`nfs`) in a keytab that have a key of an accepted type.
///
/// # Errors
/// If the file is missing, is unreadable by this user or damaged, has no such principal, or none
/// with an AES key.
pub fn inspect(path: &Path, service: &str) -> Result<ServicePrincipals, KeytabProblem> {
    let problem =
        |cause| KeytabProblem { path: path.to_owned(), service: service.to_owned(), cause };
    let file = read(path).map_err(|error| {
        problem(match error.kind() {
            io::ErrorKind::NotFound => KeytabCause::Missing,
            _ => KeytabCause::Unreadable(error.to_string()),
        })
    })?;
    let entries = parse(&file).map_err(|defect| problem(KeytabCause::Defect(defect)))?;
    let (ours, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.is_of(service));
    if ours.is_empty() {
        let others: BTreeSet<String> = others.iter().map(|entry| entry.principal()).collect();
        return Err(problem(KeytabCause::NoService(others.into_iter().collect())));
    }
    let mut found = ServicePrincipals::new();
    for entry in &ours {
        if Enctype::new(entry.enctype).is_some() {
            found.entry(entry.principal()).or_default().insert(entry.enctype);
        }
    }
    if found.is_empty() {
        let numbers: BTreeSet<u32> = ours.iter().map(|entry| entry.enctype).collect();
        return Err(problem(KeytabCause::NoEnctype(numbers.into_iter().collect())));
    }
    Ok(found)
}

/// The keytab that the library uses when none is given: the file that `KRB5_KTNAME` names, or
/// `/etc/krb5.keytab`. A `default_keytab_name` in krb5.conf is not read.
#[must_use]
pub fn default_path() -> PathBuf {
    named(env::var_os("KRB5_KTNAME").as_deref())
}

/// The file of a keytab's name, whose type may be in front of it.
fn named(name: Option<&OsStr>) -> PathBuf {
    let name = name.map_or(&b"/etc/krb5.keytab"[..], OsStr::as_bytes);
    let path = [&b"FILE:"[..], b"WRFILE:"].iter().find_map(|kind| name.strip_prefix(*kind));
    OsStr::from_bytes(path.unwrap_or(name)).into()
}

/// The content of a regular file of limited length, overwritten when it is dropped: it has keys.
fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // A FIFO would wait for a writer.
    let about = fs::metadata(path)?;
    if !about.is_file() || about.len() > KEYTAB_LEN_MAX {
        return Err(io::Error::other("not a regular file of at most 1 MiB"));
    }
    // Room for all of it: a vector that grows leaves copies.
    let mut content = Zeroizing::new(Vec::with_capacity(KEYTAB_LEN_MAX as usize));
    fs::File::open(path)?.take(KEYTAB_LEN_MAX).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests;
