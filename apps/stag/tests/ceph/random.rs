//! Random operations against a model in memory that is too simple to be wrong, as fsx does it, with
//! names and content: READ, WRITE, COMMIT, SETATTR of the size, CREATE, REMOVE, RENAME, MKDIR,
//! RMDIR, LOOKUP and READDIRPLUS. On a cluster the calls go to two gateways in turns, so that each
//! sees at once what the other did.

use super::{
    cluster::{Cluster, client, fake_gateway, is_long, until},
    support::Home,
};
use rustix::process::geteuid;
use stag_client::{Error, NfsClient};
use stag_iwarp::Iwarp;
use stag_load::schedule::Random;
use stag_protocol::nfs::v3::{CreateHow, FileHandle, FileKind, SetAttributes, StableHow, Status};
use std::collections::BTreeMap;

/// Octets of a file at most, and of a READ or WRITE.
const FILE_MAX: u64 = 300_000;
const TRANSFER_MAX: u64 = 70_000;

enum ModelEntry {
    File(FileHandle, Vec<u8>),
    Directory(FileHandle),
}

struct RandomGame<'a> {
    dice: Random,
    gateways: &'a mut [NfsClient<Iwarp>],
    directory: FileHandle,
    model: BTreeMap<String, ModelEntry>,
}

/// The status that a call has to end with, if it has to fail.
type Expected = Result<(), Status>;

/// Repeats a call until the answer is not a request to retry.
fn outcome<T>(mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Status> {
    until("an answer", || match call() {
        Ok(done) => Ok(Ok(done)),
        Err(Error::Nfs(Status::Jukebox)) => Err(Status::Jukebox),
        Err(Error::Nfs(status)) => Ok(Err(status)),
        Err(error) => panic!("{error}"),
    })
}

impl RandomGame<'_> {
    fn gateway(&mut self) -> &mut NfsClient<Iwarp> {
        let which = self.dice.below(self.gateways.len() as u64) as usize;
        &mut self.gateways[which]
    }

    fn name(&mut self) -> String {
        format!("n{}", self.dice.below(7))
    }

    fn make(&mut self, name: &str) {
        let (directory, expected) = (self.directory, self.must_be_free(name));
        let is_directory = self.dice.below(4) == 0;
        let gateway = self.gateway();
        let made = outcome(|| {
            if is_directory {
                return gateway.mkdir(directory, name.as_bytes(), 0o755);
            }
            let how = CreateHow::Guarded(SetAttributes::default());
            gateway.create(directory, name.as_bytes(), how)
        });
        let handle = made.map(|made| made.object.unwrap());
        assert_eq!(handle.as_ref().map(drop).map_err(|status| *status), expected, "make {name}");
        if let Ok(handle) = handle {
            let entry = match is_directory {
                true => ModelEntry::Directory(handle),
                false => ModelEntry::File(handle, Vec::new()),
            };
            self.model.insert(name.to_owned(), entry);
        }
    }

    fn must_be_free(&self, name: &str) -> Expected {
        if self.model.contains_key(name) { Err(Status::Exist) } else { Ok(()) }
    }

    fn take_away(&mut self, name: &str) {
        let (directory, by_rmdir) = (self.directory, self.dice.below(3) == 0);
        let expected = match self.model.get(name) {
            None => Err(Status::NoEnt),
            Some(ModelEntry::File(..)) if by_rmdir => Err(Status::NotDir),
            Some(ModelEntry::Directory(_)) if !by_rmdir => Err(Status::IsDir),
            Some(_) => Ok(()),
        };
        let gateway = self.gateway();
        let gone = outcome(|| match by_rmdir {
            true => gateway.rmdir(directory, name.as_bytes()),
            false => gateway.remove(directory, name.as_bytes()),
        });
        assert_eq!(gone.map(drop), expected, "take {name} away, by RMDIR: {by_rmdir}");
        if expected.is_ok() {
            self.model.remove(name);
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let is_directory =
            |name| self.model.get(name).map(|entry| matches!(entry, ModelEntry::Directory(_)));
        let expected = match (is_directory(from), is_directory(to)) {
            (None, _) => Err(Status::NoEnt),
            (Some(true), Some(false)) => Err(Status::NotDir),
            (Some(false), Some(true)) => Err(Status::IsDir),
            _ => Ok(()),
        };
        let directory = self.directory;
        let gateway = self.gateway();
        let renamed =
            outcome(|| gateway.rename(directory, from.as_bytes(), directory, to.as_bytes()));
        // Either says which of the two is in the way (RFC 1813 §3.3.14).
        let renamed = renamed.map(drop);
        let is_refused =
            renamed.is_err() && matches!(expected, Err(Status::NotDir | Status::IsDir));
        assert!(renamed == expected || is_refused, "rename {from} to {to}: {renamed:?}");
        if expected.is_ok() && from != to {
            let entry = self.model.remove(from).unwrap();
            self.model.insert(to.to_owned(), entry);
        }
    }

    /// A file of the model, with its content, which goes back by [`put_back`](Self::put_back).
    fn file(&mut self, name: &str) -> Option<(FileHandle, Vec<u8>)> {
        match self.model.get_mut(name)? {
            ModelEntry::File(handle, content) => Some((*handle, std::mem::take(content))),
            ModelEntry::Directory(_) => None,
        }
    }

    fn put_back(&mut self, name: &str, handle: FileHandle, content: Vec<u8>) {
        self.model.insert(name.to_owned(), ModelEntry::File(handle, content));
    }

    fn write(&mut self, name: &str) {
        let Some((handle, mut content)) = self.file(name) else { return };
        let offset = self.dice.below(FILE_MAX - TRANSFER_MAX);
        let data: Vec<u8> =
            (0..self.dice.below(TRANSFER_MAX)).map(|_| self.dice.word() as u8).collect();
        let stable = [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync];
        let stable = stable[self.dice.below(3) as usize];
        let gateway = self.gateway();
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            let wrote = outcome(|| gateway.write(handle, offset + done as u64, rest, stable));
            done += wrote.unwrap().count as usize;
        }
        let (begin, end) = (offset as usize, offset as usize + data.len());
        if !data.is_empty() {
            content.resize(content.len().max(end), 0);
            content[begin..end].copy_from_slice(&data);
        }
        self.put_back(name, handle, content);
    }

    fn read(&mut self, name: &str) {
        let Some((handle, content)) = self.file(name) else { return };
        let (offset, len) = (self.dice.below(FILE_MAX), self.dice.below(TRANSFER_MAX));
        let gateway = self.gateway();
        let mut room = vec![0; len as usize];
        let read = outcome(|| gateway.read(handle, offset, &mut room)).unwrap();
        let begin = content.len().min(offset as usize);
        let there = &content[begin..];
        let there = &there[..there.len().min(len as usize)];
        assert!(room[..read.count] == *there, "{} octets of {name} at {offset}", read.count);
        assert_eq!(read.attributes.unwrap().size, content.len() as u64, "{name}");
        self.put_back(name, handle, content);
    }

    fn cut(&mut self, name: &str) {
        let Some((handle, mut content)) = self.file(name) else { return };
        let size = self.dice.below(FILE_MAX);
        let gateway = self.gateway();
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        outcome(|| gateway.setattr(handle, set, None)).unwrap();
        content.resize(size as usize, 0);
        self.put_back(name, handle, content);
    }

    fn commit(&mut self, name: &str) {
        let Some((handle, content)) = self.file(name) else { return };
        let gateway = self.gateway();
        outcome(|| gateway.commit(handle, 0, 0)).unwrap();
        self.put_back(name, handle, content);
    }

    /// Every name, its kind and size, as the model has it.
    fn list(&mut self) {
        let directory = self.directory;
        let gateway = self.gateway();
        let listed = outcome(|| gateway.readdirplus(directory)).unwrap();
        let mut listed: Vec<_> = listed
            .into_iter()
            .filter(|entry| !entry.name.starts_with(b"."))
            .map(|entry| (String::from_utf8(entry.name).unwrap(), entry.attributes))
            .collect();
        listed.sort_by(|one, other| one.0.cmp(&other.0));
        let names: Vec<_> = listed.iter().map(|(name, _)| name).collect();
        assert!(names.iter().copied().eq(self.model.keys()), "{names:?}");
        for ((name, attributes), entry) in listed.iter().zip(self.model.values()) {
            let Some(attributes) = attributes else { continue };
            match entry {
                ModelEntry::File(_, content) => {
                    let found = (attributes.kind, attributes.size);
                    assert_eq!(found, (FileKind::Regular, content.len() as u64), "{name}");
                }
                ModelEntry::Directory(_) => assert_eq!(attributes.kind, FileKind::Directory),
            }
        }
    }

    fn look_up(&mut self, name: &str) {
        let directory = self.directory;
        let gateway = self.gateway();
        let found = outcome(|| gateway.lookup(directory, name.as_bytes()));
        let expected = match self.model.get(name) {
            Some(ModelEntry::File(handle, _) | ModelEntry::Directory(handle)) => Ok(*handle),
            None => Err(Status::NoEnt),
        };
        assert_eq!(found.map(|found| found.object), expected, "{name}");
    }

    fn step(&mut self) {
        let (name, other) = (self.name(), self.name());
        match self.dice.below(20) {
            0..3 => self.make(&name),
            3..5 => self.take_away(&name),
            5 => self.rename(&name, &other),
            6..11 => self.write(&name),
            11..15 => self.read(&name),
            15..17 => self.cut(&name),
            17 => self.commit(&name),
            18 => self.list(),
            _ => self.look_up(&name),
        }
    }
}

fn play(seed: u64, gateways: &mut [NfsClient<Iwarp>], steps: usize) {
    println!("seed {seed}");
    let root = until("the mount", || gateways[0].mount("/data"));
    for gateway in gateways.iter_mut() {
        assert_eq!(until("the mount", || gateway.mount("/data")), root, "one handle at all");
    }
    let name = format!("random-{seed}");
    let made = outcome(|| gateways[0].mkdir(root, name.as_bytes(), 0o755)).unwrap();
    let directory = made.object.unwrap();
    let (dice, model) = (Random::new(seed), BTreeMap::new());
    let mut game = RandomGame { dice, gateways, directory, model };
    for _ in 0..steps {
        game.step();
    }
    let names: Vec<_> = game.model.keys().cloned().collect();
    names.iter().for_each(|name| game.read(name));
    game.list();
}

#[test]
fn random_operations_on_the_fake_library_are_as_the_model_says() {
    if !geteuid().is_root() {
        return println!("skipped: the root of the file system is root's");
    }
    let home = Home::new();
    let server = fake_gateway(&home, "random");
    let mut gateways = [client(&server)];
    for seed in 0..if is_long() { 30 } else { 5 } {
        play(seed, &mut gateways, 300);
    }
}

#[test]
fn random_operations_at_two_gateways_of_a_cluster_are_as_the_model_says() {
    let Some(cluster) = Cluster::start("1", "1") else { return };
    let home = Home::new();
    let (one, two) = (cluster.gateway(&home, "one"), cluster.gateway(&home, "two"));
    let mut gateways = [client(&one), client(&two)];
    for seed in 0..if is_long() { 8 } else { 2 } {
        play(seed, &mut gateways, if is_long() { 250 } else { 150 });
    }
}
