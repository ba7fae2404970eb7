//! Random operations on a store and on a model too simple to be wrong: both must agree on every
//! one.

use std::collections::BTreeMap;

use fastrand::Rng;
use stag_engine::Extents;
use stag_protocol::nfs::v4::StatOctets;

use super::*;

#[derive(Clone, Debug)]
enum Thing {
    File(Vec<u8>),
    Directory { names: BTreeMap<Vec<u8>, usize>, above: usize },
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
struct KnownObject {
    handle: FileHandle,
    thing: Thing,
    links: u32,
}

/// Bytes that a READ returned, and their extents, which must never change.
struct Held {
    extents: Extents,
    octets: Vec<u8>,
}

struct Game<S> {
    bench: Bench<S>,
    dice: Rng,
    things: Vec<KnownObject>,
    held: Vec<Held>,
    reach: usize,
    /// Operations refused for lack of space.
    short: u32,
}

type Told<T> = Result<T, Status>;

impl<S: Store + Procedures> Game<S> {
    fn new(seed: u64, mut bench: Bench<S>, reach: usize) -> Self {
        let root = bench.root;
        bench.store.remove(&root, b"present").unwrap();
        let root = KnownObject {
            handle: root,
            thing: Thing::Directory { names: BTreeMap::new(), above: 0 },
            links: 1,
        };
        let dice = Rng::with_seed(seed);
        Self { bench, dice, things: vec![root], held: Vec::new(), reach, short: 0 }
    }

    fn any(&mut self) -> usize {
        self.dice.usize(..self.things.len())
    }

    /// An offset in a file: often at the edge of a block or of a small slot.
    fn offset(&mut self, reach: usize) -> usize {
        let edge = [0, 4096, 65_536, 131_072][self.dice.usize(..4)] + self.dice.usize(..9);
        let at = if self.dice.bool() { edge.saturating_sub(4) } else { self.dice.usize(..reach) };
        at.min(reach)
    }

    fn directory(&mut self) -> usize {
        // Now and then a removed or an invalid one. A store may know a removed file a little
        // longer.
        let careless = self.dice.usize(..20) == 0;
        let fits = |at: &usize| {
            let (alive, is_directory) = (self.things[*at].links > 0, self.is_directory(*at));
            (alive && is_directory) || (careless && (alive || is_directory))
        };
        let all: Vec<_> = (0..self.things.len()).filter(fits).collect();
        all[self.dice.usize(..all.len())]
    }

    fn name(&mut self) -> Vec<u8> {
        vec![self.dice.u8(b'a'..=b'e')]
    }

    /// The names of a live directory.
    fn names(&self, at: usize) -> Told<&BTreeMap<Vec<u8>, usize>> {
        let known = &self.things[at];
        if known.links == 0 {
            return Err(Status::Stale);
        }
        match &known.thing {
            Thing::Directory { names, .. } => Ok(names),
            _ => Err(Status::NotDir),
        }
    }

    fn names_mut(&mut self, at: usize) -> &mut BTreeMap<Vec<u8>, usize> {
        match &mut self.things[at].thing {
            Thing::Directory { names, .. } => names,
            other => panic!("{other:?} is no directory"),
        }
    }

    fn is_directory(&self, at: usize) -> bool {
        matches!(self.things[at].thing, Thing::Directory { .. })
    }

    fn lies_in(&self, mut at: usize, other: usize) -> bool {
        loop {
            match &self.things[at].thing {
                _ if at == other => return true,
                Thing::Directory { above, .. } if *above != at => at = *above,
                _ => return false,
            }
        }
    }

    /// Returns true if an operation was refused for lack of space, which the model does not have;
    /// counts these refusals.
    fn is_short<T>(&mut self, told: &Told<T>) -> bool {
        let short = matches!(told, Err(Status::NoSpc | Status::Jukebox));
        self.short += u32::from(short);
        short
    }

    fn make(&mut self) {
        let (at, name) = (self.directory(), self.name());
        let dir = self.things[at].handle;
        let set = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
        let target = vec![b't'; self.dice.usize(1..=300)];
        let store = &mut self.bench.store;
        let (made, thing) = match self.dice.usize(..4) {
            0 => (
                store.mkdir(&dir, &name, &set),
                Thing::Directory { names: BTreeMap::new(), above: at },
            ),
            1 => (store.symlink(&dir, &name, &target, &set), Thing::Link(target)),
            _ => (store.create(&dir, &name, &CreateMode::Guarded(set)), Thing::File(Vec::new())),
        };
        let told = made.map(|made| made.handle).map_err(|failed| failed.status);
        if self.is_short(&told) {
            return;
        }
        let expected = self.names(at).and_then(|names| match names.get(&name) {
            Some(_) => Err(Status::Exist),
            None => Ok(()),
        });
        assert_eq!(told.map(|_| ()), expected);
        if let Ok(handle) = told {
            let number = self.things.len();
            assert!(
                self.things.iter().all(|known| known.handle != handle),
                "a handle is never used again"
            );
            self.things.push(KnownObject { handle, thing, links: 1 });
            self.names_mut(at).insert(name, number);
        }
    }

    fn write(&mut self) {
        let at = self.any();
        let (offset, len) = (self.offset(self.reach), self.offset(self.reach / 2));
        let fill = self.dice.u8(1..);
        let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add((i / 7) as u8)).collect();
        let handle = self.things[at].handle;
        let told = self.write_shared_or_not(&handle, offset as u64, &data);
        if self.things[at].links == 0 || self.is_short(&told) {
            return;
        }
        match &mut self.things[at].thing {
            Thing::File(octets) => {
                let count = told.unwrap() as usize;
                assert!(count == len || self.short > 0 || count > 0, "{count} of {len}");
                if count > 0 {
                    octets.resize(octets.len().max(offset + count), 0);
                    octets[offset..offset + count].copy_from_slice(&data[..count]);
                }
            }
            Thing::Directory { .. } => assert_eq!(told, Err(Status::IsDir)),
            Thing::Link(_) => assert_eq!(told, Err(Status::Inval)),
        }
    }

    /// As if it had been pulled to a buffer of the store, when there is one.
    fn write_shared_or_not(&mut self, handle: &FileHandle, offset: u64, data: &[u8]) -> Told<u32> {
        let sink = if self.dice.bool() { self.bench.store.sink(data.len()) } else { None };
        let shared = sink.map(|mut sink| {
            sink.append(data).unwrap();
            sink.freeze()
        });
        let octets = shared.clone();
        let octets = octets.as_deref().unwrap_or(data);
        let payload = WritePayload { octets, shared };
        let done = self.bench.store.write(handle, offset, payload, StableHow::Unstable);
        done.map(|done| done.count).map_err(|failed| failed.status)
    }

    fn read(&mut self) {
        let at = self.any();
        let (offset, count) = (self.offset(self.reach), self.offset(self.reach));
        let handle = self.things[at].handle;
        let told = self.bench.read(&handle, offset as u64, count as u32);
        if self.things[at].links == 0 {
            return;
        }
        match &self.things[at].thing {
            Thing::File(octets) => {
                let done = told.unwrap();
                let got: Vec<u8> = done.data.iter().flat_map(|part| part.to_vec()).collect();
                let expected =
                    octets.get(offset..octets.len().min(offset + count)).unwrap_or_default();
                assert!(expected.starts_with(&got), "{} octets at {offset}", got.len());
                assert!(got.len() == expected.len() || !got.is_empty(), "a READ makes progress");
                assert_eq!(done.eof, offset + got.len() >= octets.len());
                assert_eq!(done.attributes.attributes().size, octets.len() as u64);
                if self.dice.usize(..3) == 0 {
                    self.held.push(Held { extents: done.data, octets: got });
                }
            }
            Thing::Directory { .. } => assert_eq!(told.unwrap_err(), Status::IsDir),
            Thing::Link(_) => assert_eq!(told.unwrap_err(), Status::Inval),
        }
    }

    fn cut(&mut self) {
        let at = self.any();
        let size = self.offset(self.reach);
        let set = NewAttributes { size: Some(size as u64), ..NewAttributes::default() };
        let handle = self.things[at].handle;
        let told = self.bench.store.setattr(&handle, &set, None).map_err(|failed| failed.status);
        if self.things[at].links == 0 {
            return;
        }
        match &mut self.things[at].thing {
            Thing::File(octets) => {
                assert_eq!(told.unwrap().object.after.unwrap().size, size as u64);
                octets.resize(size, 0);
            }
            Thing::Directory { .. } => assert_eq!(told, Err(Status::IsDir)),
            Thing::Link(_) => assert_eq!(told, Err(Status::Inval)),
        }
    }

    fn take_away(&mut self) {
        let (at, name, is_rmdir) = (self.directory(), self.name(), self.dice.usize(..3) == 0);
        let dir = self.things[at].handle;
        let store = &mut self.bench.store;
        let told = if is_rmdir { store.rmdir(&dir, &name) } else { store.remove(&dir, &name) };
        let told = told.map(|_| ()).map_err(|failed| failed.status);
        let expected =
            self.names(at).and_then(|names| names.get(&name).copied().ok_or(Status::NoEnt));
        let expected = expected.and_then(|found| match (self.is_directory(found), is_rmdir) {
            (true, false) => Err(Status::IsDir),
            (false, true) => Err(Status::NotDir),
            (true, true) if !self.names(found).unwrap().is_empty() => Err(Status::NotEmpty),
            _ => Ok(found),
        });
        assert_eq!(told, expected.map(|_| ()));
        if let Ok(found) = expected {
            self.things[found].links -= 1;
            self.names_mut(at).remove(&name);
        }
    }

    fn rename(&mut self) {
        let (from, to) = (self.directory(), self.directory());
        let (name, new_name) = (self.name(), self.name());
        let (source, target) = (self.things[from].handle, self.things[to].handle);
        let told =
            self.bench.store.rename(NameIn::new(&source, &name), NameIn::new(&target, &new_name));
        let told = told.map(|_| ()).map_err(|failed| failed.status);
        let expected = self.expected_rename(NameIn::new(from, &name), NameIn::new(to, &new_name));
        assert_eq!(told, expected.map(|_| ()));
        let Ok(Some(found)) = expected else { return };
        self.names_mut(from).remove(&name);
        if let Some(replaced) = self.names_mut(to).insert(new_name, found) {
            self.things[replaced].links -= 1;
        }
        if let Thing::Directory { above, .. } = &mut self.things[found].thing {
            *above = to;
        }
    }

    /// Returns the object that a RENAME moves; none when both names are one object's.
    fn expected_rename(
        &self,
        from: NameIn<'_, usize>,
        to: NameIn<'_, usize>,
    ) -> Told<Option<usize>> {
        let source = self.names(from.directory)?;
        let target = self.names(to.directory)?;
        let found = *source.get(from.name).ok_or(Status::NoEnt)?;
        if self.is_directory(found) && self.lies_in(to.directory, found) {
            return Err(Status::Inval);
        }
        let Some(replaced) = target.get(to.name).copied() else { return Ok(Some(found)) };
        if replaced == found {
            return Ok(None);
        }
        match (self.is_directory(found), self.is_directory(replaced)) {
            (_, true) if self.lies_in(from.directory, replaced) => Err(Status::NotEmpty),
            (true, false) => Err(Status::NotDir),
            (false, true) => Err(Status::IsDir),
            (true, true) if !self.names(replaced)?.is_empty() => Err(Status::NotEmpty),
            _ => Ok(Some(found)),
        }
    }

    fn link(&mut self) {
        let (what, at, name) = (self.any(), self.directory(), self.name());
        if self.things[what].links == 0 {
            return;
        }
        let (file, dir) = (self.things[what].handle, self.things[at].handle);
        let told = self.bench.store.link(&file, &dir, &name);
        let told = told.map(|_| ()).map_err(|failed| failed.status);
        let expected = self.names(at).and_then(|names| match names.get(&name) {
            _ if self.is_directory(what) => Err(Status::Inval),
            Some(_) => Err(Status::Exist),
            None => Ok(()),
        });
        assert_eq!(told, expected);
        if told.is_ok() {
            self.names_mut(at).insert(name, what);
            self.things[what].links += 1;
        }
    }

    fn step(&mut self) {
        match self.dice.usize(..16) {
            0..=3 => self.make(),
            4..=7 => self.write(),
            8..=9 => self.read(),
            10 => self.cut(),
            11..=12 => self.take_away(),
            13 => self.rename(),
            14 => self.link(),
            _ => {
                self.check_held();
                self.held.clear();
            }
        }
    }

    fn check_held(&self) {
        for held in &self.held {
            let octets: Vec<u8> = held.extents.iter().flat_map(|part| part.to_vec()).collect();
            assert!(octets == held.octets, "what is being sent never changes");
        }
    }

    /// Cached encoded attributes equal fresh ones.
    fn check_attributes(&mut self) {
        for known in self.things.iter().filter(|known| known.links > 0) {
            let fresh = self.bench.store.getattr(&known.handle).unwrap();
            let kept = self.bench.store.getattr_octets(&known.handle).unwrap();
            assert_eq!(kept.attributes(), fresh.into());
            let kept = self.bench.store.stat_octets(&known.handle).unwrap();
            assert_eq!(kept, StatOctets::from(&fresh));
        }
    }

    /// Everything is as in the model.
    fn check(&mut self) {
        self.check_held();
        for at in 0..self.things.len() {
            let known = self.things[at].clone();
            if known.links == 0 {
                continue;
            }
            let found = self.bench.store.getattr(&known.handle).unwrap();
            match &known.thing {
                Thing::File(octets) => {
                    assert_eq!(found.nlink, known.links);
                    assert!(self.bench.content(&known.handle).unwrap() == *octets);
                }
                Thing::Link(target) => {
                    assert_eq!(self.bench.target(&known.handle).unwrap(), *target)
                }
                Thing::Directory { names, .. } => {
                    let mut listed = self.bench.names(&known.handle, 3).unwrap();
                    listed.retain(|(name, _)| name != b"." && name != b"..");
                    listed.sort();
                    assert!(listed.iter().map(|(name, _)| name).eq(names.keys()));
                    for (name, number) in names {
                        let handle = self.bench.store.lookup(&known.handle, name).unwrap().handle;
                        assert_eq!(handle, self.things[*number].handle);
                    }
                }
            }
        }
    }
}

fn play<S: Store + Procedures>(seed: u64, bench: Bench<S>, reach: usize, steps: usize) -> Game<S> {
    let mut game = Game::new(seed, bench, reach);
    for _ in 0..steps {
        game.step();
        game.check_attributes();
    }
    game.check();
    game
}

#[test]
fn a_thousand_random_lives_of_the_memory_store_are_as_the_model_says() {
    for seed in 0..1_000 {
        let game = play(seed, memory(false), 200_000, 80);
        assert_eq!(game.short, 0, "seed {seed}");
    }
}

#[test]
fn a_store_that_is_full_loses_nothing() {
    let mut short = 0;
    for seed in 0..200 {
        let mut game = play(seed, memory_of(false, 1 << 20), 900_000, 150);
        short += game.short;
        // Dropping the game's content frees all of its space.
        game.held.clear();
        let empty = memory_of(false, 1 << 20);
        let (total, free) = game.bench.store.capacity();
        assert!(free <= total);
        while game.things.iter().skip(1).any(|known| known.links > 0) {
            game.take_away();
        }
        let (_, left) = empty.store.capacity();
        // The file that the empty one still has was removed here.
        assert_eq!(game.bench.store.capacity(), (total, left + 4096), "seed {seed}");
    }
    // About one operation in each run is refused: the bound only shows that stores do get full.
    assert!(short > 150, "{short} refusals");
}

#[test]
fn random_lives_of_the_files_store_are_as_the_model_says() {
    for seed in 0..40 {
        play(seed, files(false), 200_000, 80);
    }
}

#[test]
fn random_lives_of_the_ceph_store_are_as_the_model_says() {
    for seed in 0..40 {
        play(seed, ceph(false), 200_000, 80);
    }
    for seed in 0..4 {
        cluster(false).into_iter().for_each(|bench| drop(play(seed, bench, 200_000, 80)));
    }
}
