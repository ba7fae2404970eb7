//! One entry of the log of client records.
//!
//! Octets, numbers little-endian: length of all (2), kind (1), zero (1), epoch (4), then for a
//! client its verifier (8), flavor (4), user (4), epoch of its completion (4), flags (4: the lowest
//! bit, and in the others the mark of its host, which earlier versions leave zero), its principal
//! (16, in an entry of kind 8, whose user is zero), then the owner of a client or the name of a
//! gateway (0–1,024); last the checksum (8), SipHash-2-4 of the preceding entry's checksum and of
//! all octets of the entry before its own. So an entry is valid only after the one that it was
//! written after: remains of a failed attempt are not entries.
//!
//! An earlier version takes an entry of kind 8 for the end of the log.

use core::hash::Hasher as _;

use siphasher::sip::SipHasher24;
use stag_protocol::rpc::{PrincipalId, flavor};

use super::{ClientRecord, OWNER_MAX, OriginMark, Principal};

const SUM_LEN: usize = 8;
const HEAD_LEN: usize = 8;
const CLIENT_LEN: usize = 24;
/// A principal of Kerberos.
const IDENTITY_LEN: usize = 16;
/// Octets of the longest entry.
pub(super) const ENTRY_MAX: usize = HEAD_LEN + CLIENT_LEN + IDENTITY_LEN + OWNER_MAX + SUM_LEN;
/// The client may reclaim.
const MAY_RECLAIM: u32 = 1;

/// The checksum of the preceding entry; 0 for the first one.
pub(super) type Chain = u64;

/// A client in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoggedClient {
    pub record: ClientRecord,
    /// The epoch of the last boot in which it was complete.
    pub complete_in: u32,
    /// False once its state of that boot was revoked.
    pub may_reclaim: bool,
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A boot began.
    Boot,
    /// The current record of a client.
    Client(LoggedClient),
    /// A client is no longer recorded.
    Removed(Box<[u8]>),
    /// Write delegations are granted from here on.
    WriteDelegations,
    /// The grace period of the boot ended.
    GraceEnded,
    /// A takeover of another gateway's records has begun.
    TakingOver(Box<[u8]>),
    /// The takeover is complete.
    TakenOver(Box<[u8]>),
}

/// An entry, and the boot that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogEntry {
    pub epoch: u32,
    pub kind: EntryKind,
}

impl LogEntry {
    /// Appends the entry to `out`; returns the checksum that chains the next one.
    pub fn emit(&self, chain: Chain, out: &mut Vec<u8>) -> Chain {
        let start = out.len();
        let owner = self.owner();
        let len = HEAD_LEN + self.client_len() + owner.len() + SUM_LEN;
        debug_assert!(len <= ENTRY_MAX, "owners are checked before they are recorded");
        out.extend_from_slice(&(len as u16).to_le_bytes());
        out.extend_from_slice(&[self.number(), 0]);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        if let EntryKind::Client(client) = &self.kind {
            let ClientRecord { verifier, principal, origin, .. } = &client.record;
            out.extend_from_slice(verifier);
            let flags = origin.bits() << 1 | if client.may_reclaim { MAY_RECLAIM } else { 0 };
            let (flavor, uid, identity) = match principal {
                Principal::Anyone => (flavor::NONE, 0, None),
                Principal::Unix(uid) => (flavor::SYS, *uid, None),
                Principal::Proven(identity) => (flavor::GSS, 0, Some(identity)),
            };
            for word in [flavor, uid, client.complete_in, flags] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend(identity.iter().flat_map(|identity| identity.0));
        }
        out.extend_from_slice(owner);
        let sum = checksum(chain, out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_le_bytes());
        sum
    }

    /// Octets about a client, without its owner.
    const fn client_len(&self) -> usize {
        match &self.kind {
            EntryKind::Client(client) => match client.record.principal {
                Principal::Proven(_) => CLIENT_LEN + IDENTITY_LEN,
                Principal::Anyone | Principal::Unix(_) => CLIENT_LEN,
            },
            _ => 0,
        }
    }

    const fn number(&self) -> u8 {
        match self.kind {
            EntryKind::Boot => 1,
            EntryKind::Client(LoggedClient {
                record: ClientRecord { principal: Principal::Proven(_), .. },
                ..
            }) => 8,
            EntryKind::Client(_) => 2,
            EntryKind::Removed(_) => 3,
            EntryKind::WriteDelegations => 4,
            EntryKind::GraceEnded => 5,
            EntryKind::TakingOver(_) => 6,
            EntryKind::TakenOver(_) => 7,
        }
    }

    fn owner(&self) -> &[u8] {
        match &self.kind {
            EntryKind::Client(client) => &client.record.owner,
            EntryKind::Removed(name) | EntryKind::TakingOver(name) | EntryKind::TakenOver(name) => {
                name
            }
            _ => &[],
        }
    }

    /// The first entry of `octets`, which follow the checksum `chain`; its length; and the checksum
    /// that chains the next one. None when it is cut short or damaged.
    pub fn parse(octets: &[u8], chain: Chain) -> Option<(Self, usize, Chain)> {
        let len = usize::from(u16::from_le_bytes(*octets.first_chunk()?));
        let (signed, sum) = octets.get(..len)?.split_last_chunk::<SUM_LEN>()?;
        let sum = u64::from_le_bytes(*sum);
        if checksum(chain, signed) != sum {
            return None;
        }
        let mut rest = signed.get(2..)?;
        let [number, _] = take::<2>(&mut rest)?;
        let epoch = u32::from_le_bytes(take(&mut rest)?);
        let kind = match number {
            1 => EntryKind::Boot,
            2 => EntryKind::Client(client(rest, false)?),
            8 => EntryKind::Client(client(rest, true)?),
            3 => EntryKind::Removed(rest.into()),
            4 => EntryKind::WriteDelegations,
            5 => EntryKind::GraceEnded,
            6 => EntryKind::TakingOver(rest.into()),
            7 => EntryKind::TakenOver(rest.into()),
            _ => return None,
        };
        Some((Self { epoch, kind }, len, sum))
    }
}

fn client(mut rest: &[u8], is_proven: bool) -> Option<LoggedClient> {
    let verifier = take(&mut rest)?;
    let flavor = u32::from_le_bytes(take(&mut rest)?);
    let uid = u32::from_le_bytes(take(&mut rest)?);
    let complete_in = u32::from_le_bytes(take(&mut rest)?);
    let flags = u32::from_le_bytes(take(&mut rest)?);
    let principal = match flavor {
        _ if is_proven => Principal::Proven(PrincipalId(take(&mut rest)?)),
        flavor::NONE => Principal::Anyone,
        // An earlier version wrote the first 32 bits of a principal.
        flavor::GSS => Principal::Proven(PrincipalId::from_short(uid)),
        _ => Principal::Unix(uid),
    };
    if rest.len() > OWNER_MAX {
        return None;
    }
    let origin = OriginMark::from_bits(flags >> 1);
    let record = ClientRecord { owner: rest.into(), verifier, principal, origin };
    Some(LoggedClient { record, complete_in, may_reclaim: flags & MAY_RECLAIM != 0 })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*first)
}

/// Detects torn entries only: any process that can write to the home can forge one.
fn checksum(chain: Chain, octets: &[u8]) -> Chain {
    let mut hasher = SipHasher24::new_with_key(&[0; 16]);
    hasher.write(&chain.to_le_bytes());
    hasher.write(octets);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<LogEntry> {
        let client = |owner: &[u8]| {
            let principal = Principal::Unix(1000);
            let origin = OriginMark::of(&[7; 8], owner);
            let record = ClientRecord { owner: owner.into(), verifier: [7; 8], principal, origin };
            LoggedClient { record, complete_in: 3, may_reclaim: true }
        };
        let proven = |owner: &[u8]| {
            let mut client = client(owner);
            client.record.principal = Principal::Proven(PrincipalId([9; 16]));
            client
        };
        let removed = EntryKind::Removed(b"client".as_slice().into());
        let kinds = [
            EntryKind::Boot,
            EntryKind::Client(client(b"client")),
            EntryKind::Client(client(&[b'x'; OWNER_MAX])),
            EntryKind::Client(LoggedClient { may_reclaim: false, ..client(b"") }),
            EntryKind::Client(proven(b"client")),
            EntryKind::Client(proven(&[b'x'; OWNER_MAX])),
            removed,
            EntryKind::WriteDelegations,
            EntryKind::GraceEnded,
            EntryKind::TakingOver(b"other".as_slice().into()),
            EntryKind::TakenOver(b"other".as_slice().into()),
        ];
        kinds.map(|kind| LogEntry { epoch: 4, kind }).into()
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_only_behind_its_own() {
        for entry in entries() {
            let mut out = Vec::new();
            let chain = entry.emit(5, &mut out);
            assert!(out.len() <= ENTRY_MAX);
            assert_eq!(LogEntry::parse(&out, 5), Some((entry, out.len(), chain)));
            assert_eq!(LogEntry::parse(&out, 6), None);
        }
    }

    #[test]
    fn an_entry_of_an_earlier_version_names_no_host() {
        let principal = Principal::Unix(0);
        let (owner, origin) = (b"old".as_slice().into(), OriginMark::default());
        let record = ClientRecord { owner, verifier: [1; 8], principal, origin };
        let client = LoggedClient { record, complete_in: 2, may_reclaim: true };
        let entry = LogEntry { epoch: 2, kind: EntryKind::Client(client) };
        let mut out = Vec::new();
        entry.emit(0, &mut out);
        // Flags follow the head, the verifier and three words.
        assert_eq!(out[HEAD_LEN + 20..HEAD_LEN + 24], [1, 0, 0, 0], "as it was always written");
        assert_eq!(LogEntry::parse(&out, 0).map(|(entry, ..)| entry), Some(entry));
        assert!(origin.allows(OriginMark::of(&[1; 8], b"any host")));
    }

    #[test]
    fn a_principal_of_an_earlier_version_is_none_of_auth_sys() {
        let identity = PrincipalId([9; 16]);
        let (owner, origin) = (b"old".as_slice().into(), OriginMark::default());
        let principal = Principal::Unix(identity.short());
        let record = ClientRecord { owner, verifier: [1; 8], principal, origin };
        let client = LoggedClient { record, complete_in: 2, may_reclaim: true };
        let mut out = Vec::new();
        LogEntry { epoch: 2, kind: EntryKind::Client(client) }.emit(0, &mut out);
        // The flavor follows the head and the verifier.
        out[HEAD_LEN + 8..HEAD_LEN + 12].copy_from_slice(&flavor::GSS.to_le_bytes());
        let len = out.len() - SUM_LEN;
        let sum = checksum(0, &out[..len]);
        out[len..].copy_from_slice(&sum.to_le_bytes());
        let (entry, ..) = LogEntry::parse(&out, 0).unwrap();
        let EntryKind::Client(client) = entry.kind else { panic!("{entry:?}") };
        let listed = client.record.principal;
        assert!(listed.is_of(Principal::Proven(identity)) && !listed.is_of(principal));
        assert!(!listed.is_of(Principal::Proven(PrincipalId([8; 16]))));
        assert!(!Principal::Proven(identity).is_of(listed), "of a whole one nothing is left out");
    }

    #[test]
    fn an_entry_that_is_cut_or_damaged_anywhere_is_none() {
        for entry in entries() {
            let mut out = Vec::new();
            entry.emit(0, &mut out);
            for len in 0..out.len() {
                assert_eq!(LogEntry::parse(&out[..len], 0), None, "{len} octets of {entry:?}");
            }
            for at in 0..out.len() {
                let mut damaged = out.clone();
                damaged[at] ^= 1;
                assert_eq!(LogEntry::parse(&damaged, 0), None, "octet {at} of {entry:?}");
            }
        }
    }
}
