//! Each target holds what it promises for inputs that follow from a seed. `STAG_FUZZ_SEED` gives
//! another seed, `STAG_FUZZ_RUNS` more inputs for each target.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_fuzz::{
    Session, TARGETS, TARGETS as ALL, find, random::FuzzRandom, run::attempt, targets::TYPES,
};

/// Inputs for a target that is fast, and for one that is slow.
const RUNS: [u64; 2] = [60_000, 1_500];

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn mutations(name: &str) {
    let target = find(name).unwrap();
    let seed = variable("STAG_FUZZ_SEED").unwrap_or(1);
    let runs = variable("STAG_FUZZ_RUNS").unwrap_or(RUNS[usize::from(target.is_slow)]);
    let mut session = Session::new(target, seed);
    session.run(runs).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{name}: {} of {runs} accepted, {} outcomes", session.accepted, session.outcomes());
    // Neither all noise nor all well: code past the first check is reached.
    assert!(
        session.accepted * 50 > runs && session.accepted < runs,
        "{} of {runs}",
        session.accepted
    );
    assert!(session.outcomes() > 3);
}

macro_rules! each {
    ($($target:ident),+ $(,)?) => {
        mod holds {
            $(#[test] fn $target() { super::mutations(stringify!($target)); })+
        }

        #[test]
        fn every_target_has_a_test() {
            let tested = [$(stringify!($target)),+].into_iter();
            assert!(tested.eq(ALL.iter().map(|target| target.name)));
        }
    };
}

each!(
    xdr,
    types,
    rpc_call,
    rpc_reply,
    rpc_auth,
    rpc_record,
    gss_credential,
    gss_init,
    gss_body,
    gss_token,
    cm_private,
    rpcrdma_v1,
    rpcrdma_v2,
    rpcrdma_plan_call,
    rpcrdma_responder,
    rpcrdma_requester,
    rpcrdma_message,
    rpcrdma_connection,
    mpa,
    fpdu,
    ddp,
    rdmap,
    iwarp_connection,
    mount,
    nfs3_call,
    nfs3_reply,
    nfs4_compound,
    nfs4_reply,
    nfs4_callback,
    nfs4_attributes,
    nfs4_state,
    file_handle,
    keytab,
    krb_token,
    stages,
    shard,
    compound,
    shard_requester,
    shard_tcp,
    shm_link,
);

/// Shows that a seed always leads to the same sequence of inputs, so that a seed is enough to find
/// a failure again.
#[test]
fn a_seed_is_one_sequence_of_inputs() {
    for target in TARGETS.iter().filter(|target| !target.is_slow) {
        let run = || {
            let mut session = Session::new(target, 5);
            session.run(500).unwrap_or_else(|failure| panic!("{failure}"));
            (session.accepted, session.outcomes())
        };
        assert_eq!(run(), run(), "{}", target.name);
    }
}

/// parse(emit(x)) == x is shown by values, not by refusals.
#[test]
fn values_of_every_type_survive() {
    let mut random = FuzzRandom::new(9);
    for (name, check) in TYPES {
        let drawn = (0..6_000).filter(|_| {
            let words: Vec<u8> = (0..100).flat_map(|_| random.word().to_be_bytes()).collect();
            matches!(check(&words), stag_fuzz::InputVerdict::Accepted(_))
        });
        let drawn = drawn.count();
        assert!(drawn > 20, "{name}: {drawn}");
    }
}

/// The budget of steps for each message is one that a walk over the blocks of a hole exceeds
/// (`stag_nfs`, `store::memory::content`, has the walk), and a hole of 2^62 octets does not.
#[test]
fn a_huge_hole_takes_few_steps() {
    let outcome = attempt(find("compound").unwrap(), &stag_fuzz::make::huge_hole()).unwrap();
    assert!(matches!(outcome, stag_fuzz::InputVerdict::Accepted(_)), "{outcome:?}");
}

/// A property that does not hold is found, named and can be made short.
#[test]
fn a_failure_is_found_and_shortened() {
    use stag_fuzz::{FuzzTarget, InputVerdict, mutate::InputShape, run::shrink};
    static BROKEN: FuzzTarget = FuzzTarget {
        name: "broken",
        shape: InputShape::Words,
        is_slow: false,
        check: |input| {
            let word =
                input.get(4..).and_then(<[u8]>::first_chunk).map(|word| u32::from_be_bytes(*word));
            assert_ne!(word, Some(u32::MAX), "planted");
            InputVerdict::Refused(0)
        },
        make: |random| random.octets(64),
    };
    let mut session = Session::new(&BROKEN, 1);
    let failure = session.run(1_000_000).unwrap_err();
    assert!(failure.message.contains("planted") && failure.origin.is_some());
    let mut again = Session::new(&BROKEN, 1);
    again.run(failure.origin.unwrap().1).expect("no failure before");
    assert_eq!(again.run(1).unwrap_err().input, failure.input);
    let shortest = shrink(&BROKEN, failure);
    assert_eq!(shortest.input, [0, 0, 0, 0, 255, 255, 255, 255]);
    assert!(attempt(&BROKEN, &shortest.input[..7]).is_ok());
}
