//! Security flavors of exports, from the settings: an export's own ones, else those of `--sec`.

use super::{exports::Exported, options::ServeOptions};
use crate::{
    Error,
    settings::{ExportEntry, Merged, Origins},
};
use stag_nfs_store::exports::security::SecurityFlavors;

/// Returns true if the server can verify tickets of Kerberos, which takes a keytab.
pub const fn has_kerberos(arguments: &ServeOptions) -> bool {
    arguments.kerberos.keytab.is_some()
}

/// The flavors of exports without any of their own; none if they accept every call.
///
/// # Errors
/// When a flavor is given twice, or one needs tickets that this server cannot verify.
pub fn usual(
    settings: &Merged<ServeOptions>,
    has_kerberos: bool,
) -> Result<Option<SecurityFlavors>, Error> {
    let flavors = SecurityFlavors::of(&settings.options.sec).map_err(|twice| {
        Error::usage(format!("--sec has {} twice: leave one out", twice.word()))
    })?;
    check(&settings.exports, &settings.origins, flavors, has_kerberos)?;
    // Once tickets are verified, an export without flavors must not accept them by omission.
    Ok(flavors.or(has_kerberos.then_some(SecurityFlavors::SYS)))
}

/// Refuses flavors that need tickets where none can be verified.
fn check(
    entries: &[ExportEntry],
    origins: &Origins,
    usual: Option<SecurityFlavors>,
    has_kerberos: bool,
) -> Result<(), Error> {
    let refused = |flavors: Option<SecurityFlavors>| {
        flavors.filter(|flavors| !has_kerberos && flavors.need_kerberos())
    };
    let fault = |place: String, flavors: SecurityFlavors| {
        Error::usage(format!(
            "{place}sec: {flavors} needs tickets of Kerberos, which this server cannot verify \
             without a keytab: name one, [kerberos] with keytab = \"/etc/krb5.keytab\", or accept \
             sys alone"
        ))
    };
    if let Some(flavors) = refused(usual) {
        return Err(fault("--".to_owned(), flavors));
    }
    for entry in entries {
        let clients = entry.rules.clients.iter().zip(&entry.client_places);
        let of_clients =
            clients.map(|(rule, place)| (rule.options.security, place.line, &place.keys));
        let own = (entry.rules.options.security, entry.line, &entry.keys);
        let wrong = std::iter::once(own).chain(of_clients).find_map(|(flavors, line, keys)| {
            let line = keys.iter().find(|(key, _)| key == "sec").map_or(line, |(_, line)| *line);
            Some((refused(flavors)?, line))
        });
        if let Some((flavors, line)) = wrong {
            return Err(fault(format!("{}: ", origins.at(line)), flavors));
        }
    }
    Ok(())
}

/// Gives exports without flavors the usual ones.
pub fn settle(exports: &mut [Exported], usual: Option<SecurityFlavors>) {
    for export in exports {
        let own = &mut export.rules.options.security;
        *own = own.or(usual);
    }
}

/// The flavors of a store in memory, which all exports share.
///
/// # Errors
/// When exports have different ones.
pub fn of_memory(exports: &[Exported]) -> Result<Option<SecurityFlavors>, Error> {
    let mut all = exports.iter().map(|export| export.rules.options.security);
    let first = all.next().flatten();
    match all.all(|flavors| flavors == first) {
        true => Ok(first),
        false => Err(Error::usage(
            "--memory has one list of security flavors for all exports: give --sec, or the same \
             sec for each",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_nfs_store::Security;

    fn entry(flavors: &[Security]) -> ExportEntry {
        let mut entry = ExportEntry { line: 3, ..ExportEntry::default() };
        entry.keys.push(("sec".to_owned(), 5));
        entry.rules.options.security = SecurityFlavors::of(flavors).unwrap();
        entry
    }

    #[test]
    fn flavors_of_kerberos_need_a_keytab() {
        let origins = Origins::default();
        let judge = |entry: ExportEntry, usual: &[Security], has_kerberos| {
            let usual = SecurityFlavors::of(usual).unwrap();
            check(&[entry], &origins, usual, has_kerberos).map_err(|error| error.to_string())
        };
        let strict = [Security::Krb5p, Security::Sys];
        for has_kerberos in [false, true] {
            assert_eq!(judge(entry(&[Security::Sys]), &[Security::Sys], has_kerberos), Ok(()));
        }
        assert_eq!(judge(entry(&strict), &strict, true), Ok(()));
        let own = judge(entry(&strict), &[], false).unwrap_err();
        assert!(own.contains("5: sec: krb5p:sys needs tickets"), "{own}");
        assert!(own.contains("keytab"), "{own}");
        let usual = judge(entry(&[]), &strict, false).unwrap_err();
        assert!(usual.starts_with("--sec: krb5p:sys needs tickets"), "{usual}");
    }

    #[test]
    fn exports_without_flavors_get_the_usual_ones_and_memory_has_one_list() {
        let export = |flavors: &[Security]| {
            let mut export = Exported::new("e".to_owned(), None, false);
            export.rules.options.security = SecurityFlavors::of(flavors).unwrap();
            export
        };
        let mut exports = vec![export(&[Security::Krb5]), export(&[])];
        assert!(of_memory(&exports).is_err());
        settle(&mut exports, Some(SecurityFlavors::only(Security::Krb5)));
        let krb5 = Some(SecurityFlavors::only(Security::Krb5));
        assert_eq!(of_memory(&exports).unwrap(), krb5);
        assert_eq!(of_memory(&[export(&[])]).unwrap(), None);
    }
}
