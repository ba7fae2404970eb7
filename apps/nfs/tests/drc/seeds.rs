//! Random calls, lost at random steps and repeated until they are answered: each is carried out
//! once.

use crate::drc::calls::{WAYS, create, mkdir, place, remove};
use crate::drc::world::{Loss, World, status};
use fastrand::Rng;
use stag_protocol::nfs::v3::{Call, RemoveArgs, RenameArgs, SetAttrArgs, SetAttributes, Status};

#[derive(Default)]
struct Names {
    files: Vec<Vec<u8>>,
    directories: Vec<Vec<u8>>,
}

/// Calls a random procedure, which succeeds once. Returns how often it was tried.
fn play(world: &mut World, dice: &mut Rng, names: &mut Names, xid: u32) -> u64 {
    let root = world.root;
    let fresh = format!("name-{xid}").into_bytes();
    let any = |list: &mut Vec<Vec<u8>>, dice: &mut Rng| {
        (!list.is_empty()).then(|| list.swap_remove(dice.usize(..list.len())))
    };
    let taken = match dice.usize(..6) {
        0 | 1 => None,
        2 | 3 => any(&mut names.files, dice).map(|name| (name, true)),
        _ => any(&mut names.directories, dice).map(|name| (name, false)),
    };
    let call = match (&taken, dice.usize(..3)) {
        (None, 0) => create(root, &fresh),
        (None, 1) => mkdir(root, &fresh),
        (None, _) => {
            let attributes = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
            Call::SetAttr(SetAttrArgs { object: root, attributes, guard: None })
        }
        (Some((name, true)), 0 | 1) => remove(root, name),
        (Some((name, false)), 0 | 1) => Call::RmDir(RemoveArgs { object: place(root, name) }),
        (Some((name, _)), _) => {
            Call::Rename(RenameArgs { from: place(root, name), to: place(root, &fresh) })
        }
    };
    let octets = world.encode(xid, &call);
    for tries in 1.. {
        let shard = dice.usize(..world.shards());
        // TCP is real time: seldom.
        let ways = if dice.usize(..8) == 0 { 5 } else { 4 };
        let way = WAYS[dice.usize(..ways)];
        let loss = match dice.usize(..4) {
            0 => Loss::Never,
            1 => Loss::Reply,
            _ => Loss::Step(dice.u32(..16)),
        };
        let Some(reply) = world.attempt(shard, way, loss, &octets) else { continue };
        assert_eq!(
            status(&reply),
            Status::Ok,
            "{:?} {:?}",
            call.procedure(),
            String::from_utf8_lossy(&fresh)
        );
        match call {
            Call::Create(_) => names.files.push(fresh),
            Call::MkDir(_) => names.directories.push(fresh),
            Call::Rename(_) if matches!(taken, Some((_, true))) => names.files.push(fresh),
            Call::Rename(_) => names.directories.push(fresh),
            _ => {}
        }
        return tries;
    }
    unreachable!("tries are not limited")
}

fn play_seeds(seeds: std::ops::Range<u64>) {
    let mut tries = 0;
    let mut xid = 0;
    let mut world = World::new(seeds.start, 2, 64);
    let mut names = Names::default();
    let calls = 6;
    for seed in seeds.clone() {
        let mut dice = Rng::with_seed(seed);
        for _ in 0..calls {
            xid += 1;
            tries += play(&mut world, &mut dice, &mut names, xid);
            assert_eq!(
                world.executions(),
                xid.into(),
                "seed {seed} of {seeds:?}: each call is carried out once"
            );
        }
    }
    assert!(
        tries > u64::from(xid) + u64::from(xid) / 4,
        "{tries} tries of {xid} calls: connections were lost"
    );
    let there = std::fs::read_dir(world.home.path().join("data")).unwrap().count();
    assert_eq!(there, names.files.len() + names.directories.len());
    world.assert_empty();
}

#[test]
fn whatever_is_lost_each_call_is_carried_out_once() {
    // The gate sets CI.
    let usual = if std::env::var_os("CI").is_some() { 5_000 } else { 2_000 };
    let count: u64 = std::env::var("STAG_SEEDS").map_or(usual, |count| count.parse().unwrap());
    let batch = 100;
    (0..count.div_ceil(batch)).for_each(|i| play_seeds(i * batch..(i + 1) * batch));
}
