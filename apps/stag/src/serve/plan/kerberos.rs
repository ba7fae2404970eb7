//! Step of a plan: Kerberos, by a keytab whose principals are checked without the library.

use super::{
    listen::ListenPlan,
    options::ServeOptions,
    stores::{ContentPlan, PlannedStore},
};
use crate::{
    Error,
    kerberos::{ServedPrincipals, is_of_host},
    replace,
};
use rustix::system::uname;
use stag_engine::gss::GssContexts;
use stag_gssapi::{
    AcceptorSettings, Enctype, GssAcceptor, GssLibrary, ReplayCache,
    keytab::{self, ServicePrincipals},
};
use stag_nfs::kerberos::{KerberosUsers, UserMap};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The file of the replay cache in the state directory.
pub const REPLAY_CACHE: &str = "krb5.rcache";
/// The value of `--replay-cache` for none.
const OFF: &str = "off";
/// The port where Linux sets up contexts for mounts over RDMA.
const CONTEXT_PORT: u16 = 2_049;

/// Kerberos of a server.
#[derive(Clone, Debug)]
pub struct KerberosPlan {
    /// The keytab, which the library opens by its name for each context.
    pub keytab: PathBuf,
    /// The principals that are served.
    pub served: ServedPrincipals,
    /// The same as the keytab has them, with their encryption types.
    principals: ServicePrincipals,
    /// The file of the map, if there is one.
    map: Option<PathBuf>,
    /// Users of principals, which a reload changes.
    pub users: Arc<KerberosUsers>,
    /// The file of the replay cache; none without one.
    pub replay_cache: Option<PathBuf>,
    /// The contexts of a server that has started.
    pub contexts: Option<Arc<GssContexts>>,
}

impl KerberosPlan {
    /// Checks the settings; none without a keytab.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn checked(
        arguments: &ServeOptions,
        content: &ContentPlan,
        store: &dyn PlannedStore,
    ) -> Result<Option<Self>, Error> {
        let settings = &arguments.kerberos;
        let Some(keytab) = &settings.keytab else { return Ok(None) };
        let served = ServedPrincipals::parse(&settings.kerberos_principal)?;
        let keytab = absolute(keytab, "keytab")?;
        let principals = principals(&keytab, &served)?;
        check_hidden(&keytab, content)?;
        let map = settings.kerberos_map.as_deref().map(|map| absolute(map, "kerberos-map"));
        let map = map.transpose()?;
        let users = map.as_deref().map_or_else(|| Ok(UserMap::default()), UserMap::read);
        let users = users.map_err(|error| Error::usage(format!("--kerberos-map: {error}")))?;
        let replay_cache = replay_cache(settings.replay_cache.as_deref(), store)?;
        let users = Arc::new(KerberosUsers::new(users));
        Ok(Some(Self { keytab, served, principals, map, users, replay_cache, contexts: None }))
    }

    /// The acceptor of contexts.
    ///
    /// # Errors
    /// A sentence about a library that is missing, or about a keytab that it does not take.
    pub fn acceptor(&self) -> Result<GssAcceptor, Error> {
        let library = GssLibrary::load();
        let library = library.map_err(|error| Error::usage(format!("--keytab: {error}")))?;
        let replay_cache = self.replay_cache.as_deref().map_or(ReplayCache::Off, ReplayCache::File);
        let keytab = Some(&*self.keytab);
        let settings = AcceptorSettings { service: self.served.name(), keytab, replay_cache };
        GssAcceptor::new(library, &settings)
            .map_err(|error| Error::usage(format!("--keytab {}: {error}", self.keytab.display())))
    }

    /// The realm of the principals, if they are all of one.
    pub fn realm(&self) -> Option<&str> {
        let mut realms = self.principals.keys().filter_map(|name| name.rsplit_once('@'));
        let (_, first) = realms.next()?;
        realms.all(|(_, realm)| realm == first).then_some(first)
    }

    /// Takes the users that `new` has. Returns true if the map differs: all contexts have then
    /// ended, and clients set up others.
    pub fn follow(&self, new: &Self) -> bool {
        let has_changed = self.users.follow(&new.users);
        if let Some(contexts) = self.contexts.as_ref().filter(|_| has_changed) {
            contexts.forget_all();
        }
        has_changed
    }

    /// A line about the principals, and about the place where contexts are set up.
    pub fn line(&self, tcp: Option<SocketAddr>) -> String {
        let principals = self.principals.iter().map(|(name, enctypes)| {
            let enctypes = enctypes.iter().filter_map(|number| Enctype::new(*number));
            let enctypes: Vec<_> = enctypes.map(|enctype| enctype.to_string()).collect();
            format!("{name} ({})", enctypes.join(", "))
        });
        let principals: Vec<_> = principals.collect();
        let place = match tcp {
            None => String::new(),
            Some(at) if at.port() == 0 => ", set up over TCP".to_owned(),
            Some(at) => format!(", set up over TCP at {at}"),
        };
        let map = self.map.as_deref().map_or_else(String::new, |map| {
            format!("{} ({} principals), then ", map.display(), self.users.mapped())
        });
        let replays = match &self.replay_cache {
            Some(file) => format!("replay cache {}", file.display()),
            None => "no replay cache".to_owned(),
        };
        format!(
            "kerberos: contexts for {}{place}; users by {map}krb5.conf and the name service; \
             {replays}",
            principals.join(", ")
        )
    }

    /// Sentences about clients that cannot use it, and about a replay cache that is missing.
    pub fn notices(&self, arguments: &ServeOptions, listen: &ListenPlan) -> Vec<String> {
        let mut notices = Vec::new();
        let (name, service) =
            (uname().nodename().to_string_lossy().into_owned(), self.served.service());
        if !self.principals.keys().any(|principal| is_of_host(principal, &name)) {
            notices.push(format!(
                "the keytab has no principal {service}/{name} of this host: clients have to mount \
                 by a name that it has"
            ));
        }
        let has_rdma = listen.fabrics.iter().any(|fabric| fabric.group.ips().next().is_some());
        match listen.tcp {
            None => notices.push(
                "Kerberos contexts are set up over TCP, at which this server does not listen: \
                 clients cannot use it; give --tcp IP:2049"
                    .to_owned(),
            ),
            Some(at) if has_rdma && at.port() != CONTEXT_PORT => notices.push(
                "Linux sets up Kerberos contexts for mounts over RDMA at port 2049 of TCP, and \
                 this server has another one there: give --tcp IP:2049"
                    .to_owned(),
            ),
            Some(_) => {}
        }
        if self.replay_cache.is_none() && arguments.kerberos.replay_cache.is_none() {
            notices.push(
                "Kerberos has no replay cache, because there is no state directory: give \
                 --state-dir DIR or --replay-cache FILE, or say --replay-cache off"
                    .to_owned(),
            );
        }
        notices
    }
}

fn absolute(path: &Path, flag: &str) -> Result<PathBuf, Error> {
    let path_or = std::path::absolute(path);
    path_or.map_err(|error| Error::usage(format!("--{flag} {}: {error}", path.display())))
}

/// The principals of the keytab that are served.
fn principals(path: &Path, served: &ServedPrincipals) -> Result<ServicePrincipals, Error> {
    let mut found = keytab::inspect(path, served.service())
        .map_err(|problem| Error::usage(problem.to_string()).of_flag("keytab"))?;
    let all: Vec<String> = found.keys().cloned().collect();
    found.retain(|principal, _| served.includes(principal));
    if found.is_empty() {
        return Err(Error::usage(format!(
            "--kerberos-principal: keytab {} has no AES key of that principal (it has {}); write \
             one of these, or add its key (`kadmin ktadd`)",
            path.display(),
            all.join(", ")
        )));
    }
    Ok(found)
}

/// Refuses a keytab that clients could read.
fn check_hidden(keytab: &Path, content: &ContentPlan) -> Result<(), Error> {
    let Ok(real) = fs::canonicalize(keytab) else { return Ok(()) };
    match content.host_paths().find(|path| real.starts_with(path)) {
        Some(path) => Err(Error::usage(format!(
            "--keytab {}: it is in the export {}, so that clients could read its keys: move it",
            keytab.display(),
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The file of the replay cache, if there is to be one.
fn replay_cache(given: Option<&Path>, store: &dyn PlannedStore) -> Result<Option<PathBuf>, Error> {
    match given {
        Some(off) if off == Path::new(OFF) => Ok(None),
        Some(file) => {
            let file = absolute(file, "replay-cache")?;
            replace::check(&file, "the replay cache")
                .map_err(|error| error.of_flag("replay-cache"))?;
            Ok(Some(file))
        }
        None => Ok(store.state_dir().map(|directory| directory.join(REPLAY_CACHE))),
    }
}
