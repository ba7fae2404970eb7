//! Kills at random moments, with torn logs, full disks and clients that come late: no client
//! reclaims a lock that another has had since.

use super::{
    party::{Held, Party},
    world::{LEASE, World},
};
use stag_protocol::nfs::v4::Status4;
use std::time::Duration;

/// Seeds that the gate plays; `STAG_SEEDS` plays others.
const SEEDS: u64 = 40;
const STEPS: usize = 60;
const OWNERS: [&[u8]; 3] = [b"one", b"two", b"three"];

/// Numbers from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A client as it sees itself.
struct Player {
    party: Party,
    /// Its open of the one file, with its lock if it believes to have it.
    held: Option<Held>,
}

struct Play {
    world: World,
    chance: Chance,
    players: Vec<Player>,
    /// The player that was granted the lock last.
    last: Option<usize>,
    /// Locks that were reclaimed.
    reclaimed: usize,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut world = World::new();
        let players =
            OWNERS.map(|owner| Player { party: Party::new(owner, &mut world), held: None });
        let chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { world, chance, players: players.into(), last: None, reclaimed: 0 }
    }

    fn step(&mut self) {
        let at = self.chance.below(3) as usize;
        match self.chance.below(20) {
            0 => self.kill(),
            1 => {
                let seconds = [1, 30, 100][self.chance.below(3) as usize];
                self.world.wait(Duration::from_secs(seconds));
            }
            2 => {
                let is_full = self.chance.below(2) == 0;
                self.world.disk.content().is_full = is_full;
                self.world.wait(Duration::from_secs(2));
            }
            3..=12 => self.lock(at),
            _ => self.close(at),
        }
    }

    /// Kills the server. What it wrote last without acknowledging anything is there in part.
    fn kill(&mut self) {
        self.world.disk.content().is_full = false;
        let log = self.world.disk.log();
        let torn = [&log[..], &[0x5a; 7][..self.chance.below(8) as usize]].concat();
        self.world.disk.set_log(&torn);
        self.world.restart();
        if self.chance.below(3) == 0 {
            // No client comes back in time.
            self.world.wait(LEASE + Duration::from_secs(1));
        }
    }

    /// Lets a player find out what became of its session; it reclaims if it has to.
    fn look(&mut self, at: usize) {
        let player = &mut self.players[at];
        if !player.party.recovers(&mut self.world) {
            return;
        }
        if let Some(mut held) = player.held.take() {
            let had_lock = held.locks.is_some();
            match player.party.reclaim_all(&mut self.world, &mut held) {
                Ok(()) => {
                    if had_lock {
                        assert_eq!(self.last, Some(at), "another has had the lock since");
                        self.reclaimed += 1;
                    }
                    player.held = Some(held);
                }
                Err(status) => {
                    let is_refusal = matches!(status, Status4::NoGrace | Status4::ReclaimConflict);
                    assert!(is_refusal, "{status:?}");
                }
            }
        }
        // It may come too late for the grace period, and has to be complete in any case.
        let complete = player.party.complete(&mut self.world);
        assert!(matches!(complete, Status4::Ok | Status4::Delay), "{complete:?}");
    }

    fn lock(&mut self, at: usize) {
        self.look(at);
        let player = &mut self.players[at];
        if player.held.is_none() {
            match player.party.open(&mut self.world, b"f") {
                Ok(held) => player.held = Some(held),
                Err(status) => return assert_waits(status),
            }
        }
        let Some(held) = player.held.as_mut().filter(|held| held.locks.is_none()) else { return };
        match player.party.lock(&mut self.world, held, false) {
            Ok(()) => self.last = Some(at),
            Err(Status4::Denied) => {}
            Err(status) => assert_waits(status),
        }
    }

    fn close(&mut self, at: usize) {
        self.look(at);
        let player = &mut self.players[at];
        if let Some(held) = player.held.take() {
            assert_eq!(player.party.close(&mut self.world, &held), Status4::Ok);
        }
    }
}

fn assert_waits(status: Status4) {
    assert!(matches!(status, Status4::Grace | Status4::Delay), "{status:?}");
}

#[test]
fn nobody_takes_a_lock_back_that_another_has_had_since() {
    let seeds = std::env::var("STAG_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut reclaimed = 0;
    for seed in 1..=seeds.unwrap_or(SEEDS) {
        let mut play = Play::new(seed);
        for step in 0..STEPS {
            let before = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play.step()));
            assert!(before.is_ok(), "seed {seed}, step {step}");
        }
        reclaimed += play.reclaimed;
    }
    assert!(reclaimed > 0, "kills met locks");
}
