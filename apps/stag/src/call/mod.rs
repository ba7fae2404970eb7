//! `stag call`: NFS client for hosts that cannot mount.

mod file_end;
mod mover;
pub mod options;
mod parallel;
mod partial_file;
mod ports;
mod remote;
mod show;
mod streams;
mod tree;
mod url;

use crate::{
    Error,
    caller::{aside, say},
    progress::TransferProgress,
};
use file_end::TreeOutcome;
use mover::RemotePlace;
use options::{CallOptions, CallWhat, TransferOptions};
use remote::Object;
use serde_json::{Value, json};
use stag_client::Error as NfsError;
use stag_engine::{Health, OptionFault};
use stag_operate::quote;
use stag_protocol::{
    nfs::v3::{FileKind, Status},
    rpcrdma::option::NoOption,
};
use std::{
    io::{self, IsTerminal as _},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use tree::{Tree, below};

pub use remote::{
    Remote, cannot_connect, client_of, connect, failed, meet_mount, shown, split, unheard,
};
pub use url::Url;

/// Deepest nesting of directories to remove: more is an endless tree.
const DEPTH_MAX: usize = 128;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Output of a command: on standard output, as text or as JSON; and on standard error.
struct Said {
    text: Vec<u8>,
    value: Value,
    aside: String,
    /// Sentence about an additional failure, if there was one.
    failure: Option<String>,
}

impl Said {
    fn new(text: String, value: Value) -> Self {
        Self { text: text.into_bytes(), value, aside: String::new(), failure: None }
    }
}

/// Calls the server.
pub fn run(arguments: &CallOptions) -> Result<(), Error> {
    let url = Url::parse(&arguments.url)?.with_sec(arguments.sec)?;
    let is_to_output = match &arguments.what {
        CallWhat::Get { to, .. } => to.as_deref() == Some(Path::new("-")),
        what => matches!(what, CallWhat::Cat),
    };
    if arguments.json && is_to_output {
        return Err(Error::usage("the file itself goes to standard output: leave --json out"));
    }
    let said = match &arguments.what {
        CallWhat::Null { count } => null(&url, arguments, *count)?,
        CallWhat::Health => health(&url, arguments)?,
        CallWhat::Mount if url.path == b"/" => exports(&url, arguments)?,
        CallWhat::Ls { .. } if url.path == b"/" && names_none(&url, arguments)? => {
            list_exports(&url, arguments)?
        }
        what => {
            let mut remote = Remote::mount(&url, arguments)?;
            let said = mounted(&mut remote, what)?;
            remote.client.disconnect();
            said
        }
    };
    if arguments.json {
        let text = serde_json::to_string_pretty(&said.value);
        let text = text.map_err(|error| Error::failure(error.to_string()))?;
        say(quote::json(&text) + "\n");
    } else {
        // Lines of checksums have a form of their own, which programs read.
        if io::stdout().is_terminal() {
            say(quote::lines(&String::from_utf8_lossy(&said.text)));
        } else {
            say(&said.text);
        }
        aside(quote::lines(&said.aside));
    }
    said.failure.map_or(Ok(()), |sentence| Err(Error::Failure(sentence)))
}

fn mounted(remote: &mut Remote, what: &CallWhat) -> Result<Said, Error> {
    match what {
        CallWhat::Null { .. } | CallWhat::Health => unreachable!("they need no mount"),
        CallWhat::Mount => Ok(mount(remote)),
        CallWhat::Ls { long } => list(remote, *long),
        CallWhat::Cat => streams::cat(remote),
        CallWhat::Stat => stat(remote),
        CallWhat::Df => df(remote),
        CallWhat::Get { way, to } => match to.as_deref() {
            Some(to) if to == Path::new("-") => streams::get(remote, way),
            to => get(remote, way, to.unwrap_or(Path::new("."))),
        },
        CallWhat::Put { way, from } => match from.as_slice() {
            [from] if from == Path::new("-") => streams::put(remote, way),
            from => put(remote, way, from),
        },
        CallWhat::Rm { recursive } => rm(remote, *recursive),
        CallWhat::Mkdir { parents } => mkdir(remote, *parents),
    }
}

fn null(url: &Url, arguments: &CallOptions, count: u32) -> Result<Said, Error> {
    let mut client = Remote::connect(url, arguments)?;
    let mut micros = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        client.null().map_err(unheard("NULL"))?;
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let version = client.version();
    client.disconnect();
    let by =
        version.map_or_else(String::new, |version| format!(" (RPC-over-RDMA version {version})"));
    let text = micros
        .iter()
        .map(|micros| format!("NULL answered by {url} in {micros:.1} us{by}\n"))
        .collect();
    let value =
        json!({ "server": url.to_string(), "rpcrdma_version": version, "round_trips_us": micros });
    Ok(Said::new(text, value))
}

fn health(url: &Url, arguments: &CallOptions) -> Result<Said, Error> {
    let mut client = Remote::connect(url, arguments)?;
    // A version is settled by the first call.
    client.null().map_err(failed("NULL"))?;
    let health = client.health().map_err(|error| match error {
        NfsError::Health(OptionFault::Option(NoOption::Version)) => Error::failure(format!(
            "{url} was called by version 1, which has no such question: give --rdma-version 1-2, \
             to a server that speaks version 2"
        )),
        error => Error::failure(format!("{url} does not say how it is: {error}")),
    })?;
    client.disconnect();
    let Health { credits_granted, credits_in_use } = health;
    let text = format!("{url} answers: {credits_in_use} of our {credits_granted} credits in use\n");
    let value = json!({
        "server": url.to_string(),
        "credits_granted": credits_granted,
        "credits_in_use": credits_in_use,
    });
    Ok(Said::new(text, value))
}

/// Lists the exports of a server whose URL names none; an export `/` is mounted.
fn exports(url: &Url, arguments: &CallOptions) -> Result<Said, Error> {
    let exports = Remote::exports(url, arguments)?;
    if !remote::is_none(url, &exports) {
        let mut remote = Remote::mount(url, arguments)?;
        let said = mount(&remote);
        remote.client.disconnect();
        return Ok(said);
    }
    let exports: Vec<_> = exports.iter().map(|export| shown(export)).collect();
    let text = exports.iter().map(|export| format!("EXPORT {export}\n")).collect();
    Ok(Said::new(text, json!({ "export": null, "handle": null, "exports": exports })))
}

/// Returns true if the URL names no export, and the server has none that is called `/`.
fn names_none(url: &Url, arguments: &CallOptions) -> Result<bool, Error> {
    Ok(remote::is_none(url, &Remote::exports(url, arguments)?))
}

/// Lists the exports of a server as `ls` lists names.
fn list_exports(url: &Url, arguments: &CallOptions) -> Result<Said, Error> {
    let exports = Remote::exports(url, arguments)?;
    let text = exports.iter().map(|export| shown(export) + "\n").collect();
    let values = exports.iter().map(
        |export| json!({ "name": shown(export), "kind": "export", "url": url.of_path(export) }),
    );
    Ok(Said::new(text, values.collect()))
}

fn mount(remote: &Remote) -> Said {
    let (export, handle) = (shown(&remote.export), show::hex(remote.root.octets()));
    let exports: Vec<_> = remote.exports.iter().map(|export| shown(export)).collect();
    let mut text = format!("MNT {export}\nhandle {handle}\n");
    exports.iter().for_each(|export| text.push_str(&format!("EXPORT {export}\n")));
    Said::new(text, json!({ "export": export, "handle": handle, "exports": exports }))
}

/// Reads the target of a symbolic link; none for any other object.
fn link(remote: &mut Remote, object: &Object) -> Result<Option<Vec<u8>>, Error> {
    if object.attributes.kind != FileKind::Symlink {
        return Ok(None);
    }
    let path = remote.client.readlink(object.handle);
    path.map(Some).map_err(failed(format_args!("READLINK of {}", shown(&object.name))))
}

fn list(remote: &mut Remote, long: bool) -> Result<Said, Error> {
    let (target, at) = (remote.target()?, remote.path());
    let is_within = target.is_directory();
    let entries = if is_within { remote.list(&target)? } else { vec![target] };
    let (mut text, mut values) = (String::new(), Vec::new());
    for entry in &entries {
        let path = if long { link(remote, entry)? } else { None };
        match long {
            true => text.push_str(&show::line(entry, path.as_deref())),
            false => text.push_str(&(shown(&entry.name) + "\n")),
        }
        let url =
            if is_within { remote.url_of(&below(&at, &entry.name)) } else { remote.url_of(&at) };
        values.push(show::object(entry, path.as_deref(), &url));
    }
    Ok(Said::new(text, json!(values)))
}

fn stat(remote: &mut Remote) -> Result<Said, Error> {
    let target = remote.target()?;
    let (path, url) = (link(remote, &target)?, remote.url_of(&remote.path()));
    let value = show::object(&target, path.as_deref(), &url);
    Ok(Said::new(show::stat(&target, path.as_deref()), value))
}

fn df(remote: &mut Remote) -> Result<Said, Error> {
    let target = remote.target()?;
    let about = remote.client.fsstat(target.handle).map_err(failed("FSSTAT"))?;
    let used = |total: u64, free: u64| total.saturating_sub(free);
    let text = format!(
        "{:<7} {:>20} {:>20} {:>20}\n{:<7} {:>20} {:>20} {:>20}\n{:<7} {:>20} {:>20} {:>20}\n",
        "",
        "total",
        "used",
        "available",
        "octets",
        about.total_octets,
        used(about.total_octets, about.free_octets),
        about.available_octets,
        "files",
        about.total_files,
        used(about.total_files, about.free_files),
        about.available_files
    );
    let value = json!({
        "total_octets": about.total_octets,
        "free_octets": about.free_octets,
        "available_octets": about.available_octets,
        "total_files": about.total_files,
        "free_files": about.free_files,
        "available_files": about.available_files,
    });
    Ok(Said::new(text, value))
}

fn get(remote: &mut Remote, way: &TransferOptions, to: &Path) -> Result<Said, Error> {
    let (target, at) = (remote.target()?, remote.path());
    let progress = Arc::new(TransferProgress::new());
    let mut tree = Tree::new(remote, way, &progress)?;
    tree.get(&target, &at, to)?;
    let outcome = tree.finish();
    moved(remote, &outcome)
}

fn put(remote: &mut Remote, way: &TransferOptions, from: &[PathBuf]) -> Result<Said, Error> {
    let (found, directory, name) = remote.target_or_place()?;
    let into = found.filter(Object::is_directory);
    if from.len() > 1 && into.is_none() {
        return Err(Error::usage(format!(
            "{} is no directory that several files could be put into",
            shown(&name)
        )));
    }
    let (at, progress) = (remote.path(), Arc::new(TransferProgress::new()));
    let mut tree = Tree::new(remote, way, &progress)?;
    for from in from {
        match &into {
            Some(into) => {
                let last = std::path::absolute(from)
                    .ok()
                    .and_then(|path| Some(path.file_name()?.to_owned()));
                let last = last.ok_or_else(|| {
                    Error::usage(format!(
                        "{} has no name of its own: give its directory",
                        from.display()
                    ))
                })?;
                let (name, at) = (last.as_bytes(), below(&at, last.as_bytes()));
                tree.put(from, RemotePlace { directory: into.handle, name, at: &at })?;
            }
            None => {
                let (directory, name) = (directory.handle, name.as_slice());
                tree.put(from, RemotePlace { directory, name, at: &at })?;
            }
        }
    }
    let outcome = tree.finish();
    moved(remote, &outcome)
}

/// Output about a tree that was moved. For a single file that failed there is only the error.
fn moved(remote: &Remote, outcome: &TreeOutcome) -> Result<Said, Error> {
    let failure = outcome.failure();
    if outcome.is_nothing()
        && let Some(sentence) = failure
    {
        return Err(Error::Failure(sentence));
    }
    let (text, aside) = outcome.text();
    Ok(Said { text, value: outcome.object(|path| remote.url_of(path)), aside, failure })
}

fn rm(remote: &mut Remote, recursive: bool) -> Result<Said, Error> {
    let target = remote.target()?;
    let removed = remove(remote, &target, recursive, 0)?;
    Ok(Said::new(String::new(), json!({ "removed": removed })))
}

/// Removes an object and its content. Returns the number of removed objects.
fn remove(
    remote: &mut Remote,
    object: &Object,
    recursive: bool,
    depth: usize,
) -> Result<u64, Error> {
    let name = shown(&object.name);
    let parent =
        object.parent.ok_or_else(|| Error::usage("the root of an export cannot be removed"))?;
    if !object.is_directory() {
        remote
            .client
            .remove(parent, &object.name)
            .map_err(failed(format_args!("REMOVE of {name}")))?;
        return Ok(1);
    }
    if !recursive {
        return Err(Error::usage(format!("{name} is a directory: add -r")));
    }
    if depth > DEPTH_MAX {
        return Err(Error::failure(format!("{name} lies more than {DEPTH_MAX} directories deep")));
    }
    let mut removed = 1;
    for entry in remote.list(object)? {
        removed += remove(remote, &entry, recursive, depth + 1)?;
    }
    remote.client.rmdir(parent, &object.name).map_err(failed(format_args!("RMDIR of {name}")))?;
    Ok(removed)
}

fn mkdir(remote: &mut Remote, parents: bool) -> Result<Said, Error> {
    let names = remote.below.clone();
    let above = names.len().saturating_sub(1);
    let mut directory = if parents {
        remote.walk(&[])?
    } else {
        remote.walk(names.get(..above).unwrap_or_default())?
    };
    let mut made = 0;
    for name in names.get(if parents { 0 } else { above }..).unwrap_or_default() {
        match remote.client.mkdir(directory.handle, name, 0o777) {
            Ok(_) => made += 1,
            Err(stag_client::Error::Nfs(Status::Exist)) if parents => {}
            Err(error) => return Err(failed(format_args!("MKDIR {}", shown(name)))(error)),
        }
        let found = remote.find(directory.handle, name)?.filter(Object::is_directory);
        directory =
            found.ok_or_else(|| Error::failure(format!("{} is no directory", shown(name))))?;
    }
    if names.is_empty() && !parents {
        return Err(Error::usage("the root of an export is there already"));
    }
    Ok(Said::new(
        String::new(),
        json!({ "made": made, "handle": show::hex(directory.handle.octets()) }),
    ))
}
