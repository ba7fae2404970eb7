//! Threads for shards, each pinned to a core of its own.

pub use core_affinity::CoreId;
use std::{fs, io, thread};

/// The cores this process may use, in order. Call this before the first thread is pinned: a pinned
/// thread sees only its own core.
pub fn cores() -> Vec<CoreId> {
    // `core_affinity` cannot pin to a core with a number of 1024 or more.
    core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .filter(|core| core.id < 1024)
        .collect()
}

/// The same cores with those for shards in front. Each shard gets the first free core on its wanted
/// node ([`None`]: any), or else the first free one.
pub fn near(mut cores: Vec<CoreId>, wanted: &[Option<u32>]) -> Vec<CoreId> {
    if wanted.iter().all(Option::is_none) {
        return cores;
    }
    place(&mut cores, wanted, |core| node_of(core.id));
    cores
}

fn place(cores: &mut [CoreId], wanted: &[Option<u32>], node_of: impl Fn(CoreId) -> Option<u32>) {
    for (seat, wanted) in wanted.iter().enumerate() {
        let Some(rest) = cores.get_mut(seat..) else { return };
        let is_near = |core: &CoreId| wanted.is_none() || node_of(*core) == *wanted;
        if let Some(place) = rest.iter().position(is_near) {
            // The cores that are skipped keep their order.
            if let Some(passed) = rest.get_mut(..=place) {
                passed.rotate_right(1);
            }
        }
    }
}

/// The NUMA node of a core.
fn node_of(core: usize) -> Option<u32> {
    let entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}")).ok()?;
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    entries.filter_map(name).find_map(|name| name.strip_prefix("node")?.parse().ok())
}

/// Starts a thread for one shard, pinned to `core` if there is one. `run` builds the shard in that
/// thread, so that its memory is on the same NUMA node.
///
/// Failure to pin is not an error: the thread runs on any core, and `run` gets the result in
/// `pinned`.
pub fn spawn<T: Send + 'static>(
    name: String,
    core: Option<CoreId>,
    run: impl FnOnce(bool) -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
    thread::Builder::new().name(name).spawn(move || {
        let pinned = core.is_some_and(core_affinity::set_for_current);
        run(pinned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_gets_a_core_on_its_node_while_there_is_one() {
        // Eight cores: even ones on node 0, odd ones on node 1.
        let placed = |wanted: &[Option<u32>]| {
            let mut cores: Vec<_> = (0..8).map(|id| CoreId { id }).collect();
            place(&mut cores, wanted, |core| Some(core.id as u32 % 2));
            cores.into_iter().map(|core| core.id).collect::<Vec<_>>()
        };
        assert_eq!(placed(&[]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(placed(&[None, None]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(placed(&[Some(1)]), [1, 0, 2, 3, 4, 5, 6, 7]);
        assert_eq!(placed(&[Some(1), Some(0), Some(1), None])[..4], [1, 0, 3, 2]);
        // The node is full: the other shards get cores of the other node.
        assert_eq!(placed(&[Some(1); 6])[..6], [1, 3, 5, 7, 0, 2]);
        assert_eq!(placed(&[Some(7); 2])[..2], [0, 1]);
        assert_eq!(placed(&[Some(0); 20]).len(), 8);
    }

    #[test]
    fn cores_of_this_host_are_placed_without_loss() {
        let all = cores();
        let mut placed = near(all.clone(), &[Some(0), Some(1), None]);
        placed.sort_by_key(|core| core.id);
        assert_eq!(placed, all);
    }
}
