//! Tables of a file that have no flag: exports with their clients, and listeners with cores.

use super::{
    file::line_of,
    value::{self, FileFault, Placed},
};
use crate::args::{cidr, size};
use stag_nfs_store::{
    Security, TRANSFER_MAX,
    exports::{
        client_rules::{ClientOptions, ClientRule, ExportRules, Squash},
        security::SecurityFlavors,
    },
};
use std::borrow::Cow;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Octets of the least READ or WRITE that an export can ask clients to make.
const TRANSFER_MIN: usize = 4_096;

/// Keys of one listener.
pub const LISTEN_KEYS: [&str; 3] = ["url", "cores", "unprotected"];
/// Keys of one export.
pub const EXPORT_KEYS: [&str; 14] = [
    "path",
    "name",
    "access",
    "clients",
    "squash",
    "anonuid",
    "anongid",
    "insecure",
    "sec",
    "slow",
    "mountpoint",
    "read-max",
    "write-max",
    "delegations",
];
/// Keys of a rule for clients of one export.
pub const CLIENT_KEYS: [&str; 7] =
    ["networks", "access", "squash", "anonuid", "anongid", "insecure", "sec"];

/// A listener of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenEntry {
    pub url: String,
    /// Cores of its scheme, if it says how many.
    pub cores: Option<u16>,
    /// Other hosts may connect there without TLS although it is required.
    pub is_unprotected: bool,
    pub line: usize,
}

/// Delegations that version 4 gives of the files of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationRule {
    /// None.
    None,
    /// To read: programs of the host change the files, too, and are watched.
    Watched,
    /// Of all kinds: only this server changes the files.
    Exclusive,
}

impl DelegationRule {
    const ALL: [Self; 3] = [Self::None, Self::Watched, Self::Exclusive];

    /// The rule that a word names.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.word() == word)
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Watched => "watched",
            Self::Exclusive => "exclusive",
        }
    }
}

/// The delegations that the file sets for an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnDelegations {
    pub rule: DelegationRule,
    pub line: usize,
}

/// The lines of a rule for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientPlace {
    /// That of the network.
    pub line: usize,
    /// Keys of its table, with their lines.
    pub keys: Vec<(String, usize)>,
}

/// An export of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportEntry {
    pub line: usize,
    /// A directory, or `ceph:/PATH`.
    pub path: String,
    /// None: the last component of the path.
    pub name: Option<String>,
    pub read_only: bool,
    /// All its calls are made by threads that may wait.
    pub is_slow: bool,
    /// It is refused while nothing is mounted at its path.
    pub is_mountpoint: bool,
    pub rules: ExportRules,
    pub delegations: Option<OwnDelegations>,
    /// Its keys, with their lines.
    pub keys: Vec<(String, usize)>,
    /// The lines of `rules.clients`, in that order.
    pub client_places: Vec<ClientPlace>,
}

/// Reads a table of `[[listen]]`.
pub(super) fn listener(value: &Placed<'_>, line: usize) -> Result<ListenEntry, FileFault> {
    let table = value::table(value, "listen")?;
    let (mut url, mut cores, mut is_unprotected) = (None, None, false);
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "url" => url = Some(value::text(value, "url")?.to_owned()),
            "cores" => {
                let count = value::number(value, "cores")?;
                let count = u16::try_from(count).ok().filter(|count| (1..=1_024).contains(count));
                let fault = || FileFault::new(value.span(), "cores has to be from 1 to 1024");
                cores = Some(count.ok_or_else(fault)?);
            }
            "unprotected" => is_unprotected = value::boolean(value, "unprotected")?,
            other => return Err(stranger(other, key.span(), &LISTEN_KEYS)),
        }
    }
    let url = url.ok_or_else(|| FileFault::new(value.span(), "this listener has no url"))?;
    Ok(ListenEntry { url, cores, is_unprotected, line })
}

/// Reads a table of `[[export]]` in the file `text`.
pub(super) fn export(value: &Placed<'_>, text: &str) -> Result<ExportEntry, FileFault> {
    let table = value::table(value, "export")?;
    let mut export = ExportEntry { line: line_of(text, &value.span()), ..ExportEntry::default() };
    for (key, value) in table {
        let line = line_of(text, &key.span());
        export.keys.push((key.get_ref().to_string(), line));
        match key.get_ref().as_ref() {
            "path" => export.path = value::text(value, "path")?.to_owned(),
            "name" => export.name = Some(value::text(value, "name")?.to_owned()),
            "access" => export.read_only = is_read_only(value)?,
            "clients" => {
                (export.rules.clients, export.client_places) = clients(value, text)?;
            }
            "delegations" => {
                let rule = delegation_rule(value)?;
                export.delegations = Some(OwnDelegations { rule, line });
            }
            "slow" => export.is_slow = value::boolean(value, "slow")?,
            "mountpoint" => export.is_mountpoint = value::boolean(value, "mountpoint")?,
            "read-max" => export.rules.read_max = Some(transfer(value, "read-max")?),
            "write-max" => export.rules.write_max = Some(transfer(value, "write-max")?),
            other => {
                let is_known = option(&mut export.rules.options, other, value)?;
                if !is_known {
                    return Err(stranger(other, key.span(), &EXPORT_KEYS));
                }
            }
        }
    }
    if export.path.is_empty() {
        return Err(FileFault::new(value.span(), "this export has no path"));
    }
    Ok(export)
}

/// Reads clients: networks, and tables of networks with options.
fn clients(
    value: &Placed<'_>,
    text: &str,
) -> Result<(Vec<ClientRule>, Vec<ClientPlace>), FileFault> {
    let (mut rules, mut places): (Vec<ClientRule>, Vec<ClientPlace>) = Default::default();
    let mut add = |value: &Placed<'_>, options, keys| {
        let parsed = cidr::parse(value::text(value, "a network")?, "clients");
        let network = parsed.map_err(|why| FileFault::new(value.span(), why))?;
        if rules.iter().any(|rule| rule.network == network) {
            let why = format!("{network} is given twice among the clients of this export");
            return Err(FileFault::new(value.span(), why));
        }
        rules.push(ClientRule { network, options });
        places.push(ClientPlace { line: line_of(text, &value.span()), keys });
        Ok(())
    };
    for item in value::list(value, "clients")? {
        match item.get_ref() {
            DeValue::Table(table) => {
                let options = client_options(table)?;
                let line = |key: &Spanned<Cow<'_, str>>| line_of(text, &key.span());
                let keys = table.keys().map(|key| (key.get_ref().to_string(), line(key)));
                let keys: Vec<_> = keys.collect();
                let networks = table.iter().find(|(key, _)| key.get_ref() == "networks");
                let (_, networks) = networks
                    .ok_or_else(|| FileFault::new(item.span(), "these clients have no networks"))?;
                for network in value::list(networks, "networks")? {
                    add(network, options, keys.clone())?;
                }
            }
            _ => add(item, ClientOptions::default(), Vec::new())?,
        }
    }
    if rules.is_empty() {
        let why = "an empty list admits nobody: leave clients out to admit whoever may connect";
        return Err(FileFault::new(value.span(), why));
    }
    Ok((rules, places))
}

fn client_options(table: &DeTable<'_>) -> Result<ClientOptions, FileFault> {
    let mut options = ClientOptions::default();
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "networks" => {}
            "access" => options.read_only = Some(is_read_only(value)?),
            other => {
                if !option(&mut options, other, value)? {
                    return Err(stranger(other, key.span(), &CLIENT_KEYS));
                }
            }
        }
    }
    Ok(options)
}

/// Reads an option that exports and their clients have; false for any other key.
fn option(options: &mut ClientOptions, key: &str, value: &Placed<'_>) -> Result<bool, FileFault> {
    match key {
        "squash" => options.squash = Some(squash(value)?),
        "anonuid" => options.anon_uid = Some(id(value, key)?),
        "anongid" => options.anon_gid = Some(id(value, key)?),
        "insecure" => options.insecure = Some(value::boolean(value, key)?),
        "sec" => options.security = Some(flavors(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn id(value: &Placed<'_>, key: &str) -> Result<u32, FileFault> {
    let fault = || FileFault::new(value.span(), format!("{key}: {} is nobody's number", u32::MAX));
    Some(value::number(value, key)?).filter(|id| *id != u32::MAX).ok_or_else(fault)
}

fn squash(value: &Placed<'_>) -> Result<Squash, FileFault> {
    // As the flag has it: of the file, where a network has a squash of its own.
    const BY_NETWORK: &str = "; that of a network stands with it: clients = [{ networks = \
                              [\"10.1.0.0/16\"], squash = \"none\" }]";
    if value.get_ref().as_array().is_some() {
        let why = format!("write \"root\", \"none\" or \"all\"{BY_NETWORK}");
        return Err(FileFault::new(value.span(), why));
    }
    match value::text(value, "squash")? {
        "root" => Ok(Squash::Root),
        "none" => Ok(Squash::None),
        "all" => Ok(Squash::All),
        other => {
            let by_network = if other.contains('=') { BY_NETWORK } else { "" };
            let why =
                format!("write \"root\", \"none\" or \"all\" instead of {other:?}{by_network}");
            Err(FileFault::new(value.span(), why))
        }
    }
}

/// Security flavors, the preferred one first.
fn flavors(value: &Placed<'_>) -> Result<SecurityFlavors, FileFault> {
    let mut list = Vec::new();
    for item in value::list(value, "sec")? {
        let word = value::text(item, "a security flavor")?;
        let flavor = Security::of_word(word).ok_or_else(|| {
            let why =
                format!("write \"krb5p\", \"krb5i\", \"krb5\" or \"sys\" instead of {word:?}");
            FileFault::new(item.span(), why)
        })?;
        list.push(flavor);
    }
    let flavors = SecurityFlavors::of(&list).map_err(|twice| {
        FileFault::new(value.span(), format!("sec has {:?} twice: leave one out", twice.word()))
    })?;
    flavors.ok_or_else(|| {
        let why = "an empty list accepts no call: leave sec out to accept sys, or name flavors";
        FileFault::new(value.span(), why)
    })
}

fn delegation_rule(value: &Placed<'_>) -> Result<DelegationRule, FileFault> {
    let word = value::text(value, "delegations")?;
    DelegationRule::of(word).ok_or_else(|| {
        let why = format!("write \"exclusive\", \"watched\" or \"none\" instead of {word:?}");
        FileFault::new(value.span(), why)
    })
}

fn is_read_only(value: &Placed<'_>) -> Result<bool, FileFault> {
    match value::text(value, "access")? {
        "ro" => Ok(true),
        "rw" => Ok(false),
        other => Err(FileFault::new(
            value.span(),
            format!("write \"ro\" or \"rw\" instead of {other:?}"),
        )),
    }
}

/// Octets of the largest READ or WRITE: a power of two, as clients round to one.
fn transfer(value: &Placed<'_>, key: &str) -> Result<u32, FileFault> {
    let fault = |why: String| FileFault::new(value.span(), format!("{key}: {why}"));
    let text = value::word(value.get_ref()).unwrap_or_default();
    let octets = size::octets(&text).map_err(fault)?;
    let fits = (TRANSFER_MIN..=TRANSFER_MAX as usize).contains(&octets) && octets.is_power_of_two();
    if !fits {
        let why = format!("{text} has to be a power of two from 4K to {}K", TRANSFER_MAX >> 10);
        return Err(fault(why));
    }
    Ok(u32::try_from(octets).unwrap_or(TRANSFER_MAX))
}

fn stranger(key: &str, span: std::ops::Range<usize>, known: &[&str]) -> FileFault {
    let known: Vec<_> = known.iter().map(|key| (*key).to_owned()).collect();
    FileFault::new(span, value::unknown(key, &known))
}
