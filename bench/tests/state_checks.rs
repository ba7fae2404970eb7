//! Heap allocations of what READ, WRITE, GETATTR and SEQUENCE ask of the state of NFS version 4:
//! none.

use crate::counting::allocations;
use stag_nfs4_state::{
    AttributeSource, Claim, ClientKey, DelegationOffer, DelegationOutcome, DelegationPolicy,
    FileId, FileRef, IoAccess, IoGrant, LockRequest, LockerRef, OpenRequest, Opened, StateFault,
    StateLimits, StateRequest, StateTables,
};
use stag_protocol::nfs::v4::{LockType, Stateid, Status4, share};

const OPENED: FileId = FileId(1);
const DELEGATED: FileId = FileId(2);
const UNKNOWN: FileId = FileId(3);

fn open(tables: &mut StateTables, client: ClientKey, id: FileId) -> Opened {
    let policy =
        if id == DELEGATED { DelegationPolicy::ReadWrite } else { DelegationPolicy::Never };
    let request = OpenRequest {
        client,
        file: FileRef { id, handle: b"handle" },
        owner: b"owner",
        access: share::BOTH,
        deny: 0,
        claim: Claim::New,
        is_promised: false,
        offer: DelegationOffer { policy, has_back_channel: true, call: None, is_changing: false },
    };
    tables.open(&request, 0).unwrap()
}

#[test]
fn checks_of_read_write_getattr_and_sequence_allocate_nothing() {
    let mut tables = StateTables::new(0, 1, 90_000, StateLimits::default());
    let client = tables.add_client(1, false, 0).unwrap();
    tables.complete_reclaims(client, false).unwrap();
    let opened = open(&mut tables, client, OPENED).stateid;
    let DelegationOutcome::Given(delegation) = open(&mut tables, client, DELEGATED).delegation
    else {
        panic!("nothing stands in the way of a delegation")
    };
    let lock = LockRequest {
        client,
        file: OPENED,
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: LockerRef::New { open: opened, owner: b"lock" },
    };
    let locks = tables.lock(&lock, 0).unwrap();
    let filter = tables.presence();
    let before = allocations();
    for now in 0..10_000 {
        assert!(tables.renew(client, now));
        for (file, stateid) in [(OPENED, opened), (OPENED, locks), (DELEGATED, delegation.stateid)]
        {
            for access in [IoAccess::Read, IoAccess::Write] {
                let request = StateRequest { client, file, stateid };
                assert_eq!(tables.check_io(&request, access, now), Ok(IoGrant::Covered));
            }
        }
        let elsewhere = StateRequest { client, file: UNKNOWN, stateid: opened };
        let bad = Err(StateFault::Failed(Status4::BadStateid));
        assert_eq!(tables.check_io(&elsewhere, IoAccess::Read, now), bad);
        for file in [OPENED, DELEGATED, UNKNOWN] {
            let special = StateRequest { client, file, stateid: Stateid::ANONYMOUS };
            let granted = tables.check_io(&special, IoAccess::Write, now);
            assert_eq!(granted, Ok(IoGrant::Anonymous));
            let source = tables.check_attributes(file, Some(client));
            assert_eq!(source, Ok(AttributeSource::Store));
            assert_eq!(filter.may_conflict(file), file == DELEGATED);
        }
        tables.handle_time(now);
        assert_eq!(tables.poll_work(), None);
    }
    assert_eq!(allocations() - before, 0, "heap allocations in 10,000 rounds of checks");
}
