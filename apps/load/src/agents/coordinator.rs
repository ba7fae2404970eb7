//! Coordinator of a run on several nodes: connects to their agents, compares clocks, starts all at
//! one time, and collects their results. A node that dies ends nothing for the others.

use super::{
    AgentError, PORT, plain, unix_ns,
    wire::{AgentWord, ControlLine, CoordinatorWord, LineFault, SharedToken, say},
};
use crate::{
    RunOutcome,
    nodes::{ClockOffset, NodeResult, NodesRun, join_seconds, share_until},
    report::model::{RunSetup, SecondFigures},
};
use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::{TcpStream, ToSocketAddrs},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

/// Time until an agent answers: it may first have to be started.
const MEET_MAX: Duration = Duration::from_secs(20);
/// Pause between attempts to connect, and time that one may take.
const AGAIN: Duration = Duration::from_millis(100);
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Looks at a clock; the shortest of them counts.
const CLOCKS: usize = 16;
/// Time that an agent may take to look at its clock.
const CLOCK_MAX: Duration = Duration::from_secs(5);
/// Time from when all are ready to the first call: the message has to reach them.
const LEAD: Duration = Duration::from_millis(300);
/// Time without a message after which a measuring node counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Time after the end of a run to compare and remove the files it wrote.
const CLEAN_UP_MAX: Duration = Duration::from_secs(120);
/// Interval at which the coordinator checks for a stop.
const LOOK: Duration = Duration::from_millis(100);
/// Nodes at most.
const NODES_MAX: usize = 1_024;

/// A node with its agent.
struct Node {
    name: String,
    line: Option<ControlLine>,
    clock: ClockOffset,
    /// The process by which the agent was started.
    child: Option<Child>,
}

impl Drop for Node {
    fn drop(&mut self) {
        // The agent ends when its control connection does.
        self.line = None;
        if let Some(mut child) = self.child.take() {
            let patience = Instant::now() + CONNECT_MAX;
            while Instant::now() < patience && matches!(child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill().and_then(|()| child.wait().map(drop));
        }
    }
}

/// Nodes that are to make runs together.
#[derive(Clone, Copy, Debug)]
pub struct NodesPlan<'a> {
    /// Their names, which [`check_names`] accepted.
    pub names: &'a [String],
    /// Proves that agents and coordinator belong together.
    pub token: &'a SharedToken,
    /// The command that starts an agent: `ssh`, or one with `{}` for the host.
    pub start: Option<&'a str>,
    /// Makes the words of a peer harmless for a terminal.
    pub quote: fn(&str) -> String,
}

/// All nodes.
pub struct Nodes {
    nodes: Vec<Node>,
    quote: fn(&str) -> String,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(|node| &node.name)).finish()
    }
}

/// Something that a node said, or that became of it.
enum NodeEvent {
    Second(Box<SecondFigures>),
    Over(Box<RunOutcome>),
    Gone(String),
}

/// A node's part of a second that is shown while a run is made.
#[derive(Clone, Copy, Debug)]
pub struct NodeSecond<'a> {
    /// Its name.
    pub node: &'a str,
    /// Its figures; none if it reported none.
    pub figures: Option<&'a SecondFigures>,
    /// Why it is gone.
    pub gone: Option<&'a str>,
}

/// Receives each second of a run: the sum of all nodes, and each node where there are several.
pub type HearSecond<'a> = dyn FnMut(&SecondFigures, &[NodeSecond<'_>]) + 'a;

/// The known part of a node's share while a run is made.
#[derive(Default)]
struct NodeShare {
    node: String,
    seconds: Vec<SecondFigures>,
    outcome: Option<RunOutcome>,
    gone: Option<String>,
}

impl NodeShare {
    /// Returns what is shown of second `number`.
    fn second(&self, number: usize) -> NodeSecond<'_> {
        let (node, gone) = (self.node.as_str(), self.gone.as_deref());
        NodeSecond { node, figures: self.seconds.get(number), gone }
    }
}

impl Nodes {
    /// Starts agents if requested, connects to all, and compares clocks.
    ///
    /// # Errors
    /// A sentence about the first node that cannot be used.
    pub fn meet(plan: &NodesPlan<'_>, stop: &AtomicBool) -> Result<Self, AgentError> {
        let NodesPlan { names, token, start, quote } = *plan;
        let mut nodes = Vec::new();
        for name in names {
            let child = start.map(|start| start_agent(start, name, token)).transpose()?;
            let clock = ClockOffset::default();
            nodes.push(Node { name: name.clone(), line: None, clock, child });
        }
        let patience = Instant::now() + MEET_MAX;
        for node in &mut nodes {
            let name = node.name.clone();
            let failed = |why: String| AgentError::failure(format!("node {name}: {why}"));
            let mut line = meet(&name, token, patience, stop).map_err(&failed)?;
            node.clock = compare_clock(&mut line).map_err(&failed)?;
            node.line = Some(line);
        }
        Ok(Self { nodes, quote })
    }

    /// Nodes that are there.
    pub fn count(&self) -> usize {
        self.nodes.iter().filter(|node| node.line.is_some()).count()
    }

    /// Makes every present node run its `words`, and joins their results. A node's words and
    /// parameters come from `share`, by its number among them.
    ///
    /// # Errors
    /// A sentence when no node measured anything, or what they measured cannot be joined.
    pub fn run(
        &mut self,
        share: &dyn Fn(usize) -> (Vec<String>, RunSetup),
        stop: &AtomicBool,
        live: &mut HearSecond<'_>,
    ) -> Result<NodesRun, AgentError> {
        let places: Vec<_> = (0..)
            .zip(&self.nodes)
            .filter(|(_, node)| node.line.is_some())
            .map(|(at, _)| at)
            .collect();
        let shares: Vec<_> = (0..places.len()).map(share).collect();
        let setup = &shares.first().ok_or_else(|| AgentError::failure("no node is left"))?.1;
        let measured_for = setup.warm_up_s + setup.duration_s.unwrap_or(0.0);
        let patience = Duration::from_secs_f64(measured_for) + CLEAN_UP_MAX;
        let is_counted = setup.calls.is_some();
        let first = Duration::from_secs_f64(setup.warm_up_s) + SILENCE_MAX;
        self.prepare(&places, &shares)?;
        let names = self.nodes.iter().filter(|node| node.line.is_some());
        let mut known: Vec<NodeShare> = names
            .map(|node| NodeShare { node: node.name.clone(), ..NodeShare::default() })
            .collect();
        let (to, from) = channel();
        let begun = Instant::now();
        thread::scope(|scope| {
            let (mut speakers, quote) = (Vec::new(), self.quote);
            // In the order of `places`, which has the nodes with a line.
            let lines = self.nodes.iter_mut().filter_map(|node| node.line.as_mut());
            for (number, line) in lines.enumerate() {
                speakers.extend(line.speaker());
                let to = to.clone();
                scope.spawn(move || hear(number, line, first, &to, quote));
            }
            drop(to);
            let (mut is_told, mut shown) = (false, 0);
            loop {
                match from.recv_timeout(LOOK) {
                    Ok((number, event)) => {
                        let Some(share) = known.get_mut(number) else { continue };
                        match event {
                            NodeEvent::Second(second) => share.seconds.push(*second),
                            NodeEvent::Over(outcome) => share.outcome = Some(*outcome),
                            NodeEvent::Gone(why) => share.gone = Some(why),
                        }
                        show_seconds(&known, &mut shown, live);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                // A run by calls lasts as long as it lasts.
                let is_late = !is_counted && begun.elapsed() > patience;
                if (stop.load(Ordering::Relaxed) || is_late) && !is_told {
                    is_told = true;
                    for speaker in &speakers {
                        let _ = say(speaker, &CoordinatorWord::Stop);
                    }
                }
            }
        });
        self.join(&places, shares, known)
    }

    /// Makes all nodes connect to the server, and sends them the time to begin.
    fn prepare(
        &mut self,
        places: &[usize],
        shares: &[(Vec<String>, RunSetup)],
    ) -> Result<(), AgentError> {
        let mut lines = Vec::new();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if places.contains(&number)
                && let Some(line) = &mut node.line
            {
                lines.push((&node.name, &node.clock, line));
            }
        }
        let failed = |name: &str, why: &dyn std::fmt::Display| {
            AgentError::failure(format!("node {name}: {why}"))
        };
        for ((name, _, line), (words, _)) in lines.iter().zip(shares) {
            let run = CoordinatorWord::Run { words: words.clone() };
            line.say(&run).map_err(|error| failed(name, &error))?;
        }
        let patience = Instant::now() + CLEAN_UP_MAX;
        for (name, _, line) in &mut lines {
            match line.hear(patience) {
                Ok(AgentWord::Ready) => {}
                Ok(AgentWord::Failed { why }) => return Err(failed(name, &(self.quote)(&why))),
                Ok(_) => return Err(failed(name, &"it said something out of turn")),
                Err(fault) => return Err(failed(name, &fault)),
            }
        }
        let at = unix_ns(SystemTime::now() + LEAD) as f64;
        for (name, clock, line) in &lines {
            let at_unix_ns = (at + clock.ahead_us * 1e3).max(0.0) as u64;
            let begin = CoordinatorWord::Begin { at_unix_ns };
            line.say(&begin).map_err(|error| failed(name, &error))?;
        }
        Ok(())
    }

    fn join(
        &mut self,
        places: &[usize],
        shares: Vec<(Vec<String>, RunSetup)>,
        known: Vec<NodeShare>,
    ) -> Result<NodesRun, AgentError> {
        let mut results = Vec::new();
        for ((place, (_, setup)), share) in places.iter().zip(shares).zip(known) {
            let Some(node) = self.nodes.get_mut(*place) else { continue };
            let NodeShare { seconds, outcome, gone, .. } = share;
            let outcome = match outcome {
                Some(outcome) => RunOutcome { seconds, ..outcome },
                None => share_until(setup, seconds).map_err(|why| {
                    AgentError::failure(format!("node {}: what it told is wrong: {why}", node.name))
                })?,
            };
            if gone.is_some() {
                // No more runs are made there.
                node.line = None;
            }
            let (node, clock) = (node.name.clone(), node.clock);
            results.push(NodeResult { node, clock, died: gone, outcome });
        }
        NodesRun::join(results)
            .map_err(|why| AgentError::failure(format!("results cannot be joined: {why}")))
    }
}

/// Receives from one node until its run is over, or it is gone.
fn hear(
    number: usize,
    line: &mut ControlLine,
    first: Duration,
    to: &Sender<(usize, NodeEvent)>,
    quote: fn(&str) -> String,
) {
    let (mut patience, mut seconds) = (first, 0_u64);
    loop {
        let event = match line.hear(Instant::now() + patience) {
            Ok(AgentWord::Second { figures }) => {
                patience = SILENCE_MAX;
                seconds += 1;
                NodeEvent::Second(figures)
            }
            Ok(AgentWord::Over { outcome }) => NodeEvent::Over(outcome),
            Ok(AgentWord::Failed { why }) => NodeEvent::Gone(quote(&why)),
            Ok(_) => NodeEvent::Gone("it said something out of turn".to_owned()),
            // It may be comparing what it wrote, or removing it.
            Err(LineFault::Silent) if patience == SILENCE_MAX && seconds > 0 => {
                patience = CLEAN_UP_MAX;
                continue;
            }
            Err(fault) => NodeEvent::Gone(format!("{fault}, in second {}", seconds + 1)),
        };
        let is_last = !matches!(event, NodeEvent::Second(_));
        if to.send((number, event)).is_err() || is_last {
            return;
        }
    }
}

/// Shows the seconds that all nodes have reported, except nodes that are gone.
fn show_seconds(known: &[NodeShare], shown: &mut usize, live: &mut HearSecond<'_>) {
    loop {
        let mut open = known.iter().filter(|share| share.gone.is_none() && share.outcome.is_none());
        let is_told = open.all(|share| share.seconds.len() > *shown);
        let parts: Vec<_> = known.iter().filter_map(|share| share.seconds.get(*shown)).collect();
        if !is_told || parts.is_empty() {
            return;
        }
        // An unreadable one is reported when shares are joined.
        if let Ok(Some(second)) = join_seconds(parts.into_iter()) {
            live(&second, &known.iter().map(|share| share.second(*shown)).collect::<Vec<_>>());
        }
        *shown += 1;
    }
}

/// Connects to the agent of `name`, which may be about to start.
fn meet(
    name: &str,
    token: &SharedToken,
    patience: Instant,
    stop: &AtomicBool,
) -> Result<ControlLine, String> {
    let (host, port) = host_and_port(name)?;
    loop {
        let connected = connect(host, port);
        let error = match connected {
            Ok(stream) => {
                let mut line = ControlLine::new(stream).map_err(|error| error.to_string())?;
                line.greet(token)?;
                return Ok(line);
            }
            Err(error) => error,
        };
        if stop.load(Ordering::Relaxed) || Instant::now() > patience {
            return Err(format!(
                "no agent on {host}:{port}: {}; start 'stag bench --agent --token-file FILE' \
                 there, or say how: --start ssh",
                plain(&error)
            ));
        }
        thread::sleep(AGAIN);
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let host = host.trim_matches(['[', ']']);
    let scoped = stag_verbs::scoped(host, port);
    let named = match &scoped {
        Ok(_) => None,
        Err(_) => Some((host, port).to_socket_addrs()?),
    };
    for at in scoped.into_iter().chain(named.into_iter().flatten()) {
        match TcpStream::connect_timeout(&at, CONNECT_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Splits `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
fn host_and_port(name: &str) -> Result<(&str, u16), String> {
    let (host, port) = match name.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') && !host.contains(':') || host_is_v6(name) => {
            match port.parse() {
                Ok(port) => (host, port),
                Err(_) => return Err(format!("{name:?} is no host with a port")),
            }
        }
        _ => (name, PORT),
    };
    match host.is_empty() {
        true => Err(format!("{name:?} names no host")),
        false => Ok((host, port)),
    }
}

fn host_is_v6(name: &str) -> bool {
    name.starts_with('[') && name.contains("]:")
}

/// Compares the clock of an agent with this host's.
fn compare_clock(line: &mut ControlLine) -> Result<ClockOffset, String> {
    let mut best: Option<ClockOffset> = None;
    for _ in 0..CLOCKS {
        let (asked, before) = (SystemTime::now(), Instant::now());
        line.say(&CoordinatorWord::Clock).map_err(|error| error.to_string())?;
        let word = line.hear(Instant::now() + CLOCK_MAX).map_err(|fault| fault.to_string())?;
        let AgentWord::Clock { unix_ns: there } = word else {
            return Err("it does not say its time".to_owned());
        };
        let half = before.elapsed() / 2;
        let ahead_us = (there as f64 - unix_ns(asked + half) as f64) / 1e3;
        let error_us = half.as_nanos() as f64 / 1e3;
        if best.is_none_or(|best| error_us < best.error_us) {
            best = Some(ClockOffset { ahead_us, error_us });
        }
    }
    best.ok_or_else(|| "its clock was not looked at".to_owned())
}

/// Starts the agent of `name` by a command like `ssh`: the host and the remote command are appended
/// to it, or replace `{}` in it. The agent reads the token from its standard input.
fn start_agent(start: &str, name: &str, token: &SharedToken) -> Result<Child, AgentError> {
    let failed = |why: String| AgentError::failure(format!("node {name}: '{start}' fails: {why}"));
    let (host, port) = host_and_port(name).map_err(AgentError::usage)?;
    let mut words: Vec<String> =
        start.split_whitespace().map(|word| word.replace("{}", host)).collect();
    if !start.contains("{}") {
        words.push(host.to_owned());
    }
    let (program, before) = words.split_first().ok_or_else(|| failed("it is empty".to_owned()))?;
    let mut child = Command::new(program)
        .args(before)
        .args(["stag", "bench", &format!("--agent=0.0.0.0:{port}"), "--once", "--token-file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| failed(plain(&error)))?;
    let mut line = token.octets().to_vec();
    line.push(b'\n');
    let mut stdin = child.stdin.take().ok_or_else(|| failed("no standard input".to_owned()))?;
    stdin.write_all(&line).map_err(|error| failed(plain(&error)))?;
    Ok(child)
}

/// Refuses invalid and repeated names of nodes.
///
/// # Errors
/// A sentence about the first one.
pub fn check_names(names: &[String]) -> Result<(), AgentError> {
    if names.len() > NODES_MAX {
        return Err(AgentError::usage(format!("--nodes takes {NODES_MAX} names at most")));
    }
    let mut seen = BTreeSet::new();
    for name in names {
        host_and_port(name).map_err(AgentError::usage)?;
        if !seen.insert(name) {
            return Err(AgentError::usage(format!("--nodes names {name} twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_hosts_with_a_port_or_without() {
        for (name, host, port) in [
            ("a", "a", PORT),
            ("a.b.c:7", "a.b.c", 7),
            ("10.0.0.1:20051", "10.0.0.1", 20_051),
            ("[::1]", "[::1]", PORT),
            ("[::1]:9", "[::1]", 9),
        ] {
            assert_eq!(host_and_port(name), Ok((host, port)), "{name}");
        }
        for wrong in ["", ":7", "a:", "a:x", "a:70000", "[::1]:x"] {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
        let twice = check_names(&["a".to_owned(), "b".to_owned(), "a".to_owned()]);
        assert!(twice.unwrap_err().to_string().contains("names a twice"));
    }
}
