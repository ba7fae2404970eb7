//! Shards that belong to one thread, which runs their passes.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

/// The shards of a thread, by names that are unique among all threads.
#[derive(Debug)]
pub(crate) struct ThreadShards<S: ?Sized>(RefCell<Vec<(u64, Rc<RefCell<S>>)>>);

impl<S: ?Sized> ThreadShards<S> {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// Adds a shard; returns its name.
    pub(crate) fn add(&self, shard: Rc<RefCell<S>>) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.borrow_mut().push((name, shard));
        name
    }

    /// None if the shard of this name belongs to another thread.
    pub(crate) fn get(&self, name: u64) -> Option<Rc<RefCell<S>>> {
        let shards = self.0.borrow();
        shards.iter().find(|(known, _)| *known == name).map(|(_, shard)| Rc::clone(shard))
    }

    pub(crate) fn all(&self) -> Vec<Rc<RefCell<S>>> {
        self.0.borrow().iter().map(|(_, shard)| Rc::clone(shard)).collect()
    }

    /// Takes a shard out: dropping it breaks its connections.
    pub(crate) fn remove(&self, name: u64) -> Option<Rc<RefCell<S>>> {
        let mut shards = self.0.borrow_mut();
        let place = shards.iter().position(|(known, _)| *known == name)?;
        Some(shards.remove(place).1)
    }
}
