//! A mounted server: path lookup, and errors that name the attempted operation.

use super::options::CallOptions;
use super::{ports, url::Url};
use crate::{Error, caller, ticket, tls::explained};
use stag_client::{DirEntry, NfsClient, transfer::TransferFlow};
use stag_engine::{CallFault, tls::ClientTls};
use stag_operate::quote;
use stag_protocol::{
    nfs::{
        v3::{Attributes, FileHandle, FileKind, Status},
        v4::Status4,
    },
    rpc::Accepted,
    rpcrdma::Versions,
};
use stag_verbs::{Cause, FabricFault};
use std::{fmt::Display, sync::Arc, time::Duration};

/// A server that is called.
pub struct Remote {
    /// Calls it.
    pub client: NfsClient,
    /// Export that was mounted.
    pub export: Vec<u8>,
    /// Its root.
    pub root: FileHandle,
    /// All exports, if the server says which.
    pub exports: Vec<Vec<u8>>,
    /// The path below the export, by component.
    pub below: Vec<Vec<u8>>,
    plan: RemotePlan,
}

/// Everything that a further connection to a mounted server needs.
#[derive(Clone, Debug)]
pub struct RemotePlan {
    /// The server and the path on it.
    pub url: Url,
    root: FileHandle,
    depth: usize,
    timeout: Duration,
    versions: Versions,
    tls: Option<Arc<ClientTls>>,
}

impl RemotePlan {
    /// The plan, but for the root that MOUNT gives.
    fn below(
        url: &Url,
        depth: usize,
        timeout: Duration,
        versions: Versions,
        tls: Option<&Arc<ClientTls>>,
    ) -> impl FnOnce(FileHandle) -> Self {
        let (url, tls) = (url.clone(), tls.cloned());
        move |root| Self { url, root, depth, timeout, versions, tls }
    }

    /// One more connection to the server, which is not asked to mount again.
    pub fn connect(&self) -> Result<Remote, Error> {
        let Self { url, depth, timeout, versions, .. } = self;
        let tls = self.tls.as_ref();
        let mut client = client_of(url, *depth, *timeout, *versions, tls)?;
        explained(tls, connect(&mut client, &self.url))?;
        let (export, exports, below) = Default::default();
        Ok(Remote { client, export, root: self.root, exports, below, plan: self.clone() })
    }
}

/// Something on the server.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its last name; empty for the root of the export.
    pub name: Vec<u8>,
    /// The directory that contains the name; none for the root.
    pub parent: Option<FileHandle>,
    /// Its handle.
    pub handle: FileHandle,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Object {
    /// Returns true if the object is a directory.
    pub fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }
}

impl Remote {
    /// Connects to the server without mounting anything.
    pub fn connect(url: &Url, arguments: &CallOptions) -> Result<NfsClient, Error> {
        let timeout = Duration::from_secs(arguments.timeout.into());
        let tls = arguments.tls.open(&url.server, url.host.as_deref())?;
        let mut client =
            client_of(url, arguments.depth.into(), timeout, arguments.rdma_version, tls.as_ref())?;
        explained(tls.as_ref(), connect(&mut client, url))?;
        Ok(client)
    }

    /// Connects and mounts the export that the URL's path begins with.
    pub fn mount(url: &Url, arguments: &CallOptions) -> Result<Self, Error> {
        let timeout = Duration::from_secs(arguments.timeout.into());
        let tls = arguments.tls.open(&url.server, url.host.as_deref())?;
        let (depth, versions) = (arguments.depth.into(), arguments.rdma_version);
        Self::mount_with(url, depth, timeout, versions, tls.as_ref())
    }

    /// The same, with `depth` calls at a time that may take `timeout` each.
    pub fn mount_with(
        url: &Url,
        depth: usize,
        timeout: Duration,
        versions: Versions,
        tls: Option<&Arc<ClientTls>>,
    ) -> Result<Self, Error> {
        let mut client = client_of(url, depth, timeout, versions, tls)?;
        let elsewhere = explained(tls, meet_mount(&mut client, url, None))?;
        let plan = RemotePlan::below(url, depth, timeout, versions, tls);
        Self::mount_by(client, url, elsewhere, plan)
    }

    /// The same by version 4 of NFS, which has no MOUNT.
    pub fn mount_version4(
        url: &Url,
        depth: usize,
        timeout: Duration,
        versions: Versions,
        tls: Option<&Arc<ClientTls>>,
    ) -> Result<Self, Error> {
        let mut client = client_of(url, depth, timeout, versions, tls)?;
        explained(tls, connect(&mut client, url))?;
        begin_session(&mut client)?;
        let plan = RemotePlan::below(url, depth, timeout, versions, tls);
        Self::mount_by(client, url, false, plan)
    }

    /// Mounts the export by a connected client, with MOUNT at `elsewhere` or on the NFS port.
    fn mount_by(
        mut client: NfsClient,
        url: &Url,
        elsewhere: bool,
        plan: impl FnOnce(FileHandle) -> RemotePlan,
    ) -> Result<Self, Error> {
        // A server need not say what it exports.
        let exports = client.exports().unwrap_or_default();
        let (export, below) = split(&url.path, &exports);
        if is_none(url, &exports) {
            return Err(nothing_named(url, &exports));
        }
        let shown = shown(&export);
        let root = client
            .mount(&String::from_utf8_lossy(&export))
            .map_err(failed(format_args!("MNT of {shown}")))?;
        if elsewhere {
            connect(&mut client, url)?;
        }
        Ok(Self { client, export, root, exports, below, plan: plan(root) })
    }

    /// Everything that a further connection needs.
    pub fn plan(&self) -> RemotePlan {
        self.plan.clone()
    }

    /// The path that the URL names, without redundant slashes.
    pub fn path(&self) -> Vec<u8> {
        let export = self.export.strip_suffix(b"/").unwrap_or(&self.export);
        let below = self.below.iter().flat_map(|name| [b"/".as_slice(), name]);
        let path = [export].into_iter().chain(below).collect::<Vec<_>>().concat();
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    /// The URL of `path`, which begins with an export.
    pub fn url_of(&self, path: &[u8]) -> String {
        self.plan.url.of_path(path)
    }

    /// Returns true if no call can succeed before the connection is made again.
    pub fn is_lost(&self) -> bool {
        !self.client.raw().is_up()
    }

    /// All exports of a server, without mounting one.
    pub fn exports(url: &Url, arguments: &CallOptions) -> Result<Vec<Vec<u8>>, Error> {
        let tls = arguments.tls.open(&url.server, url.host.as_deref())?;
        let timeout = Duration::from_secs(arguments.timeout.into());
        let mut client = client_of(url, 1, timeout, arguments.rdma_version, tls.as_ref())?;
        explained(tls.as_ref(), meet_mount(&mut client, url, None))?;
        let exports = client.exports().map_err(failed("EXPORT"))?;
        client.disconnect();
        Ok(exports)
    }

    /// Finds the object that the URL's path names.
    pub fn target(&mut self) -> Result<Object, Error> {
        let below = self.below.clone();
        self.walk(&below)
    }

    /// Finds the object that the URL's path names, if it is there; and the directory and the name
    /// at which it would be.
    pub fn target_or_place(&mut self) -> Result<(Option<Object>, Object, Vec<u8>), Error> {
        let Some((last, above)) =
            self.below.split_last().map(|(last, above)| (last.clone(), above.to_vec()))
        else {
            let root = self.walk(&[])?;
            return Ok((Some(root.clone()), root, Vec::new()));
        };
        let directory = self.walk(&above)?;
        Ok((self.find(directory.handle, &last)?, directory, last))
    }

    /// Walks down from the root.
    pub fn walk(&mut self, names: &[Vec<u8>]) -> Result<Object, Error> {
        let attributes =
            self.client.getattr(self.root).map_err(failed("GETATTR of the export's root"))?;
        let mut object = Object { name: Vec::new(), parent: None, handle: self.root, attributes };
        for name in names {
            let found = self.find(object.handle, name)?;
            object = found.ok_or_else(|| {
                failed(format_args!("LOOKUP of {}", shown(name)))(stag_client::Error::Nfs(
                    Status::NoEnt,
                ))
            })?;
        }
        Ok(object)
    }

    /// Finds a name in a directory.
    pub fn find(&mut self, directory: FileHandle, name: &[u8]) -> Result<Option<Object>, Error> {
        let found = match self.client.lookup(directory, name) {
            Ok(found) => found,
            Err(stag_client::Error::Nfs(Status::NoEnt)) => return Ok(None),
            Err(error) => return Err(failed(format_args!("LOOKUP of {}", shown(name)))(error)),
        };
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => self.attributes(found.object, name)?,
        };
        let (handle, name) = (found.object, name.to_vec());
        Ok(Some(Object { name, parent: Some(directory), handle, attributes }))
    }

    fn attributes(&mut self, file: FileHandle, name: &[u8]) -> Result<Attributes, Error> {
        self.client.getattr(file).map_err(failed(format_args!("GETATTR of {}", shown(name))))
    }

    /// A directory's entries by name, without itself and the one above it.
    pub fn list(&mut self, directory: &Object) -> Result<Vec<Object>, Error> {
        let what = shown(&directory.name);
        let mut entries = self
            .client
            .readdirplus(directory.handle)
            .map_err(failed(format_args!("READDIRPLUS of {what}")))?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let mut objects = Vec::with_capacity(entries.len());
        for DirEntry { name, attributes, handle, .. } in entries {
            if name == b"." || name == b".." {
                continue;
            }
            match (handle, attributes) {
                (Some(handle), Some(attributes)) => {
                    objects.push(Object {
                        name,
                        parent: Some(directory.handle),
                        handle,
                        attributes,
                    });
                }
                // What was removed meanwhile is not there.
                _ => objects.extend(self.find(directory.handle, &name)?),
            }
        }
        Ok(objects)
    }

    /// Returns the amount to read at a time, and the amount to write at a time.
    pub fn flows(&mut self) -> Result<(TransferFlow, TransferFlow), Error> {
        let info = self.client.fsinfo(self.root).map_err(failed("FSINFO"))?;
        // RFC 2203 §5.3.3.1: a server drops calls whose numbers are below its window
        let window = self.client.raw().context_window().unwrap_or(u32::MAX);
        let depth = self.plan.depth.min(window as usize);
        Ok((TransferFlow::new(depth, info.read_max), TransferFlow::new(depth, info.write_max)))
    }
}

/// A client that is not connected, for calls to the URL's server by the URL's credential; the rest
/// as for [`caller::client`].
pub fn client_of(
    url: &Url,
    depth: usize,
    timeout: Duration,
    versions: Versions,
    tls: Option<&Arc<ClientTls>>,
) -> Result<NfsClient, Error> {
    let (mut client, _) = caller::client(url.server.fabric(), depth, timeout, versions, tls)?;
    ticket::protect(&mut client, url.tickets(), url.creation())
        .map_err(|fault| Error::failure(format!("no Kerberos for {url}: {fault}")))?;
    Ok(client)
}

/// True if the URL names no export.
pub fn is_none(url: &Url, exports: &[Vec<u8>]) -> bool {
    url.path == b"/" && !exports.is_empty() && !exports.iter().any(|export| export == b"/")
}

/// The error of a URL that names no export.
fn nothing_named(url: &Url, exports: &[Vec<u8>]) -> Error {
    let known: Vec<_> = exports.iter().map(|export| shown(export)).collect();
    Error::usage(format!("{url} names no export: put one of these behind it: {}", known.join(", ")))
}

/// Connects to the address of MOUNT; true if that differs from the URL's. A server that does not
/// have it on its own port has a port mapper that gives the port. `nfs` is the requested version of
/// NFS; with none, it is 3 where the server has it.
pub fn meet_mount(client: &mut NfsClient, url: &Url, nfs: Option<u8>) -> Result<bool, Error> {
    let apart = |client: &mut NfsClient, at| {
        let connected = client.connect_tcp(at);
        connected.map(|()| true).map_err(|error| cannot_connect(format_args!("tcp://{at}"), error))
    };
    if let Some(at) = url.mount {
        return apart(client, at);
    }
    connect(client, url)?;
    if begin_version4(client, nfs)? {
        return Ok(false);
    }
    match (client.mount_null(), url.server.ip()) {
        (
            Err(stag_client::Error::Rejected(
                Accepted::ProgUnavail | Accepted::ProgMismatch { .. },
            )),
            Some(at),
        ) => {
            let at = ports::ask_for_mount(at).map_err(|error| {
                Error::failure(format!(
                    "{url} does not answer MOUNT version 3, and {error}: give the port where its \
                     mountd listens on TCP, as ?mountport=N behind the path"
                ))
            })?;
            apart(client, at)
        }
        (Err(error), _) if error.is_fatal() => Err(unheard("NULL of MOUNT")(error)),
        _ => Ok(false),
    }
}

/// Calls by version 4 from now on, if that is requested, or nothing is and the server has no
/// version 3; true then.
fn begin_version4(client: &mut NfsClient, nfs: Option<u8>) -> Result<bool, Error> {
    let is_newer = match nfs {
        Some(version) => version == 4,
        None => matches!(
            client.null(),
            Err(stag_client::Error::Rejected(Accepted::ProgMismatch { low: 4.., .. }))
        ),
    };
    if !is_newer {
        return Ok(false);
    }
    begin_session(client).map(|()| true)
}

/// Calls by the highest minor version of version 4 that the server has from now on.
fn begin_session(client: &mut NfsClient) -> Result<(), Error> {
    let begun = match client.begin_version4(2) {
        Err(stag_client::Error::Nfs4(Status4::MinorVersMismatch)) => client.begin_version4(1),
        begun => begun,
    };
    begun.map_err(failed("a session of NFS version 4"))
}

/// Connects a client to the URL's server, and again whenever that connection is lost.
pub fn connect(client: &mut NfsClient, url: &Url) -> Result<(), Error> {
    client.reach(&url.server).map_err(|error| cannot_connect(url, error))
}

/// The error of a connection that cannot be made.
pub fn cannot_connect(at: impl Display, error: stag_client::Error) -> Error {
    let hint = match error {
        stag_client::Error::NotConnected(Some(cause @ Cause::Rejected)) => turned_away(cause),
        _ => "; does a server listen there?",
    };
    Error::failure(format!("cannot connect to {at}: {error}{hint}"))
}

/// A hint for a connection that the server ended at once, its only way to refuse over TCP.
fn turned_away(cause: Cause) -> &'static str {
    match cause {
        Cause::Rejected | Cause::Peer | Cause::Fabric(FabricFault::Lost)
            if stag_client::takes_reserved_ports() =>
        {
            "; the server's log says why: is this host in its --clients, and are there \
             connections left?"
        }
        Cause::Rejected | Cause::Peer | Cause::Fabric(FabricFault::Lost) => {
            "; the server's log says why: is this host in its --clients, and does it take calls \
             of others than root, whose ports are above 1023 (--insecure there)?"
        }
        _ => "",
    }
}

/// An error with what was tried.
pub fn failed(what: impl Display) -> impl Fn(stag_client::Error) -> Error {
    let what = what.to_string();
    move |error| {
        let hint = match error {
            stag_client::Error::NoContext => {
                ticket::take_fault().map_or_else(String::new, |fault| format!(": {fault}"))
            }
            stag_client::Error::Nfs(Status::Acces | Status::Perm) => {
                format!(" ({})", stag_client::denied_hint())
            }
            _ => String::new(),
        };
        Error::failure(format!("{what}: {error}{hint}"))
    }
}

/// The same for the first call on a connection, when a server refuses callers over TCP.
pub fn unheard(what: impl Display) -> impl Fn(stag_client::Error) -> Error {
    let failed = failed(what);
    move |error| match error {
        stag_client::Error::NotConnected(Some(cause))
        | stag_client::Error::Call(CallFault::Disconnected(cause)) => {
            Error::failure(format!("{}{}", failed(error), turned_away(cause)))
        }
        error => failed(error),
    }
}

/// The longest export that contains `path`; when none is known, its first component. And the
/// components below it.
pub fn split(path: &[u8], exports: &[Vec<u8>]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let components = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|octet| *octet == b'/')
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    };
    let names = components(path);
    let within = exports.iter().map(|export| (export, components(export)));
    let within = within.filter(|(_, prefix)| names.starts_with(prefix));
    match within.max_by_key(|(_, prefix)| prefix.len()) {
        Some((export, prefix)) => {
            (export.clone(), names.get(prefix.len()..).unwrap_or_default().to_vec())
        }
        None => {
            let first = names.first().map(Vec::as_slice).unwrap_or_default();
            ([b"/", first].concat(), names.get(1..).unwrap_or_default().to_vec())
        }
    }
}

/// A name as it is shown ([`quote::shown`]); the root has none.
pub fn shown(name: &[u8]) -> String {
    if name.is_empty() { "the export's root".to_owned() } else { quote::shown(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_export_is_mounted() {
        let exports = [b"/srv".to_vec(), b"/srv/data".to_vec(), b"/da".to_vec()];
        for (path, export, below) in [
            ("/srv/data/a/b", "/srv/data", &["a", "b"][..]),
            ("/srv/other", "/srv", &["other"]),
            ("/data/x", "/data", &["x"]),
            ("/da", "/da", &[]),
            ("/", "/", &[]),
            ("//srv//data/", "/srv/data", &[]),
        ] {
            let below: Vec<_> = below.iter().map(|name| name.as_bytes().to_vec()).collect();
            assert_eq!(
                split(path.as_bytes(), &exports),
                (export.as_bytes().to_vec(), below),
                "{path}"
            );
        }
        assert_eq!(
            split(b"/a/b", &[b"/".to_vec()]),
            (b"/".to_vec(), vec![b"a".to_vec(), b"b".to_vec()])
        );
    }

    #[test]
    fn names_that_are_no_text_are_escaped() {
        assert_eq!(shown("ä b".as_bytes()), "ä b");
        assert_eq!(shown(b"a\xff\x1b[2J\n"), "a\\xff\\u{1b}[2J\\n");
    }
}
