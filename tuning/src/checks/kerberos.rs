//! Checks of Kerberos on a host that has a keytab with keys of NFS: its principals and its clock.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FixClass, Severity},
    scene::field_of,
};

/// Keytabs that a server uses as a rule: the service's own, and the host's.
const KEYTABS: [&str; 2] = ["/etc/stag/krb5.keytab", "/etc/krb5.keytab"];
/// Difference of clocks in seconds that is left to clients, of the 300 that Kerberos permits.
const SKEW_MAX: f64 = 60.0;

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "NFS06",
        name: "keys of Kerberos",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: ALL,
        why: "Clients get a ticket for nfs/ and the name by which they mount: the keytab of a \
              server needs an AES key of that principal.",
        source: "klist -ke of /etc/stag/krb5.keytab, else of /etc/krb5.keytab; klist(1)",
        judge: keys,
    },
    HostCheck {
        id: "NFS07",
        name: "clock of Kerberos",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: ALL,
        why: "A server refuses clients whose clocks differ from its own by more than five minutes \
              (clockskew in krb5.conf).",
        source: "chronyc -n tracking, or timedatectl; chronyc(1), krb5.conf(5)",
        judge: clock,
    },
];

/// Keys of NFS in a keytab.
struct NfsKeys {
    keytab: &'static str,
    /// Principals, each with the name of an encryption type.
    keys: Vec<(String, String)>,
}

/// The keys of NFS on this host: of the first keytab that has some.
fn nfs_keys(scene: &Scene) -> Result<NfsKeys, Finding> {
    let mut reason = Finding::not_applicable("no keytab");
    for keytab in KEYTABS.into_iter().filter(|path| scene.host.exists(path)) {
        if let Err(finding) = scene.host.octets(keytab) {
            reason = finding;
            continue;
        }
        let text = scene.host.output(&["klist", "-ke", keytab])?;
        let keys: Vec<_> = text.lines().filter_map(nfs_key).collect();
        if !keys.is_empty() {
            return Ok(NfsKeys { keytab, keys });
        }
        reason = Finding::not_applicable(format!("{keytab} has no key of nfs/"));
    }
    Err(reason)
}

/// The principal and the encryption type in a line of klist, as in `2 nfs/host@REALM (aes…)`.
fn nfs_key(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace().skip(1);
    let principal = words.next().filter(|name| name.starts_with("nfs/"))?;
    let enctype = words.next().unwrap_or_default().trim_matches(['(', ')']);
    Some((principal.to_owned(), enctype.to_owned()))
}

fn keys(scene: &Scene) -> Judged {
    let NfsKeys { keytab, keys } = nfs_keys(scene)?;
    let host = scene.host.text("/proc/sys/kernel/hostname")?.to_ascii_lowercase();
    let is_usable =
        |(name, enctype): &&(String, String)| is_of_host(name, &host) && enctype.starts_with("aes");
    let shown = match keys.iter().find(is_usable).or(keys.first()) {
        Some((name, enctype)) => format!("{name} ({enctype})"),
        None => "none".to_owned(),
    };
    let is_met = keys.iter().any(|key| is_usable(&key));
    let fix = format!("kadmin -q 'ktadd -k {keytab} nfs/{host}'");
    Ok(Finding::judge(is_met, shown, format!("an AES key of nfs/{host}")).fix(fix))
}

/// True if a principal is of the host, whose name may lack the domain.
fn is_of_host(principal: &str, host: &str) -> bool {
    let name = principal.strip_prefix("nfs/").unwrap_or_default();
    let name = name.split_once('@').map_or(name, |(name, _)| name).to_ascii_lowercase();
    let has_domain = name.strip_prefix(host).is_some_and(|domain| domain.starts_with('.'));
    name == host || !host.contains('.') && has_domain
}

fn clock(scene: &Scene) -> Judged {
    nfs_keys(scene)?;
    let wanted = "synchronised, 60 s or less";
    let fix = "systemctl restart chrony; chronyc waitsync";
    if let Ok(text) = scene.host.output(&["chronyc", "-n", "tracking"]) {
        let offset = field_of(&text, "System time").unwrap_or_default();
        let seconds = offset.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        let seconds =
            seconds.ok_or_else(|| Finding::unknown("chronyc says nothing about the offset"))?;
        let is_synchronised = field_of(&text, "Leap status").is_some_and(|leap| leap == "Normal");
        let word = if is_synchronised { "" } else { ", not synchronised" };
        let is_met = is_synchronised && seconds <= SKEW_MAX;
        return Ok(Finding::judge(is_met, format!("{seconds:.1} s away{word}"), wanted).fix(fix));
    }
    let text = scene.host.output(&["timedatectl", "show"])?;
    let is_met = text.lines().any(|line| line == "NTPSynchronized=yes");
    let measured = if is_met { "synchronised" } else { "not synchronised" };
    Ok(Finding::judge(is_met, measured, wanted).fix("apt-get install chrony"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_keys_of_its_name() {
        for (principal, host, expected) in [
            ("nfs/gw.a.test@A", "gw", true),
            ("nfs/GW.a.test@A", "gw.a.test", true),
            ("nfs/gw2.a.test@A", "gw", false),
            ("nfs/gw.a.test@A", "gw.b.test", false),
        ] {
            assert_eq!(is_of_host(principal, host), expected, "{principal} {host}");
        }
    }

    #[test]
    fn lines_of_klist_are_keys_of_nfs_or_nothing() {
        let key = |line| nfs_key(line).map(|(name, enctype)| format!("{name} {enctype}"));
        let line = "   2 nfs/gw.test@A.TEST (aes256-cts-hmac-sha384-192) ";
        assert_eq!(key(line).as_deref(), Some("nfs/gw.test@A.TEST aes256-cts-hmac-sha384-192"));
        let old = "   2 nfs/gw.test@A.TEST (DEPRECATED:arcfour-hmac)";
        assert_eq!(key(old).as_deref(), Some("nfs/gw.test@A.TEST DEPRECATED:arcfour-hmac"));
        for line in ["", "Keytab name: FILE:/k", "KVNO Principal", "   2 host/gw.test@A.TEST (aes)"]
        {
            assert_eq!(key(line), None, "{line}");
        }
    }
}
