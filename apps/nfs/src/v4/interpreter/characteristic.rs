//! The operation by which a compound is timed (RFC 8881 §16.2): clients send each operation with
//! others that prepare it or report on it.
//!
//! The gateway asks for it when a compound is watched (`stages` of the engine).

use stag_protocol::{
    nfs::v4::{Compound, Operation},
    xdr::Reader,
};

/// Operations of a compound that are looked at. Clients send the one that matters among these.
const LOOKED_AT: usize = 16;

/// The first operation of a compound that does more than check a session, name objects and look at
/// their attributes. Without one: its GETATTR, or else its first operation. None for arguments that
/// cannot be decoded so far.
pub(crate) fn characteristic_operation(arguments: Reader<'_>) -> Option<Operation> {
    let mut best: Option<Operation> = None;
    for request in Compound::parse(arguments).ok()?.take(LOOKED_AT) {
        let operation = match request {
            Ok(request) => request.operation(),
            Err(fault) => fault.operation?,
        };
        if best.is_none_or(|best| rank(operation) > rank(best)) {
            best = Some(operation);
        }
        if rank(operation) == Rank::Acts {
            break;
        }
    }
    best
}

/// Share of an operation in what a compound is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Prepares,
    Names,
    LooksAt,
    Acts,
}

const fn rank(operation: Operation) -> Rank {
    match operation {
        Operation::Sequence => Rank::Prepares,
        Operation::PutFh
        | Operation::PutRootFh
        | Operation::PutPubFh
        | Operation::SaveFh
        | Operation::RestoreFh
        | Operation::GetFh => Rank::Names,
        Operation::GetAttr => Rank::LooksAt,
        _ => Rank::Acts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation's number, and the words of its arguments.
    type Op<'a> = (u32, &'a [u32]);

    /// Arguments of a compound of these operations.
    fn compound(operations: &[Op<'_>]) -> Vec<u8> {
        let head = [0, 2, operations.len() as u32];
        let words = operations
            .iter()
            .flat_map(|(number, words)| [*number].into_iter().chain(words.iter().copied()));
        head.into_iter().chain(words).flat_map(u32::to_be_bytes).collect()
    }

    #[test]
    fn a_compound_is_timed_by_the_operation_that_it_is_sent_for() {
        let sequence: Op<'_> = (53, &[0, 0, 0, 0, 1, 0, 0, 0]);
        let (put_root, save, get_fh): (Op<'_>, Op<'_>, Op<'_>) = ((24, &[]), (32, &[]), (10, &[]));
        let getattr: Op<'_> = (9, &[1, 0x10]);
        let access: Op<'_> = (3, &[0x1f]);
        let remove: Op<'_> = (28, &[1, 0x6100_0000]);
        let lookup: Op<'_> = (15, &[1, 0x6100_0000]);
        for (operations, expected) in [
            (vec![sequence], Operation::Sequence),
            (vec![sequence, put_root, get_fh], Operation::PutRootFh),
            (vec![sequence, put_root, getattr], Operation::GetAttr),
            (vec![sequence, put_root, access, getattr], Operation::Access),
            (vec![sequence, put_root, lookup, get_fh, getattr], Operation::Lookup),
            (vec![sequence, put_root, save, remove, access], Operation::Remove),
            (vec![sequence, put_root, (48, &[])], Operation::GetDeviceList),
            ([&[sequence][..], &[put_root; 15], &[remove]].concat(), Operation::PutRootFh),
        ] {
            let octets = compound(&operations);
            assert_eq!(characteristic_operation(Reader::new(&octets)), Some(expected));
        }
    }

    #[test]
    fn every_truncated_compound_has_an_operation_or_none() {
        let octets = compound(&[(53, &[0, 0, 0, 0, 1, 0, 0, 0]), (24, &[]), (9, &[1, 0x10])]);
        for cut in 0..octets.len() {
            let found = characteristic_operation(Reader::new(&octets[..cut]));
            assert!(!matches!(found, Some(Operation::Read)), "{cut}: {found:?}");
        }
        assert_eq!(characteristic_operation(Reader::new(&octets[..8])), None);
        assert_eq!(characteristic_operation(Reader::new(&compound(&[(10_044, &[])]))), None);
    }
}
