//! Keytabs, and frames of Kerberos' tokens.

use super::InputVerdict;
use stag_gssapi::{KrbError, is_request, keytab};

/// A keytab: entries are within the file, and a shorter file has no other ones.
pub fn keytab(input: &[u8]) -> InputVerdict {
    let entries = match keytab::parse(input) {
        Ok(entries) => entries,
        Err(defect) => return InputVerdict::refused(&defect),
    };
    // The length of an entry, four lengths within it, a type, a time, a version.
    assert!(entries.len() * 21 <= input.len() && entries.len() <= keytab::KEYTAB_ENTRIES_MAX);
    for entry in &entries {
        let text = entry.principal();
        assert!(text.contains('@') && !text.contains(char::is_control), "{text:?}");
    }
    let cut = input.split_last().and_then(|(_, cut)| keytab::parse(cut).ok());
    assert!(cut.is_none_or(|cut| entries.starts_with(&cut)));
    InputVerdict::accepted((entries.len().min(8), entries.iter().any(|entry| entry.is_of("nfs"))))
}

/// A token of the peer: an AP-REQ or a KRB-ERROR, and neither if its end is missing.
pub fn token(input: &[u8]) -> InputVerdict {
    let (error, is_request) = (KrbError::parse(input), is_request(input));
    if error.is_some() || is_request {
        let cut = input.split_last().map_or(input, |(_, cut)| cut);
        assert!(KrbError::parse(cut).is_none() && !stag_gssapi::is_request(cut));
    }
    match error {
        None if is_request => InputVerdict::accepted(true),
        None => InputVerdict::refused(&Some(())),
        Some(error) => {
            assert!(!is_request);
            let time = error.server_time.to_string();
            assert!(("1970-01-01 00:00:00 UTC"..="9999-12-31 23:59:59 UTC").contains(&&*time));
            InputVerdict::accepted((error.code.min(64), error.client_time.is_some()))
        }
    }
}
