//! Tests of rights to bytes read by a ring.

use super::*;
use crate::files::tests::ring::Ringed;

#[test]
fn a_right_that_is_taken_away_while_a_ring_reads_is_gone_when_it_has_read() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.files.act_as(&user(ALICE));
    let Some(mut ringed) = Ringed::new(lab) else { return };
    let path = ringed.lab.path("f");
    let change = |mode| {
        stag_nfs_os::user::leave().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (mode, outcome) in [(0o644, Ok(())), (0o600, Err(Status::Acces)), (0o644, Ok(()))] {
        change(0o644);
        ringed.lab.files.act_as(&user(BOB));
        let fetched = ringed.begin_on_disk(100);
        change(mode);
        ringed.lab.files.act_as(&user(BOB));
        assert_eq!(ringed.end(100, fetched).map(drop), outcome, "{mode:o}");
    }
    change(0o600);
}
