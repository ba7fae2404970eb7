//! Three clients of version 4 and one of version 3, at a server of two shards that is killed and
//! started again. No two clients have conflicting rights, nothing changes against a promise to a
//! client, and nothing waits forever. One seed is one play.

mod deeds;
mod disk;
mod ledger;
mod mail;
mod player;
mod recovery;
mod scene;
mod stray;
mod world;

use crate::waiting::plays::play_all;
use fastrand::Rng;
use stag_nfs_store::Store;
use std::rc::Rc;
use {
    disk::Disk,
    ledger::Counts,
    player::Player,
    scene::{Stage, on_files},
    world::World,
};

/// Clients of version 4.
const PLAYERS: usize = 3;
/// Things that each of them does.
const DEEDS: usize = 60;

fn play<S: Store + 'static>(seed: u64, stage: Stage<S>) -> Counts {
    let mut dice = Rng::with_seed(seed);
    let mut world = World::new(seed, stage);
    let scene = world.scene();
    for _ in 0..PLAYERS {
        let (number, uid, mail) = world.client();
        let player = Player::new(number, uid, &mail, &scene, seed);
        world.spawn(number, Rc::clone(&player).play(DEEDS));
        world.spawn(number, player.tend());
    }
    let (number, uid, mail) = world.client();
    let stray = Player::new(number, uid, &mail, &scene, seed);
    world.spawn(number, stray.stray(DEEDS));
    world.lose([0, 100, 1_000, 4_000][dice.usize(..4)]);
    let kill_chance = [u64::MAX, 20_000, 4_000][dice.usize(..3)];
    let mut kills = 0;
    while world.is_busy() {
        if kill_chance != u64::MAX && kills < 4 && dice.u64(..kill_chance) == 0 {
            kills += 1;
            world.kill(&mut dice);
        }
        if dice.u32(..300) == 0 {
            let steps = dice.u64(..100);
            world.stick(dice.usize(..2), steps);
        }
        world.step();
    }
    world.end();
    scene.ledger.borrow().counts
}

/// On a store in memory whose calls take their time.
fn play_slowly(seed: u64) -> Counts {
    play(seed, Disk::stage(seed))
}

/// On a directory of this host, whose files both shards change at once.
fn play_on_files(seed: u64) -> Counts {
    let home = tempfile::tempdir().unwrap();
    play(seed, on_files(home.path()))
}

#[test]
fn no_two_clients_have_what_excludes_the_other_whatever_is_lost_and_whoever_is_killed() {
    run(play_slowly);
}

#[test]
fn the_same_holds_on_a_directory_where_each_shard_changes_files_at_once() {
    run(play_on_files);
}

fn run(play: fn(u64) -> Counts) {
    let (count, sum) = play_all(300, 6, play);
    println!("{count} seeds: {sum:?}");
    if count >= 50 {
        assert!(sum.opens > count && sum.locks > count && sum.delegations > count, "{sum:?}");
        assert!(sum.denied > 0 && sum.recalled > 0 && sum.losses > 0, "{sum:?}");
        assert!(sum.kills > 0 && sum.reclaimed > 0, "{sum:?}");
        assert!(sum.forwarded > count && sum.lent > count, "{sum:?}");
    }
}
