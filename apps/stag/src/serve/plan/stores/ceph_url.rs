//! Exports on CephFS, as the command line names them:
//! `ceph:/PATH?conf=FILE&user=NAME&fs=NAME&node=NAME&snapshots=yes&inodes=N`, optionally with
//! `:ro`. Options belong to the mount, which all exports share, so each is given once.

use crate::{
    Error,
    serve::plan::{exports::Exported, options::ServeOptions},
    settings::{ExportEntry, Origins},
};
use stag_nfs_store::{
    ceph::{CephExportConfig, INODES},
    exports::security::SecurityFlavors,
};
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

/// Exports of one file system, and the client that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CephPlan {
    pub exports: Vec<CephExportConfig>,
    pub configuration: Option<PathBuf>,
    pub user: Option<String>,
    pub file_system: Option<String>,
    /// Name of this gateway among all clients of the cluster.
    pub node: String,
    pub snapshots: bool,
    pub inodes: usize,
}

impl CephPlan {
    /// The exports in the form of all stores.
    pub fn exported(&self) -> Vec<Exported> {
        let exported = |export: &CephExportConfig| {
            let mut exported = Exported::new(export.name.clone(), None, export.read_only);
            exported.rules.options.security = export.security;
            exported
        };
        self.exports.iter().map(exported).collect()
    }

    /// Gives exports without security flavors the usual ones.
    pub fn settle(&mut self, usual: Option<SecurityFlavors>) {
        for export in &mut self.exports {
            export.security = export.security.or(usual);
        }
    }
}

/// Plans exports on CephFS, if there are any.
pub fn of(
    arguments: &ServeOptions,
    entries: &[ExportEntry],
    origins: &Origins,
) -> Result<Option<CephPlan>, Error> {
    let mut all = arguments.directories.clone();
    all.extend(entries.iter().map(as_argument));
    if !all.iter().any(|argument| is_ceph(argument)) {
        return Ok(None);
    }
    let is_more = |entry: &&ExportEntry| {
        let is_usual = entry.rules.without_security().are_usual()
            && entry.rules.clients.is_empty()
            && entry.delegations.is_none();
        !is_usual || entry.name.is_some() || entry.is_slow || entry.is_mountpoint
    };
    if let Some(entry) = entries.iter().find(is_more) {
        return Err(Error::usage(format!(
            "{}: an export on CephFS has path, access and sec alone: leave the rest out",
            origins.at(entry.line)
        )));
    }
    if arguments.memory.is_some() {
        return Err(Error::usage(
            "--memory and CephFS cannot be served by one process: where libcephfs ends it, what \
             is in memory is lost; start a server for each",
        ));
    }
    if arguments.mode.is_some() {
        return Err(Error::usage(
            "--mode means nothing on CephFS, where callers always act as themselves: leave it out",
        ));
    }
    if !arguments.slow.is_empty() {
        return Err(Error::usage(
            "--slow means nothing on CephFS, all calls of which may wait: leave it out",
        ));
    }
    if arguments.name.is_some() && all.len() > 1 {
        return Err(Error::usage("--name is for a single export: leave it out"));
    }
    let mut plan = plan(&all, arguments.name.as_deref())?;
    let of_entries = plan.exports.iter_mut().skip(arguments.directories.len());
    for (export, entry) in of_entries.zip(entries) {
        export.security = entry.rules.options.security;
    }
    Ok(Some(plan))
}

/// An export of the file in the form of the command line.
fn as_argument(entry: &ExportEntry) -> OsString {
    let mut text = OsString::from(&entry.path);
    if entry.read_only {
        text.push(":ro");
    }
    text
}

/// Returns true if an argument names an export on CephFS.
fn is_ceph(argument: &OsStr) -> bool {
    argument.as_bytes().starts_with(b"ceph:")
}

/// Plans the exports of a command line, none of which is a directory of this host.
fn plan(arguments: &[impl AsRef<OsStr>], name: Option<&str>) -> Result<CephPlan, Error> {
    let mut plan = CephPlan {
        exports: Vec::new(),
        configuration: None,
        user: None,
        file_system: None,
        node: String::new(),
        snapshots: false,
        inodes: INODES,
    };
    let mut seen = Vec::new();
    for argument in arguments {
        let text = argument.as_ref().to_str().filter(|text| text.starts_with("ceph:"));
        let text = text.ok_or_else(|| {
            Error::usage(
                "directories of this host and of CephFS cannot be served by one process: start a \
                 server for each",
            )
        })?;
        add(&mut plan, text, name, &mut seen)?;
    }
    if plan.node.is_empty() {
        plan.node = machine()?;
    }
    Ok(plan)
}

fn add(
    plan: &mut CephPlan,
    text: &str,
    name: Option<&str>,
    seen: &mut Vec<String>,
) -> Result<(), Error> {
    let bad = |why: &str| Error::usage(format!("{text}: {why}"));
    let (text_only, read_only) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let rest = text_only.strip_prefix("ceph:").unwrap_or_default();
    let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        return Err(bad("write the directory from the root of the file system, ceph:/PATH"));
    }
    let last = path.split('/').rfind(|part| !part.is_empty());
    let name = match name.or(last) {
        Some(name) => name.trim_start_matches('/').to_owned(),
        None => return Err(bad("the root has no name: give one with --name")),
    };
    if plan.exports.iter().any(|export| export.name == name) {
        return Err(bad(&format!("another directory is exported as /{name} already")));
    }
    plan.exports.push(CephExportConfig { name, path: path.to_owned(), read_only, security: None });
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let Some((key, value)) = option.split_once('=').filter(|(_, value)| !value.is_empty())
        else {
            return Err(bad(&format!("{option} is no option: write NAME=VALUE")));
        };
        if seen.iter().any(|known| known == key) {
            return Err(bad(&format!("{key} is given twice, and all exports share one mount")));
        }
        seen.push(key.to_owned());
        match (key, value) {
            ("conf", file) => plan.configuration = Some(PathBuf::from(file)),
            ("user", user) => plan.user = Some(user.trim_start_matches("client.").to_owned()),
            ("fs", file_system) => plan.file_system = Some(file_system.to_owned()),
            ("node", node) => plan.node = node.to_owned(),
            ("snapshots", "yes") => plan.snapshots = true,
            ("snapshots", "no") => {}
            ("inodes", number) => {
                let number = number.parse().ok().filter(|number| *number > 0);
                plan.inodes = number.ok_or_else(|| bad("inodes is a number above 0"))?;
            }
            _ => {
                return Err(bad(&format!(
                    "{option} is not known; there are conf, user, fs, node, snapshots=yes and \
                     inodes"
                )));
            }
        }
    }
    Ok(())
}

/// The name of this machine, which no other has.
fn machine() -> Result<String, Error> {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    match id.trim() {
        "" => Err(Error::usage(
            "this host has no /etc/machine-id: name this gateway with node=NAME, as no other \
             client of the cluster",
        )),
        id => Ok(id.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_and_the_options_of_their_mount_are_read() {
        let first = "ceph:/a/b?conf=/etc/c.conf&user=client.nfs&fs=fs&node=one&inodes=7";
        let read = plan(&[first, "ceph:/c?snapshots=yes:ro"], None).unwrap();
        let export = |name: &str, path: &str, read_only| CephExportConfig {
            name: name.to_owned(),
            path: path.to_owned(),
            read_only,
            security: None,
        };
        let expected = CephPlan {
            exports: vec![export("b", "/a/b", false), export("c", "/c", true)],
            configuration: Some("/etc/c.conf".into()),
            user: Some("nfs".to_owned()),
            file_system: Some("fs".to_owned()),
            node: "one".to_owned(),
            snapshots: true,
            inodes: 7,
        };
        assert_eq!(read, expected);
        let named = plan(&["ceph:/?node=x"], Some("/all")).unwrap();
        assert_eq!(named.exports, [export("all", "/", false)]);
    }

    #[test]
    fn what_cannot_be_read_is_a_sentence() {
        for (arguments, part) in [
            (&["ceph:a"][..], "from the root"),
            (&["ceph:/"], "--name"),
            (&["ceph:/a?node=x&what=1"], "what=1 is not known"),
            (&["ceph:/a?node"], "NAME=VALUE"),
            (&["ceph:/a?inodes=0"], "above 0"),
            (&["ceph:/a?node=x", "ceph:/b?node=y"], "given twice"),
            (&["ceph:/a?node=x", "ceph:/b/a"], "exported as /a"),
            (&["ceph:/a?node=x", "/srv"], "start a server for each"),
        ] {
            let error = plan(arguments, None).unwrap_err().to_string();
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
