//! Admission of callers to exports, and the users they act as there.
//!
//! If no export has rules of its own, this is decided when the caller is known
//! ([`Files::act_as_caller`]). Else the export named by a call's first handle decides.

use stag_engine::{PeerAddress, Time, clock::Clock};
use stag_nfs_os::User as ActingUser;
use stag_protocol::nfs::v3::{FileHandle, Status};

use super::{Files, cache::FileSlotId};
use crate::{
    Caller,
    exports::{
        client_rules::{AccessFault, ExportRules, Grant, Squash, UsualGrant},
        config::{ExportId, Exports},
        handle::HandleKey,
        security::SecurityFlavors,
    },
    log_rate::EventRate,
};

/// Rules of all exports.
#[derive(Debug)]
pub(super) struct AccessTable {
    rules: Vec<(ExportId, ExportRules)>,
    /// The same by name, also of exports that are absent.
    named: Vec<(String, ExportRules)>,
    /// Callers may come from any port where an export does not say otherwise.
    is_insecure: bool,
    /// An export has security flavors of its own. Where none has, no flavor is looked at.
    has_security: bool,
}

impl AccessTable {
    /// The rules of exports; none when none of them has any.
    pub fn of(
        named: Vec<(String, ExportRules)>,
        exports: &Exports,
        is_insecure: bool,
    ) -> Option<Self> {
        let has_own = named.iter().any(|(_, rules)| !rules.are_usual());
        let has_security = named.iter().any(|(_, rules)| rules.have_security());
        let table = || Self { rules: Vec::new(), named, is_insecure, has_security };
        has_own.then(|| table().renewed(exports))
    }

    /// The same rules for exports that may have other ids.
    pub fn renewed(&self, exports: &Exports) -> Self {
        let rules = exports.iter().filter_map(|export| {
            self.of_name(export.name()).map(|rules| (export.id(), rules.clone()))
        });
        Self { rules: rules.collect(), named: self.named.clone(), ..*self }
    }

    fn of_name(&self, name: &str) -> Option<&ExportRules> {
        self.named.iter().find(|(of, _)| of == name).map(|(_, rules)| rules)
    }

    fn of_export(&self, id: ExportId) -> Option<&ExportRules> {
        self.rules.iter().find(|(of, _)| *of == id).map(|(_, rules)| rules)
    }
}

/// The current caller's standing with the exports.
#[derive(Debug, Default)]
pub(super) struct Guest {
    /// None: the server itself is looking up a path.
    caller: Option<Caller>,
    /// The export that the current call is about, and the caller's rights there.
    granted: Option<(ExportId, Grant)>,
    /// The exports changed during a call, before its caller was recorded for them.
    is_outdated: bool,
    turned_away: TurnedAway,
}

/// Callers that were refused, counted per reason: a caller that retries does not fill the log.
#[derive(Debug)]
struct TurnedAway {
    clock: Clock,
    unlisted: EventRate,
    security: EventRate,
    unproven: EventRate,
}

impl Default for TurnedAway {
    fn default() -> Self {
        Self {
            clock: Clock::start(),
            unlisted: EventRate::new("calls from no client of their export"),
            security: EventRate::new("calls with a security flavor that their export refuses"),
            unproven: EventRate::new("calls from ports that prove nothing"),
        }
    }
}

impl TurnedAway {
    /// Returns true if one more is to be logged.
    fn allows(&mut self, fault: AccessFault) -> bool {
        let now = self.clock.now();
        self.settle(now);
        match fault {
            AccessFault::Unlisted => self.unlisted.allows(now),
            AccessFault::Security => self.security.allows(now),
            AccessFault::Unproven => self.unproven.allows(now),
        }
    }

    /// Logs the number that was suppressed.
    fn settle(&mut self, now: Time) {
        self.unlisted.settle(now);
        self.security.settle(now);
        self.unproven.settle(now);
    }
}

impl Guest {
    /// The caller; none while the server itself looks up a path.
    pub(super) const fn caller(&self) -> Option<Caller> {
        self.caller
    }
}

impl Files {
    /// Leaves the decision on a caller to the export that its first handle names.
    pub(super) fn await_export(&mut self, caller: Option<Caller>) {
        (self.guest.caller, self.guest.granted) = (caller, None);
        self.guest.is_outdated = false;
    }

    /// Forgets the caller, who was known before the exports changed.
    pub(super) fn forget_guest(&mut self) {
        (self.guest.caller, self.guest.granted) = (None, None);
        self.guest.is_outdated = true;
    }

    /// Admits the present caller to an export, or not; true if the caller may change nothing there.
    ///
    /// # Errors
    /// [`Status::Acces`] for a caller outside the export's clients, [`Status::Perm`] for an
    /// unprivileged source port, [`Status::Jukebox`] when the exports changed meanwhile.
    pub(super) fn enter(&mut self, id: ExportId) -> Result<bool, Status> {
        let is_read_only = self.serving.export(id).is_some_and(|export| export.is_read_only());
        let (Some(_), Some(caller)) = (&self.serving.access, self.guest.caller) else {
            // A call during which the exports changed has to be retried.
            let is_lost = self.serving.access.is_some() && self.guest.is_outdated;
            return if is_lost { Err(Status::Jukebox) } else { Ok(is_read_only) };
        };
        if let Some((_, grant)) = self.guest.granted.filter(|(known, _)| *known == id) {
            return Ok(grant.read_only);
        }
        let judged = self.grant(id, &caller);
        let grant = judged.map_err(|fault| self.turn_away(id, &caller, fault))?;
        self.assume(&caller.user, grant.squash, grant.anonymous);
        self.guest.granted = Some((id, grant));
        Ok(grant.read_only)
    }

    /// Checks whether the present caller may have the handle of an export's root. Its security
    /// flavor is not judged: MOUNT is called with AUTH_SYS whatever the export accepts, and the
    /// handle grants no rights.
    ///
    /// # Errors
    /// As in [`Files::enter`].
    pub(super) fn admit_to_mount(&mut self, id: ExportId) -> Result<(), Status> {
        let Some(caller) = self.guest.caller else { return self.enter(id).map(drop) };
        match self.grant(id, &caller) {
            Ok(_) | Err(AccessFault::Security) => Ok(()),
            Err(fault) => Err(self.turn_away(id, &caller, fault)),
        }
    }

    /// Checks whether a caller is one of an export's clients. Its security flavor is not judged: a
    /// client sees an export before it knows the flavors.
    ///
    /// # Errors
    /// [`Status::NoEnt`] when no export has that name; else as in [`Files::enter`].
    pub(super) fn judge_client(&self, export: &str, caller: &Caller) -> Result<(), Status> {
        let exports = &self.serving.exports;
        let judged = if let Some(export) = exports.by_name(export.as_bytes()) {
            self.grant(export.id(), caller)
        } else {
            let absent = exports.absent().iter().find(|config| config.name == export);
            let absent = absent.ok_or(Status::NoEnt)?;
            let rules = self.serving.access.as_ref().and_then(|table| table.of_name(&absent.name));
            self.judge_by(rules, caller, absent.read_only)
        };
        match judged {
            Ok(_) | Err(AccessFault::Security) => Ok(()),
            Err(fault) => Err(status_of(fault)),
        }
    }

    /// True if an export has security flavors of its own.
    pub(super) fn has_flavors(&self) -> bool {
        self.serving.access.as_ref().is_some_and(|table| table.has_security)
    }

    /// Flavors that an export accepts from a client; none if it does not admit the address.
    pub(super) fn flavors_of_export(
        &self,
        export: &str,
        address: PeerAddress,
    ) -> Option<SecurityFlavors> {
        self.serving.access.as_ref()?.of_name(export)?.flavors(address)
    }

    /// The same for the export that a handle names.
    pub(super) fn flavors_of_object(
        &self,
        object: &FileHandle,
        address: PeerAddress,
    ) -> Option<SecurityFlavors> {
        let id = HandleKey::claimed_export(object)?;
        self.serving.access.as_ref()?.of_export(id)?.flavors(address)
    }

    /// The same for the export that a handle names. State left from a removed export may always be
    /// released.
    ///
    /// # Errors
    /// As in [`Files::enter`].
    pub(super) fn judge_client_of(
        &self,
        object: &FileHandle,
        caller: &Caller,
    ) -> Result<(), Status> {
        match HandleKey::claimed_export(object) {
            Some(id) => self.grant(id, caller).map(drop).map_err(status_of),
            None => Ok(()),
        }
    }

    /// Rights of a caller on an export.
    fn grant(&self, id: ExportId, caller: &Caller) -> Result<Grant, AccessFault> {
        let is_read_only = self.serving.export(id).is_some_and(|export| export.is_read_only());
        let rules = self.serving.access.as_ref().and_then(|table| table.of_export(id));
        self.judge_by(rules, caller, is_read_only)
    }

    fn judge_by(
        &self,
        rules: Option<&ExportRules>,
        caller: &Caller,
        is_read_only: bool,
    ) -> Result<Grant, AccessFault> {
        let usual = self.usual_grant(caller, is_read_only);
        let Some(table) = &self.serving.access else { return Ok(usual) };
        let usual = UsualGrant { grant: usual, insecure: table.is_insecure };
        rules.map_or(Ok(usual.grant), |rules| rules.grant(&caller.into(), &usual))
    }

    /// Rights where the export has no rule.
    fn usual_grant(&self, caller: &Caller, read_only: bool) -> Grant {
        match &self.shared.policy {
            Some(policy) => Grant {
                read_only,
                squash: policy.squash_at(caller.address),
                anonymous: policy.anonymous(),
            },
            // Without privilege no user is assumed.
            None => Grant {
                read_only,
                squash: Squash::None,
                anonymous: ActingUser::new(u32::MAX - 1, u32::MAX - 1, []),
            },
        }
    }

    /// True while refused callers are not yet reported in the log.
    pub(super) const fn owes_the_log(&self) -> bool {
        let TurnedAway { unlisted, security, unproven, .. } = &self.guest.turned_away;
        unlisted.has_left_out() || security.has_left_out() || unproven.has_left_out()
    }

    /// Logs the number of refused callers that were suppressed, once their second is over.
    pub(super) fn settle_with_the_log(&mut self) {
        let now = self.guest.turned_away.clock.now();
        self.guest.turned_away.settle(now);
    }

    fn turn_away(&mut self, id: ExportId, caller: &Caller, fault: AccessFault) -> Status {
        if self.guest.turned_away.allows(fault) {
            let name = self.serving.export(id).map_or("", |export| export.name());
            tracing::warn!(
                target: "stag", peer = %caller.address, export = name, "refused: {fault}"
            );
        }
        status_of(fault)
    }

    /// True if the present caller may change nothing in a file's export.
    pub(super) fn is_read_only(&self, slot: FileSlotId) -> bool {
        let export = self.export_of(slot);
        let granted = self.guest.granted.filter(|(id, _)| *id == export.id());
        granted.map_or(export.is_read_only(), |(_, grant)| grant.read_only)
    }

    /// Networks that may mount an export.
    pub(super) fn clients_of(&self, export: &str) -> Vec<String> {
        let rules = self.serving.access.as_ref().and_then(|table| table.of_name(export));
        let networks = rules.into_iter().flat_map(|rules| &rules.clients);
        networks.map(|rule| rule.network.to_string()).collect()
    }

    /// Bytes of the largest READ and WRITE advertised to clients of a file's export; `most` without
    /// a rule.
    pub(super) fn transfer_sizes(&self, slot: FileSlotId, most: u32) -> (u32, u32) {
        let id = self.export_of(slot).id();
        let rules = self.serving.access.as_ref().and_then(|table| table.of_export(id));
        let limit = |size: Option<u32>| size.map_or(most, |size| size.min(most));
        rules.map_or((most, most), |rules| (limit(rules.read_max), limit(rules.write_max)))
    }
}

/// The status of a call whose caller is refused.
const fn status_of(fault: AccessFault) -> Status {
    match fault {
        // The gateway judges the flavor first, and has other words for it in each version of NFS.
        AccessFault::Unlisted | AccessFault::Security => Status::Acces,
        AccessFault::Unproven => Status::Perm,
    }
}
