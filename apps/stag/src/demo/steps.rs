//! Steps of the demo with one store.

use super::{
    Scale, Store, address,
    relay::Relay,
    report::{Killed, Lost, Rates, SizeRow, StoreReport},
    scene::{DemoScene, EXPORT, SEED},
    server::{Custody, Ready},
};
use crate::{Error, progress::Progress};
use stag_check::{CheckPlan, SIZES};
use stag_client::transfer::{self, TransferFault, TransferTotals};
use stag_engine::stats::Forms;
use stag_fabrics::FabricAddress;
use stag_load::rate::{self, Reads};
use stag_protocol::nfs::v3::{StableHow, Status};
use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// Numbers of the streams that follow those of the sizes.
const CUT_STREAM: u64 = 1_000;
const KILL_STREAM: u64 = 1_001;
/// READs and WRITEs of one mebibyte that are outstanding.
const DEPTH: usize = 8;
/// Octets of a small READ or WRITE.
const SMALL: u32 = 4_096;
/// READs outstanding while calls per second are counted.
const SMALL_DEPTH: usize = 16;
/// Time that a stale handle may go unanswered after reconnecting.
const STALE_PATIENCE: Duration = Duration::from_secs(1);

/// One store on its server, and the requester.
pub struct DemoStage<'a> {
    store: Store,
    via: &'static str,
    scale: Scale,
    custody: &'a Custody,
    progress: &'a mut Progress,
    doing: Arc<Mutex<String>>,
    report: StoreReport,
}

pub(super) type StageResult<T = ()> = Result<T, Error>;

impl<'a> DemoStage<'a> {
    /// Nothing is started yet.
    pub fn new(
        store: Store,
        via: &'static str,
        scale: Scale,
        custody: &'a Custody,
        progress: &'a mut Progress,
        doing: Arc<Mutex<String>>,
    ) -> Self {
        let report = StoreReport { store: store.name(), fabric: via, ..StoreReport::default() };
        Self { store, via, scale, custody, progress, doing, report }
    }

    /// Returns the observations of the store.
    pub fn report(self) -> StoreReport {
        self.report
    }

    /// All steps.
    pub fn run(&mut self) -> StageResult {
        let ready = self.step("start of the server", None, |stage| {
            let at = address(stage.via, stage.custody)?;
            let ready = start(stage.custody, stage.store, stage.via, &at)?;
            let line = format!("{} is ready", ready.at);
            Ok((ready, line))
        })?;
        self.report.start_ms = millis(ready.start);
        let mut scene = self.step("connection", None, |_| {
            let scene = DemoScene::new(&ready.at, DEPTH)?;
            Ok((scene, "NULL and MNT are answered".to_owned()))
        })?;
        self.procedures(&mut scene)?;
        self.sizes(&mut scene)?;
        self.listing(&mut scene)?;
        self.rates(&mut scene)?;
        // A relay is used for TCP only.
        if let Some(at) = ready.at.ip().filter(|_| ready.at.info().is_over_tcp) {
            self.cut(at)?;
        }
        self.count(&scene)?;
        self.kill(&mut scene, ready)?;
        self.check_again(&mut scene)?;
        scene.client.disconnect();
        self.custody.kill();
        Ok(())
    }

    /// Shows a step while it is done, and records it in case it fails.
    fn step<T>(
        &mut self,
        name: &str,
        octets: Option<u64>,
        run: impl FnOnce(&mut Self) -> StageResult<(T, String)>,
    ) -> StageResult<T> {
        let full = format!("{} over {}: {name}", self.store.name(), self.via);
        self.progress.begin(&full, octets);
        self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&full);
        let (value, line) = run(self)?;
        self.progress.end(&format!("ok  {full}: {line}"));
        Ok(value)
    }

    fn procedures(&mut self, scene: &mut DemoScene) -> StageResult {
        self.step("every procedure", None, |stage| {
            let directory = "stag-demo-procedures".to_owned();
            let plan = CheckPlan {
                seed: SEED,
                entries: stage.scale.entries,
                directory,
                below: Vec::new(),
                stop: Arc::default(),
            };
            let found = stag_check::run(&mut scene.client, EXPORT, &plan, &mut |_| {});
            if let Some((step, failure)) =
                found.steps.iter().find_map(|step| Some((step.name, step.failure.as_ref()?)))
            {
                return Err(Error::failure(format!("{step}: {failure}")));
            }
            stage.report.procedure_steps = found.passed;
            stage.report.procedure_calls = found.calls;
            Ok(((), format!("{} steps, {} calls", found.passed, found.calls)))
        })
    }

    /// WRITE, COMMIT, READ of every size; every octet compared.
    fn sizes(&mut self, scene: &mut DemoScene) -> StageResult {
        self.step("every size", None, |stage| {
            let mut octets = 0;
            for len in SIZES {
                let before = scene.stats();
                let file = scene.create(&size_name(len))?;
                scene.put(file, len, len as u64, &mut |_| {})?;
                let written = scene.stats();
                scene.compare(file, len, len as u64, &mut |_| {})?;
                octets += 2 * len;
                stage.report.sizes.push(SizeRow {
                    octets: len as u64,
                    write: form(before.requester.calls, written.requester.calls),
                    read: form(written.requester.replies, scene.stats().requester.replies),
                });
            }
            Ok(((), format!("{} sizes, {octets} octets written, read and compared", SIZES.len())))
        })
    }

    fn listing(&mut self, scene: &mut DemoScene) -> StageResult {
        self.step("LOOKUP and READDIRPLUS", None, |_| {
            let entries = scene.client.readdirplus(scene.root).map_err(failed("READDIRPLUS"))?;
            for len in SIZES {
                let name = size_name(len);
                let found =
                    scene.client.lookup(scene.root, name.as_bytes()).map_err(failed("LOOKUP"))?;
                let entry = entries.iter().find(|entry| entry.name == name.as_bytes());
                let entry = entry
                    .ok_or_else(|| Error::failure(format!("READDIRPLUS does not list {name}")))?;
                let size = entry.attributes.map_or(len as u64, |attributes| attributes.size);
                if entry.handle.is_some_and(|handle| handle != found.object) || size != len as u64 {
                    return Err(Error::failure(format!(
                        "READDIRPLUS gives another {name} than LOOKUP"
                    )));
                }
            }
            Ok(((), format!("{} entries", entries.len())))
        })
    }

    fn rates(&mut self, scene: &mut DemoScene) -> StageResult {
        self.step("calls per second", None, |stage| {
            let during = stage.scale.measured;
            let span = 1 << 20;
            let file = scene.create("rates")?;
            scene.put(file, 0, span, &mut |_| {})?;
            let data = vec![7; SMALL as usize];
            let mut room = data.clone();
            let at = |call: u64| call * u64::from(SMALL) % span;
            let small = Reads { file, span, count: SMALL, depth: SMALL_DEPTH };
            let large = Reads { count: scene.flow.piece, depth: DEPTH, ..small };
            let rates = Rates {
                null: rate::one_by_one(&mut scene.client, during, |client, _| client.null())
                    .map_err(failed("NULL"))?,
                read: rate::one_by_one(&mut scene.client, during, |client, call| {
                    client.read(file, at(call), &mut room).map(drop)
                })
                .map_err(failed("READ of 4 KiB"))?,
                write: rate::one_by_one(&mut scene.client, during, |client, call| {
                    client.write(file, at(call), &data, StableHow::Unstable).map(drop)
                })
                .map_err(failed("WRITE of 4 KiB"))?,
                reads: rate::reads(&mut scene.client, small, during)
                    .map_err(failed("READs of 4 KiB"))?,
                large: rate::reads(&mut scene.client, large, during)
                    .map_err(failed("READs of 1 MiB"))?,
            };
            scene.client.remove(scene.root, b"rates").map_err(failed("REMOVE"))?;
            let line = format!(
                "{:.0} NULL, {:.0} READs of 4 KiB, {:.0} MiB in READs of 1 MiB",
                rates.null.calls_per_s,
                rates.reads.calls_per_s,
                rates.megabytes()
            );
            stage.report.rates = rates;
            Ok(((), line))
        })
    }

    /// A connection is lost while both ends live.
    fn cut(&mut self, server: SocketAddr) -> StageResult {
        let total = self.scale.stream / 2;
        self.step("lost connection", Some(total), |stage| {
            let relay =
                Relay::new(server).map_err(|error| Error::failure(format!("no relay: {error}")))?;
            let at = FabricAddress::parse(&format!("{}://{}", stage.via, relay.at()));
            let mut scene =
                DemoScene::new(&at.map_err(|why| Error::failure(why.to_string()))?, DEPTH)?;
            let file = scene.create("cut")?;
            let mut is_cut = false;
            let progress = &*stage.progress;
            let moved = scene.put(file, CUT_STREAM as usize, total, &mut |taken| {
                progress.at(taken.min(total));
                if taken >= total / 2 && !std::mem::replace(&mut is_cut, true) {
                    relay.cut();
                }
            })?;
            let recovery = scene.client.recovery();
            let (Some(lost), Some(up), Some(answered)) =
                (recovery.lost_at, recovery.up_at, recovery.answered_at)
            else {
                return Err(Error::failure(
                    "the connection was cut, and the requester did not notice",
                ));
            };
            if moved.replayed > 0 {
                return Err(Error::failure(
                    "the write verifier changed without a restart of the server",
                ));
            }
            scene.compare(file, CUT_STREAM as usize, total, &mut |_| {})?;
            scene.client.remove(scene.root, b"cut").map_err(failed("REMOVE"))?;
            scene.client.disconnect();
            let lost = Lost {
                connected_ms: millis(up.since(lost)),
                answered_ms: millis(answered.since(lost)),
            };
            let line = format!("first retried call answered after {:.1} ms", lost.answered_ms);
            stage.report.lost = Some(lost);
            Ok(((), line))
        })
    }

    /// Records the counters of both ends so far, because a killed server loses its counters.
    fn count(&mut self, scene: &DemoScene) -> StageResult {
        self.report.requester = scene.stats().requester;
        let counters = self.custody.counters()?;
        let of = |name: &str| {
            counters.pointer(&format!("/total/engine/responder/{name}")).and_then(|v| v.as_u64())
        };
        self.report.pulled = of("pulled").unwrap_or(0);
        self.report.pushed = of("pushed").unwrap_or(0);
        Ok(())
    }

    /// The server is killed in the middle of a stream of WRITEs, and started again.
    fn kill(&mut self, scene: &mut DemoScene, server: Ready) -> StageResult {
        let total = self.scale.stream;
        self.step("SIGKILL of the server while it is written to", Some(total), |stage| {
            let file = scene.create("stream")?;
            let (custody, store, via, clock) =
                (stage.custody.clone(), stage.store, stage.via, scene.clock);
            let (mut restart, mut gone_at) = (None, clock.now());
            let progress = &*stage.progress;
            let moved = scene.put(file, KILL_STREAM as usize, total, &mut |taken| {
                progress.at(taken.min(total));
                if taken >= total / 4 && restart.is_none() {
                    let killed_at = clock.now();
                    custody.kill();
                    gone_at = clock.now();
                    let (custody, at) = (custody.clone(), server.at.clone());
                    let start = move || (start(&custody, store, via, &at), clock.now());
                    restart = Some((killed_at, thread::spawn(start)));
                }
            });
            let (killed_at, started) = restart.ok_or_else(|| match &moved {
                Err(failure) => Error::failure(failure.to_string()),
                Ok(_) => Error::failure("the stream ended before the server was killed"),
            })?;
            let (ready, ready_at) =
                started.join().map_err(|_| Error::failure("the restart of the server failed"))?;
            let ready = ready?;
            let replayed = stage.judge(moved)?;
            let recovery = scene.client.recovery();
            let (Some(up), Some(answered)) = (recovery.up_at, recovery.answered_at) else {
                return Err(Error::failure(
                    "the server was killed, and the requester did not \
                                           notice",
                ));
            };
            if stage.store.forgets() && answered.since(up) > STALE_PATIENCE {
                return Err(Error::failure(
                    "a stale handle is not answered within a second of \
                                           reconnecting",
                ));
            }
            let killed = Killed {
                gone_ms: millis(gone_at.since(killed_at)),
                start_ms: millis(ready.start),
                ready_to_answer_ms: millis(answered.since(ready_at)),
                without_service_ms: millis(answered.since(killed_at)),
                replayed,
            };
            let line = format!(
                "{:.0} ms without service, {:.0} of them to start the server; {} octets written \
                 again",
                killed.without_service_ms, killed.start_ms, killed.replayed
            );
            stage.report.killed = killed;
            Ok(((), line))
        })
    }

    /// Checks the outcome of the stream: all of it has to be there or, where the server forgets,
    /// the handle has to be stale.
    fn judge(&self, moved: Result<TransferTotals, transfer::TransferFailure>) -> StageResult<u64> {
        match moved {
            Ok(TransferTotals { replayed: 0, .. }) => {
                Err(Error::failure("the server was restarted and gave the same write verifier"))
            }
            Ok(_) if self.store.forgets() => {
                Err(Error::failure("a file in memory outlived the server that held it"))
            }
            Ok(moved) => Ok(moved.replayed),
            Err(transfer::TransferFailure {
                why: TransferFault::Call(stag_client::Error::Nfs(Status::Stale)),
                ..
            }) if self.store.forgets() => Ok(0),
            Err(failure) => Err(Error::failure(failure.to_string())),
        }
    }

    /// The same requester, on the connection that was made again: everything is compared once more.
    fn check_again(&mut self, scene: &mut DemoScene) -> StageResult {
        self.step("everything compared again", None, |stage| {
            if stage.store.forgets() {
                scene.root = scene.client.mount(EXPORT).map_err(failed("MNT"))?;
            }
            let mut octets = 0;
            for len in SIZES {
                let file = if stage.store.forgets() {
                    let file = scene.create(&size_name(len))?;
                    scene.put(file, len, len as u64, &mut |_| {})?;
                    file
                } else {
                    scene.find(&size_name(len))?
                };
                scene.compare(file, len, len as u64, &mut |_| {})?;
                octets += len as u64;
            }
            if !stage.store.forgets() {
                let file = scene.find("stream")?;
                scene.compare(file, KILL_STREAM as usize, stage.scale.stream, &mut |_| {})?;
                octets += stage.scale.stream;
            }
            stage.report.checked_again = octets;
            Ok(((), format!("{octets} octets")))
        })
    }
}

impl From<transfer::TransferFailure> for Error {
    fn from(failure: transfer::TransferFailure) -> Self {
        Self::Failure(failure.to_string())
    }
}

/// Starts the server of a store. The same directory and state serve again after a restart.
fn start(custody: &Custody, store: Store, via: &str, at: &FabricAddress) -> StageResult<Ready> {
    let name = ["--name".to_owned(), EXPORT.to_owned()];
    let arguments = match store {
        Store::Files => {
            let path = custody.path("demo")?;
            fs::create_dir_all(&path)
                .map_err(|error| Error::failure(format!("no directory to serve: {error}")))?;
            // As the user who runs the demo, even if that is root, whom a privileged server may
            // squash; from any port, as the relay calls. No other user has access to the directory.
            let path = path.to_string_lossy().into_owned();
            [&path, "--mode", "unprivileged", "--insecure"].map(str::to_owned).to_vec()
        }
        Store::Memory => vec!["--memory".to_owned(), "192M".to_owned()],
    };
    let state = format!("{}-{}", store.name(), via);
    custody.start(&[arguments.as_slice(), name.as_slice()].concat(), &state, at)
}

pub(super) fn failed(what: &str) -> impl Fn(stag_client::Error) -> Error + '_ {
    move |error| Error::failure(format!("{what}: {error}"))
}

fn size_name(len: usize) -> String {
    format!("size-{len}")
}

/// The largest form that was used meanwhile.
fn form(before: Forms, after: Forms) -> &'static str {
    if after.long > before.long {
        "long"
    } else if after.chunked > before.chunked {
        "chunked"
    } else {
        "short"
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
