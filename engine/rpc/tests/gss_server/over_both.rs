//! The server over iWARP and over TCP, on a thread of its own. It refuses the creation of contexts
//! over one of them, or both.

use super::{Server, State};
use stag_engine::{Config, Shard, clock::Clock};
use stag_fabrics::{AnyProvider, FabricAddress, Settings};
use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc, Mutex,
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
};

/// The answer to a creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    #[default]
    None,
    /// MSG_DENIED.
    Denied,
    /// GARBAGE_ARGS.
    Garbage,
    /// The connection ends.
    Ends,
}

/// The wishes of a test, and the server's counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// The answers over iWARP, and over TCP.
    pub refusals: [Refusal; 2],
    /// All contexts are to be forgotten.
    pub forgets: bool,
    /// Creations over iWARP, and over TCP.
    pub asked: [usize; 2],
}

/// A running server; it ends when it is dropped.
pub struct OverBoth {
    pub wishes: Arc<Mutex<Wishes>>,
    pub url: String,
    pub tcp_port: u16,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OverBoth {
    pub fn start(refusals: [Refusal; 2]) -> Self {
        let wishes = Arc::new(Mutex::new(Wishes { refusals, ..Wishes::default() }));
        let (at, found) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let shared = Arc::clone(&wishes);
        let thread = std::thread::spawn(move || {
            let (clock, config) = (Clock::start(), Config { grant: 8, ..Config::small() });
            let fabric = FabricAddress::parse("iwarp://127.0.0.1:0").unwrap();
            let settings = Settings::new(config.limits(64), [7; 32], clock.now());
            let provider = AnyProvider::for_connecting(settings, Some(&fabric)).unwrap();
            let state = State { wishes: Some(shared), ..State::default() };
            let app = Server(Rc::new(RefCell::new(state)));
            let mut shard = Shard::new(provider, app, config, Box::new(|_| true)).unwrap();
            let bound = shard.listen(&fabric).unwrap();
            let tcp = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
            at.send((bound.to_string(), tcp.port())).unwrap();
            while ended.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                if !shard.pass(clock.now()) {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            }
        });
        let (url, tcp_port) = found.recv().unwrap();
        Self { wishes, url, tcp_port, end: Some(end), thread: Some(thread) }
    }

    pub fn asked(&self) -> [usize; 2] {
        self.wishes.lock().unwrap().asked
    }

    pub fn forget(&self) {
        self.wishes.lock().unwrap().forgets = true;
    }

    pub fn refuse(&self, refusals: [Refusal; 2]) {
        self.wishes.lock().unwrap().refusals = refusals;
    }
}

impl Drop for OverBoth {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
