//! User mapping: the users that callers act as, from the settings.

use super::{
    Plan,
    options::{GroupsOption, ModeOption, ServeOptions, SquashOption, SquashRule},
    stores::PlannedStore,
};
use crate::{Error, admission};
use rustix::process::geteuid;
use stag_nfs_store::{
    GroupSource,
    exports::client_rules::{ClientOptions, Squash},
    files::{CallerMode, Callers, NetworkSquash},
};
use std::net::SocketAddr;

/// Facts other than their own flags that decide on callers: from where the server can be reached.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// True if all addresses are loopback ones.
    pub is_of_this_host: bool,
    /// True if there is an address, and not shared memory alone.
    pub has_addresses: bool,
    /// True if no setting says who may connect, nor as whom an export's clients act.
    pub is_unasked: bool,
}

/// Decides whom callers act as.
///
/// A server of root without such settings trusts no caller: every caller acts as the anonymous
/// user. In privileged mode, root of this host may do everything here anyway: it is not squashed
/// where no other user can claim to be root.
pub fn callers(arguments: &ServeOptions, reach: Reach) -> Result<Callers, Error> {
    let is_proven =
        reach.is_of_this_host && !arguments.insecure && admission::first_open_port() >= 1_024;
    let usual = match () {
        () if takes_nobodys_word(arguments, reach) => SquashOption::All,
        () if is_proven && !is_squashing(arguments) => SquashOption::None,
        () => SquashOption::Root,
    };
    let groups = match arguments.groups {
        None | Some(GroupsOption::Client) => GroupSource::Client,
        Some(GroupsOption::Host) if arguments.mode == Some(ModeOption::Unprivileged) => {
            return Err(Error::usage(
                "--groups host means nothing with --mode unprivileged, where every caller acts as \
                 the server's user: leave it out",
            ));
        }
        Some(GroupsOption::Host) => GroupSource::Host,
    };
    let mode = match arguments.mode.unwrap_or(ModeOption::Auto) {
        ModeOption::Auto => CallerMode::Auto,
        ModeOption::Privileged => CallerMode::Privileged,
        ModeOption::Unprivileged => CallerMode::Unprivileged,
    };
    let (squash, networks) = squashed(&arguments.squash, usual)?;
    let Callers { anon_uid, anon_gid, .. } = Callers::default();
    let (anon_uid, anon_gid) =
        (arguments.anonuid.unwrap_or(anon_uid), arguments.anongid.unwrap_or(anon_gid));
    Ok(Callers { mode, squash, networks, anon_uid, anon_gid, groups })
}

fn is_squashing(arguments: &ServeOptions) -> bool {
    !arguments.squash.is_empty() || arguments.anonuid.is_some() || arguments.anongid.is_some()
}

/// True for a server of root without settings for its callers.
fn takes_nobodys_word(arguments: &ServeOptions, reach: Reach) -> bool {
    let is_told = arguments.mode.is_some() || is_squashing(arguments) || !reach.is_unasked;
    geteuid().is_root() && reach.has_addresses && !is_told
}

/// The sentence that says how to let callers act as themselves, where they could and do not.
pub fn notice(arguments: &ServeOptions, reach: Reach, store: &dyn PlannedStore) -> Option<String> {
    (store.host_callers().is_some() && takes_nobodys_word(arguments, reach)).then(|| {
        "no --clients are given, so every caller acts as the anonymous user: --mode privileged \
         lets each act as the user it names, --squash says who does not"
            .to_owned()
    })
}

/// The rule of all callers, `usual` if none is given, and the rules of networks.
fn squashed(
    rules: &[SquashRule],
    usual: SquashOption,
) -> Result<(Squash, Vec<NetworkSquash>), Error> {
    let store_word = |squash| match squash {
        SquashOption::Root => Squash::Root,
        SquashOption::None => Squash::None,
        SquashOption::All => Squash::All,
    };
    let mut of_all = None;
    let mut networks: Vec<NetworkSquash> = Vec::new();
    for SquashRule { network, squash } in rules {
        let squash = store_word(*squash);
        let is_new = match network {
            None => of_all.replace(squash).is_none(),
            Some(network) => {
                let is_new = networks.iter().all(|rule| rule.network != *network);
                networks.push(NetworkSquash { network: *network, squash });
                is_new
            }
        };
        if !is_new {
            let of = network.map_or_else(|| "all callers".to_owned(), |it| it.to_string());
            return Err(Error::usage(format!("--squash has two rules for {of}: leave one out")));
        }
    }
    Ok((of_all.unwrap_or_else(|| store_word(usual)), networks))
}

impl Plan {
    /// Requires a proof from callers where they could act as other users by a mere claim.
    /// `is_privileged` is true if the process can act as its callers.
    ///
    /// # Errors
    /// When processes without a proof are allowed, or a setting has no effect on such a server.
    pub fn distrust_claims(&mut self, is_privileged: bool) -> Result<(), Error> {
        let claimable = self.store.claimable(self, is_privileged)?;
        claimable.map_or(Ok(()), |acts_as| self.distrust(acts_as))
    }

    /// Requires a proof from callers that they are privileged on their hosts, where they could act
    /// as other users by a mere claim: `acts_as` names those.
    ///
    /// # Errors
    /// When processes without a proof are allowed.
    fn distrust(&mut self, acts_as: &str) -> Result<(), Error> {
        let first = admission::first_open_port();
        let is_open = |at: &SocketAddr| !at.ip().to_canonical().is_loopback();
        if self.insecure {
            self.is_distrustful = self.mixes_ports();
            self.notices
                .push(format!("--insecure: every user of a client's host can act as {acts_as}"));
            return Ok(());
        }
        if let Some(uid) = self.shm_allow.iter().find(|uid| **uid != 0) {
            return Err(Error::usage(format!(
                "--shm-allow {uid}: processes of that user could act as {acts_as}; add --insecure \
                 if they may, or --mode unprivileged as another user than root"
            )));
        }
        self.is_distrustful = true;
        if self.mixes_ports() {
            self.notices.push(
                "callers of exports that are not insecure have to call from ports below 1024, \
                 which only root of their host can take"
                    .to_owned(),
            );
            return Ok(());
        }
        self.clients.must_be_privileged = true;
        self.notices.push(
            "callers have to connect from ports below 1024, which only root of their host can \
             take (see WHO MAY CONNECT in --help)"
                .to_owned(),
        );
        if self.fabrics.iter().flat_map(|fabric| fabric.group.ips()).any(|at| is_open(&at)) {
            self.notices.push(format!(
                "over RDMA other hosts may use any port, because Linux's NFS does: every user of \
                 a host in --clients can act as {acts_as}"
            ));
        }
        if first < 1_024 {
            self.notices.push(format!(
                "every user of this host can take ports from {first} on \
                 (net.ipv4.ip_unprivileged_port_start), and so act as {acts_as}"
            ));
        }
        Ok(())
    }

    /// True if an export, or clients of one, are insecure where the server is not, or the other way
    /// round: then each export checks ports, and no listener does.
    fn mixes_ports(&self) -> bool {
        let differs = |options: &ClientOptions| {
            options.insecure.is_some_and(|insecure| insecure != self.insecure)
        };
        self.exports.iter().any(|export| {
            let clients = export.rules.clients.iter().map(|rule| rule.options);
            clients.chain([export.rules.options]).any(|options| differs(&options))
        })
    }
}

/// Users that a caller can name where all callers act as themselves.
pub const ANY_OTHER: &str = "any other user";

/// The user that a caller can act as by naming it, beyond the user of this server.
pub fn named_at_will(plan: &Plan, is_privileged: bool) -> Option<&'static str> {
    match is_privileged {
        true => plan.takes_words().then_some(ANY_OTHER),
        false => geteuid().is_root().then_some("root"),
    }
}
