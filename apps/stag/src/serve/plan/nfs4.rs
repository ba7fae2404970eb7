//! Versions of NFS that a server serves.

use super::{exports::Exported, options::ServeOptions, stores::PlannedStore};
use crate::{
    Error,
    settings::{DelegationRule, Origins, OwnDelegations},
};
use std::{collections::BTreeMap, path::Path};

/// Versions of NFS that a server is to serve.
#[derive(Clone, Debug)]
pub struct NfsPlan {
    /// Version 3.
    pub three: bool,
    /// Versions 4.1 and 4.2: the seconds of a lease.
    pub four: Option<u16>,
    /// Exports of whose files version 4 gives delegations.
    pub delegations: Delegations,
}

impl NfsPlan {
    /// The requested versions.
    ///
    /// # Errors
    /// When version 4 is requested and cannot be served.
    pub fn new(
        arguments: &ServeOptions,
        exports: &[Exported],
        origins: &Origins,
        store: &dyn PlannedStore,
    ) -> Result<Self, Error> {
        let asked = &arguments.nfs;
        let three = asked.contains(&3);
        if !asked.contains(&4) {
            if !arguments.delegations.is_empty() || exports.iter().any(|it| own(it).is_some()) {
                return Err(Error::usage(
                    "--delegations are of version 4: leave --nfs 3 out, or write --nfs 3,4",
                ));
            }
            return Ok(Self { three, four: None, delegations: Delegations::default() });
        }
        check_paths(exports)?;
        let delegations = Delegations::new(&arguments.delegations, exports, origins, store)?;
        Ok(Self { three, four: Some(arguments.lease), delegations })
    }

    /// A sentence about version 4 at a gateway whose clients may move to another one.
    pub fn notice(&self, store: &dyn PlannedStore) -> Option<String> {
        (self.four.is_some() && store.cluster().is_some()).then(|| {
            "version 4 with --cluster: the gateways do not share what clients have open and \
             locked. A client that moves to another gateway loses its locks, and its programs get \
             EIO for the files that they had open; clients that move mount by version 3 \
             ('stag help cluster')"
                .to_owned()
        })
    }
}

/// Refuses an export whose name is beneath that of another one: version 4 would look it up in the
/// files of the other, where no path leads to it.
fn check_paths(exports: &[Exported]) -> Result<(), Error> {
    for Exported { name, .. } in exports {
        let lies_in = |other: &&Exported| {
            other.name != *name && Path::new(name).starts_with(Path::new(&other.name))
        };
        if let Some(other) = exports.iter().find(lies_in) {
            return Err(Error::usage(format!(
                "the name /{name} lies beneath that of the export /{}, through whose files \
                 version 4 would go to it; give one of them another name, or serve version 3 alone \
                 (--nfs 3)",
                other.name
            )));
        }
    }
    Ok(())
}

/// The delegations that an export of the file has by a key of its own.
fn own(export: &Exported) -> Option<OwnDelegations> {
    export.entry.and_then(|entry| entry.delegations)
}

/// Exports whose files version 4 delegates, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delegations {
    /// Exports that only this server changes.
    pub exclusive: Vec<String>,
    /// Watched exports, which programs of the host change, too.
    pub watched: Vec<String>,
}

impl Delegations {
    /// The exports by `rules` of `--delegations`, and by keys of theirs.
    fn new(
        rules: &[String],
        exports: &[Exported],
        origins: &Origins,
        store: &dyn PlannedStore,
    ) -> Result<Self, Error> {
        let mut all: BTreeMap<&str, (DelegationRule, String)> = exports
            .iter()
            .filter_map(|it| own(it).map(|own| (it, own)))
            .map(|(it, own)| (it.name.as_str(), (own.rule, origins.at(own.line).to_string())))
            .collect();
        for rule in rules {
            let wrong = |why: &str| Err(Error::usage(format!("--delegations {rule}: {why}")));
            let Some((name, word)) = rule.rsplit_once('=') else {
                return wrong("write NAME=exclusive, NAME=watched or NAME=none");
            };
            let Some(export) = exports.iter().find(|export| export.name == name) else {
                return wrong("no export has that name");
            };
            let Some(asked) = DelegationRule::of(word) else {
                return wrong("write exclusive, watched or none behind the name");
            };
            if let Some(own) = own(export).filter(|own| own.rule != asked) {
                return wrong(&format!(
                    "the export says otherwise at {}: leave one of them out",
                    origins.at(own.line)
                ));
            }
            all.entry(&export.name).or_insert((asked, format!("--delegations {rule}")));
        }
        for (name, (rule, place)) in &all {
            if *rule == DelegationRule::Watched
                && let Some(why) = store.not_watched(exports.iter().find(|it| it.name == *name))
            {
                return Err(Error::usage(format!("{place}: {why}")));
            }
        }
        let with = |asked| {
            let those = all.iter().filter(move |(_, (rule, _))| *rule == asked);
            those.map(|(name, _)| (*name).to_owned()).collect()
        };
        let (exclusive, watched) = (with(DelegationRule::Exclusive), with(DelegationRule::Watched));
        Ok(Self { exclusive, watched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_name_beneath_that_of_another_export_is_refused_in_any_order() {
        let exported =
            |name: &&str| Exported::new((*name).to_owned(), Some(PathBuf::from("/x")), false);
        let exports = |names: &[&str]| names.iter().map(exported).collect::<Vec<_>>();
        assert!(check_paths(&exports(&["a/b", "a/c", "ab", "b"])).is_ok());
        for names in [["a/b/c", "a"], ["a", "a/b/c"]] {
            let sentence = check_paths(&exports(&names)).unwrap_err().to_string();
            assert!(
                sentence.contains("/a/b/c lies beneath") && sentence.contains("/a,"),
                "{sentence}"
            );
        }
    }
}
