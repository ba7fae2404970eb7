//! EXCHANGE_ID: its effect on the records of a client owner (RFC 8881 §18.35.4), and the order of
//! sequence IDs, which CREATE_SESSION and slots have in common.

use crate::nfs::v4::{Status4, exchange_flag};

/// The confirmed record that a server has for the owner of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedClient {
    /// The request has the verifier of the record.
    pub same_verifier: bool,
    /// The request has the principal of the record.
    pub same_principal: bool,
    /// The client has state, and its lease has not expired.
    pub holds_state: bool,
}

/// Outcome of EXCHANGE_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeStep {
    /// Add an unconfirmed record with a client ID of its own, and return that ID. An unconfirmed
    /// record of the owner is removed.
    Create {
        /// The confirmed record and its state are removed, too. Otherwise it stays until
        /// CREATE_SESSION confirms the new record.
        drop_confirmed: bool,
    },
    /// Return the ID of the confirmed record. An unconfirmed record of the owner is removed.
    Confirmed,
    /// Change the properties of the confirmed record, and return its ID.
    Update,
    /// Change nothing.
    Refuse(Status4),
}

/// Checks the flags of a request, and returns true if it is an update.
pub const fn is_update(flags: u32) -> Result<bool, Status4> {
    // RFC 8881 §18.35.3 [8881-22]: flags that are not defined are refused
    if flags & !exchange_flag::REQUEST_MASK != 0 {
        return Err(Status4::Inval);
    }
    Ok(flags & exchange_flag::UPD_CONFIRMED_REC_A != 0)
}

/// Decides on a request: the RFC's nine cases as one table.
pub const fn exchange_id(update: bool, confirmed: Option<ConfirmedClient>) -> ExchangeStep {
    use ExchangeStep::{Confirmed, Create, Refuse, Update};
    let Some(ConfirmedClient { same_verifier, same_principal, holds_state }) = confirmed else {
        // RFC 8881 §18.35.4 [8881-23]: cases 1 and 4, a new owner or an unconfirmed one
        // RFC 8881 §18.35.4 [8881-24]: case 7, an update needs a confirmed record
        return if update { Refuse(Status4::NoEnt) } else { Create { drop_confirmed: false } };
    };
    match (update, same_verifier, same_principal, holds_state) {
        // RFC 8881 §18.35.4 [8881-25]: case 2, the client is known
        (false, true, true, _) => Confirmed,
        // RFC 8881 §18.35.4 [8881-26]: case 5, a restart leaves the old record until it is replaced
        (false, false, true, _) => Create { drop_confirmed: false },
        // RFC 8881 §18.35.4 [8881-27]: case 3, another principal takes over no state
        (false, _, false, true) => Refuse(Status4::ClidInUse),
        (false, _, false, false) => Create { drop_confirmed: true },
        // RFC 8881 §18.35.4 [8881-28]: case 8, an earlier incarnation updates nothing
        (true, false, _, _) => Refuse(Status4::NotSame),
        // RFC 8881 §18.35.4 [8881-29]: case 9, another principal updates nothing
        (true, true, false, _) => Refuse(Status4::Perm),
        // RFC 8881 §18.35.4 [8881-30]: case 6, the update
        (true, true, true, _) => Update,
    }
}

/// Order of a sequence ID relative to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceOrder {
    /// The next one.
    New,
    /// The last one again.
    Retry,
    /// Any other.
    Misordered,
}

/// Compares a sequence ID with the last one of its slot.
pub const fn sequence_order(last: u32, asked: u32) -> SequenceOrder {
    // RFC 8881 §2.10.6.1 [8881-31]: sequence IDs rise by one and wrap around
    match asked.wrapping_sub(last) {
        0 => SequenceOrder::Retry,
        1 => SequenceOrder::New,
        // RFC 8881 §2.10.6.1 [8881-32]: any other sequence ID is misordered
        _ => SequenceOrder::Misordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn records() -> Vec<Option<ConfirmedClient>> {
        let of = |bits: u32| ConfirmedClient {
            same_verifier: bits & 1 > 0,
            same_principal: bits & 2 > 0,
            holds_state: bits & 4 > 0,
        };
        (0..8).map(|bits| Some(of(bits))).chain([None]).collect()
    }

    /// The RFC's cases, each as written there; exactly one fits.
    fn cases(update: bool, record: Option<ConfirmedClient>) -> Vec<(u32, ExchangeStep)> {
        use ExchangeStep::{Confirmed, Create, Refuse, Update};
        let confirmed = record.is_some();
        let verifier = record.is_some_and(|record| record.same_verifier);
        let principal = record.is_some_and(|record| record.same_principal);
        let state = record.is_some_and(|record| record.holds_state);
        let table = [
            (1, !update && !confirmed, Create { drop_confirmed: false }),
            (2, !update && confirmed && verifier && principal, Confirmed),
            (3, !update && confirmed && !principal && state, Refuse(Status4::ClidInUse)),
            (3, !update && confirmed && !principal && !state, Create { drop_confirmed: true }),
            (5, !update && confirmed && !verifier && principal, Create { drop_confirmed: false }),
            (6, update && confirmed && verifier && principal, Update),
            (7, update && !confirmed, Refuse(Status4::NoEnt)),
            (8, update && confirmed && !verifier, Refuse(Status4::NotSame)),
            (9, update && confirmed && verifier && !principal, Refuse(Status4::Perm)),
        ];
        table.iter().filter(|case| case.1).map(|case| (case.0, case.2)).collect()
    }

    #[test]
    fn every_state_and_every_request_end_as_the_cases_of_the_text_say() {
        let mut seen = std::collections::BTreeSet::new();
        for update in [false, true] {
            for record in records() {
                let fitting = cases(update, record);
                let [(number, expected)] = fitting[..] else { panic!("{fitting:?}") };
                seen.insert(number);
                assert_eq!(exchange_id(update, record), expected, "{update} {record:?}");
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn flags_that_a_client_may_not_set_are_refused_one_by_one() {
        let defined = [0, 1, 2, 8, 16, 17, 18, 30];
        for bit in 0..32 {
            let expected = if defined.contains(&bit) { Ok(bit == 30) } else { Err(Status4::Inval) };
            assert_eq!(is_update(1 << bit), expected, "bit {bit}");
        }
        assert_eq!(is_update(0), Ok(false));
    }

    #[test]
    fn one_sequence_id_is_next_one_is_a_retry_and_all_others_are_misordered() {
        for last in [0, 1, 7, u32::MAX - 1, u32::MAX] {
            for step in [0, 1, 2, 3, u32::MAX, u32::MAX - 1, 1 << 31] {
                let expected = match step {
                    0 => SequenceOrder::Retry,
                    1 => SequenceOrder::New,
                    _ => SequenceOrder::Misordered,
                };
                assert_eq!(sequence_order(last, last.wrapping_add(step)), expected);
            }
        }
        assert_eq!(sequence_order(u32::MAX, 0), SequenceOrder::New);
    }
}
