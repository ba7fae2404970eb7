//! `stag ctl`: watches and controls a server through its control socket, whose other end is in
//! `stag-operate`.

mod caller;
mod cells;
mod contexts;
pub mod options;
mod sessions;
mod show;
mod top;

use crate::{Error, caller::say};
use caller::Controller;
use options::{CtlOptions, CtlWhat};
use stag_operate::{control::wire::Request, quote};
use std::time::Duration;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Asks the server, and prints what it says.
pub fn run(options: &CtlOptions) -> Result<(), Error> {
    let mut controller = Controller::connect(options.socket.as_deref())?;
    if let CtlWhat::Top { interval, once } = options.what {
        return top::run(&mut controller, Duration::from_secs(interval.into()), once);
    }
    let request = request(&options.what);
    let value = controller.ask(&request)?;
    if options.json {
        say(quote::json(&format!("{value:#}\n")));
    } else {
        say(show::text(&request, &value));
    }
    Ok(())
}

fn request(what: &CtlWhat) -> Request {
    match what.clone() {
        CtlWhat::Status | CtlWhat::Top { .. } => Request::Status,
        CtlWhat::Exports => Request::Exports,
        CtlWhat::Mounts { nfs } => Request::Mounts { nfs },
        CtlWhat::Reload => Request::Reload,
        CtlWhat::Clients => Request::Clients,
        CtlWhat::Contexts => Request::Contexts,
        CtlWhat::Drop { client } => Request::Drop { client },
        CtlWhat::Drain => Request::Drain,
        CtlWhat::Resume => Request::Resume,
        CtlWhat::Stats => Request::Stats,
        CtlWhat::Hist => Request::Hist,
        CtlWhat::Log { filter } => Request::Log { filter },
        CtlWhat::Memory => Request::Memory,
        CtlWhat::Trace { last } => Request::Trace { last },
    }
}
