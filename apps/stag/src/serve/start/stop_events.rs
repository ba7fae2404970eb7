//! Events that end a server, or make it read its settings again: signals, the end of standard
//! input, and the end of another process.

use super::server::Message;
use crate::{
    Error,
    serve::plan::{host_checks::open_process, options::ServeOptions},
    signals,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use signal_hook::{
    consts::{SIGHUP, SIGTERM, SIGUSR1},
    iterator::Signals,
};
use std::{io, sync::mpsc::Sender, thread};

/// Turns every event that ends the server, or makes it read its settings again, into messages.
///
/// # Errors
/// A sentence about one that cannot be waited for.
pub fn forward_all(arguments: &ServeOptions, sender: &Sender<Message>) -> Result<(), Error> {
    forward_signals(sender.clone(), arguments.config.is_some())?;
    if arguments.while_stdin {
        stop_without_stdin(sender.clone())?;
    }
    arguments.exit_with.map_or(Ok(()), |pid| stop_with(pid, sender.clone()))
}

/// Turns signals into messages, so that one thread waits for one channel. SIGHUP is among them even
/// if it is ignored, when it means to read settings again.
fn forward_signals(sender: Sender<Message>, reloads: bool) -> Result<(), Error> {
    let failed = |error: io::Error| Error::failure(format!("cannot wait for signals: {error}"));
    let strays = signals::strays();
    let hup = reloads.then_some(SIGHUP);
    let known = signals::stopping().into_iter().chain([SIGUSR1]).chain(hup);
    let known = known.chain(strays.iter().copied());
    let mut signals = Signals::new(known).map_err(failed)?;
    let forward = move || {
        for signal in signals.forever() {
            if strays.contains(&signal) {
                tracing::warn!(target: "stag", signal, "a signal that means nothing here");
            } else if sender.send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(forward).map(drop).map_err(failed)
}

/// The end of standard input is a signal to stop: the parent process is gone.
fn stop_without_stdin(sender: Sender<Message>) -> Result<(), Error> {
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = sender.send(Message::Signal(SIGTERM));
    };
    let failed =
        |error: io::Error| Error::failure(format!("cannot wait for standard input: {error}"));
    thread::Builder::new().name("stdin".to_owned()).spawn(wait).map(drop).map_err(failed)
}

/// The end of the process `pid` is a signal to stop.
fn stop_with(pid: i32, sender: Sender<Message>) -> Result<(), Error> {
    let process = open_process(pid)?;
    let wait = move || {
        // A process that has ended can be read from (pidfd_open(2)).
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {}
        tracing::info!(target: "stag", pid, "the process of --exit-with ended");
        let _ = sender.send(Message::Signal(SIGTERM));
    };
    let failed = |error: io::Error| Error::failure(format!("cannot wait for {pid}: {error}"));
    thread::Builder::new().name("exit-with".to_owned()).spawn(wait).map(drop).map_err(failed)
}
