//! Transport headers, in time compared with a copy of the same octets, and in instructions (G8);
//! instructions of a whole call (G9).

use crate::{
    contender::{Absence, Contender, Reading},
    site::{self, MeasuringSite},
};
use stag_bench::{callgrind, headers};
use stag_protocol::rpcrdma::{ChunkLists, v1};
use std::{hint::black_box, path::PathBuf, thread, time::Instant};

/// Headers between two looks at the clock.
const BATCH: u32 = 2_048;

/// Work done with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderWork {
    /// Written from what it means.
    Emit,
    /// Read, with everything checked.
    Parse,
    /// Copied.
    Copy,
}

/// Time of a header of this form.
#[derive(Clone, Copy, Debug)]
pub struct HeaderTime {
    /// The form: `null`, `read`, …
    pub form: &'static str,
    /// Work done with the header.
    pub work: HeaderWork,
}

impl HeaderTime {
    /// Nanoseconds of one, by batches.
    fn trips(self, site: &MeasuringSite) -> Result<Vec<f64>, String> {
        let form = headers::form(self.form)
            .ok_or_else(|| format!("no header is called {:?}", self.form))?;
        let (mut out, mut lists) = ([0_u8; 1_024], ChunkLists::new());
        match self.work {
            HeaderWork::Emit => Ok(batches(site, || {
                black_box(v1::emit(black_box(&form.header), &form.lists, &mut out).is_ok());
            })),
            HeaderWork::Parse => Ok(batches(site, || {
                black_box(v1::parse(black_box(&form.octets), &mut lists).is_ok());
            })),
            HeaderWork::Copy => Ok(batches(site, || {
                let from = black_box(form.octets.as_slice());
                if let Some(to) = out.get_mut(..from.len()) {
                    to.copy_from_slice(from);
                }
                black_box(&out);
            })),
        }
    }
}

fn batches(site: &MeasuringSite, mut once: impl FnMut()) -> Vec<f64> {
    let (mut samples, began) = (Vec::new(), Instant::now());
    let mut last = began;
    // A header takes nanoseconds: a part of a turn has thousands of batches.
    while last.duration_since(began) < site.turn / 10 {
        (0..BATCH).for_each(|_| once());
        let now = Instant::now();
        samples.push(now.duration_since(last).as_nanos() as f64 / f64::from(BATCH));
        last = now;
    }
    samples
}

impl Contender for HeaderTime {
    fn name(&self) -> String {
        match self.work {
            HeaderWork::Emit => "Stag, emit".to_owned(),
            HeaderWork::Parse => "Stag, parse".to_owned(),
            HeaderWork::Copy => "memcpy of the same octets".to_owned(),
        }
    }

    fn commands(&self) -> Vec<String> {
        vec![match self.work {
            HeaderWork::Copy => "a thread of stag-peers: copies of the header's octets".to_owned(),
            _ => {
                "a thread of stag-peers; also cargo bench -p stag-bench --bench headers".to_owned()
            }
        }]
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let timed = || {
            site::pin(site.client)
                .map_err(|error| error.to_string())
                .and_then(|()| self.trips(site))
        };
        let trips = thread::scope(|scope| scope.spawn(timed).join());
        Ok(Reading::of_trips(&mut trips.map_err(|_| "the measuring thread panicked")??))
    }
}

/// Instructions of a subject of a counting program, each time.
#[derive(Clone, Debug)]
pub struct Instructions {
    /// As the program takes it.
    subject: String,
    /// Number of repetitions: enough that work done once does not weigh.
    times: u64,
    /// The counting program, and where it is once started.
    name: &'static str,
    program: PathBuf,
}

impl Instructions {
    /// Counts this subject of `stag-counts`, done `times` times.
    pub fn new(subject: &str, times: u64) -> Self {
        Self::by("stag-counts", subject, times)
    }

    /// Of a subject of the counting program of this name.
    pub fn by(name: &'static str, subject: &str, times: u64) -> Self {
        Self { subject: subject.to_owned(), times, name, program: PathBuf::new() }
    }
}

impl Contender for Instructions {
    fn name(&self) -> String {
        "Stag".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        vec![format!(
            "{} (exact; also cargo test -p stag-bench --test costs instructions)",
            callgrind::shown(self.name, &self.subject, self.times)
        )]
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        site.find("valgrind", "valgrind")?;
        self.program = site.beside(self.name);
        Ok(())
    }

    fn measure(&mut self, _site: &MeasuringSite) -> Result<Reading, String> {
        callgrind::count(&self.program, &self.subject, self.times).map(Reading::counted)
    }
}
