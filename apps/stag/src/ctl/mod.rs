//! `stag ctl`: watches and controls a server through its control socket, whose other end is in
//! `stag-operate`.

mod caller;
mod cells;
mod contexts;
pub mod options;
mod sessions;
mod show;
mod states;
mod top;

use crate::{Error, caller::say};
use caller::Controller;
use options::{CtlOptions, CtlWhat, StateOptions};
use serde_json::Value;
use stag_operate::{
    control::wire::{Request, StatePage},
    quote,
};
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
    let value = all_pages(&mut controller, &request)?;
    if options.json {
        say(quote::json(&format!("{value:#}\n")));
    } else {
        say(show::text(&request, &value));
    }
    Ok(())
}

/// Asks for the answer to `request`; of a list that is answered by pages, for all of them.
fn all_pages(controller: &mut Controller, request: &Request) -> Result<Value, Error> {
    let mut all = controller.ask(request)?;
    while let Some(from) = all.get("next").and_then(Value::as_u64) {
        let next = at_page(request.clone(), usize::try_from(from).unwrap_or(usize::MAX));
        append(&mut all, controller.ask(&next)?);
    }
    if let Some(all) = all.as_object_mut() {
        all.remove("next");
    }
    Ok(all)
}

/// The request for a later page.
fn at_page(request: Request, from: usize) -> Request {
    match request {
        Request::Clients4 { .. } => Request::Clients4 { from },
        Request::Opens(page) => Request::Opens(StatePage { from, ..page }),
        Request::Locks(page) => Request::Locks(StatePage { from, ..page }),
        Request::Delegations(page) => Request::Delegations(StatePage { from, ..page }),
        other => other,
    }
}

/// Adds the lists of the page `next` to those of `all`, whose other values are replaced.
fn append(all: &mut Value, mut next: Value) {
    for (name, value) in all.as_object_mut().into_iter().flatten() {
        match (value, next.get_mut(name)) {
            (Value::Array(list), Some(Value::Array(more))) => list.append(more),
            (value, more) => *value = more.map_or(Value::Null, Value::take),
        }
    }
}

fn page(of: StateOptions) -> StatePage {
    StatePage { client: of.client, file: of.file, from: 0 }
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
        CtlWhat::Clients4 => Request::Clients4 { from: 0 },
        CtlWhat::Expire { client } => Request::Expire { client },
        CtlWhat::Grace { end } => Request::Grace { end },
        CtlWhat::Opens(of) => Request::Opens(page(of)),
        CtlWhat::Locks(of) => Request::Locks(page(of)),
        CtlWhat::Delegations(of) => Request::Delegations(page(of)),
        CtlWhat::Drain => Request::Drain,
        CtlWhat::Resume => Request::Resume,
        CtlWhat::Stats => Request::Stats,
        CtlWhat::Hist => Request::Hist,
        CtlWhat::Log { filter } => Request::Log { filter },
        CtlWhat::Memory => Request::Memory,
        CtlWhat::Trace { last } => Request::Trace { last },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_are_joined_in_their_order() {
        let mut all = json!({ "opens": [1, 2], "next": 2 });
        append(&mut all, json!({ "opens": [3], "next": 5 }));
        assert_eq!(all, json!({ "opens": [1, 2, 3], "next": 5 }));
        append(&mut all, json!({ "opens": [], "next": null }));
        assert_eq!(all, json!({ "opens": [1, 2, 3], "next": null }));
        let of = StatePage { client: Some("7".to_owned()), ..StatePage::default() };
        let next = at_page(Request::Opens(of.clone()), 5);
        assert_eq!(next, Request::Opens(StatePage { from: 5, ..of }));
    }
}
