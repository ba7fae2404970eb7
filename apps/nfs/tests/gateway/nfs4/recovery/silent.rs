//! Restarts while clients with state are silent: the time for which the server waits for them.

use super::{
    party::Party,
    world::{LEASE, World},
};
use stag_protocol::nfs::v4::Status4;

#[test]
fn a_silent_client_is_awaited_for_some_leases_only_and_keeps_its_state_without_a_restart() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut two = Party::new(b"two", &mut world);
    let held = one.open(&mut world, b"f").unwrap();
    let mut other = two.open(&mut world, b"f").unwrap();
    let pass = |world: &mut World, two: &mut Party, leases: u32| {
        for _ in 0..2 * leases {
            world.wait(LEASE / 2);
            assert_eq!(two.run(world, &[]).status(), Status4::Ok);
        }
    };
    pass(&mut world, &mut two, 6);
    // The record of one that comes back is made again.
    assert_eq!(one.run(&mut world, &[]).status(), Status4::Ok);
    assert_eq!(one.close(&mut world, &held), Status4::Ok, "its state was in no one's way");
    let held = one.open(&mut world, b"f").unwrap();
    pass(&mut world, &mut two, 3);
    world.restart();
    assert_eq!(world.report().awaited, 2, "it may come back");
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    let mut held = held;
    one.reclaim_all(&mut world, &mut held).unwrap();
    two.reclaim_all(&mut world, &mut other).unwrap();
    assert_eq!((one.complete(&mut world), two.complete(&mut world)), (Status4::Ok, Status4::Ok));
    pass(&mut world, &mut two, 6);
    world.restart();
    assert_eq!(world.report().awaited, 1, "no one waits for a client that is switched off");
    assert!(two.recovers(&mut world));
    two.reclaim_all(&mut world, &mut other).unwrap();
    assert_eq!(two.complete(&mut world), Status4::Ok);
    assert_eq!(world.report().in_grace, 0);
}
