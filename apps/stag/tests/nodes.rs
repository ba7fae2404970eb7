//! `stag bench --nodes`: agents and their coordinator, on this host and in network namespaces of
//! their own.

use crate::support::{Home, Server, json, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use stag_load::latency::decode;
use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

/// A process that ends with its test.
struct Agent {
    child: Child,
    out: PathBuf,
}

impl Agent {
    /// Starts `stag bench --agent=AT`, with the words of `before` in front.
    fn start(home: &Home, before: &[&str], at: &str) -> Self {
        let number = fs::read_dir(home.0.path()).unwrap().count();
        let out = home.path(&format!("agent-{number}"));
        let agent = format!("--agent={at}");
        let mut command = behind(home, before, &["bench", &agent, "--token-file", "token"]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(File::create(&out).unwrap());
        let agent = Self { child: command.spawn().unwrap(), out };
        wait_for("an agent", || agent.text().ends_with("END\n"));
        agent
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    /// The address that it says.
    fn at(&self) -> String {
        self.text().lines().next().unwrap().strip_prefix("AGENT ").unwrap().to_owned()
    }

    fn kill(&self) {
        kill_process(Pid::from_child(&self.child), Signal::KILL).unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command of `stag`, run by the command `before` unless that is empty.
fn behind(home: &Home, before: &[&str], arguments: &[&str]) -> Command {
    let stag = home.stag(arguments);
    let Some((program, words)) = before.split_first() else { return stag };
    let mut command = Command::new(program);
    command.args(words).arg(stag.get_program()).args(stag.get_args());
    command.env("STAG_STATE_DIR", home.path("state")).current_dir(home.0.path());
    command
}

fn token(home: &Home, text: &str) {
    fs::write(home.path("token"), text).unwrap();
    fs::set_permissions(home.path("token"), PermissionsExt::from_mode(0o600)).unwrap();
}

fn echo(home: &Home) -> Server {
    home.serve(&["--memory", "16M", "--name", "data"])
}

/// The histogram of a result's member, bucket by bucket.
fn histogram(outcome: &serde_json::Value, member: &str) -> Vec<(u64, u64)> {
    let histogram = decode(outcome[member]["histogram"].as_str().unwrap()).unwrap();
    histogram.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
}

/// The joined result is the sum of its parts, second by second and bucket by bucket.
fn assert_sum(document: &serde_json::Value) {
    let (joined, nodes) = (&document["results"][0], &document["runs"][0]["nodes"]);
    let nodes = nodes.as_array().unwrap();
    let sum = |of: &dyn Fn(&serde_json::Value) -> u64| nodes.iter().map(of).sum::<u64>();
    let calls = sum(&|node| node["outcome"]["calls"].as_u64().unwrap());
    assert!(calls > 0);
    assert_eq!(joined["calls"].as_u64().unwrap(), calls);
    for member in ["service", "response"] {
        let samples = sum(&|node| node["outcome"][member]["samples"].as_u64().unwrap());
        assert_eq!(joined[member]["samples"].as_u64().unwrap(), samples);
        let mut parts = std::collections::BTreeMap::new();
        for (value, count) in nodes.iter().flat_map(|node| histogram(&node["outcome"], member)) {
            *parts.entry(value).or_insert(0) += count;
        }
        assert_eq!(histogram(joined, member), parts.into_iter().collect::<Vec<_>>());
    }
    for (number, second) in joined["seconds"].as_array().unwrap().iter().enumerate() {
        let calls = sum(&|node| {
            let second = &node["outcome"]["seconds"][number];
            second["calls"].as_u64().unwrap_or(0)
        });
        assert_eq!(second["calls"].as_u64().unwrap(), calls, "second {number}");
    }
}

fn text(output: &Output) -> (String, String) {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn agents_share_a_run_and_its_result_is_the_sum_of_theirs() {
    let home = Home::new();
    token(&home, "a token that both know");
    let server = echo(&home);
    let agents = [(); 2].map(|()| Agent::start(&home, &[], "127.0.0.1:0"));
    let nodes = agents.each_ref().map(Agent::at).join(",");
    let url = format!("tcp://{}/data", server.line("TCP"));
    let run = ["bench", &url, "--nodes", &nodes, "--token-file", "token", "--warm-up", "0"];
    let output =
        home.run(&[&run[..], &["--rate", "400", "--duration", "2", "--json", "n"]].concat());
    let (out, err) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let document = json(&home.path("n"));
    assert_eq!(document["schema"], "stag-bench-nodes/1");
    assert_eq!(document["runs"][0]["missing"], serde_json::json!([]));
    assert_sum(&document);
    assert_eq!(document["results"][0]["setup"]["rate"], 400.0);
    assert!(agents.iter().all(|agent| out.contains(&agent.at())), "{out}");
    // The same agents make another run, of calls; and the file is a result like others.
    let output = home.run(&[&run[..], &["--calls", "51", "--json", "m"]].concat());
    assert_eq!(output.status.code(), Some(0), "{:?}", text(&output));
    assert_eq!(json(&home.path("m"))["results"][0]["calls"], 51);
    let output = home.run(&["bench", "report", "n", "--format", "fio"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", text(&output));
}

#[test]
fn an_outage_that_all_nodes_met_is_one_gap_of_the_joined_result() {
    let home = Home::new();
    token(&home, "a token that both know");
    let listen = |at: &str| home.stag(&["echo", "--listen", at]);
    // No connection takes a port below the ephemeral ones while the server is away.
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let first = 10_000 + (std::process::id() % 10_000) as u16;
    let url = format!("iwarp://127.0.0.1:{}", (first..30_000).find(free).unwrap());
    let mut server = Server::start(&home, listen(&url));
    let agents = [(); 2].map(|()| Agent::start(&home, &[], "127.0.0.1:0"));
    let nodes = agents.each_ref().map(Agent::at).join(",");
    let run = ["bench", &url, "--nodes", &nodes, "--token-file", "token", "--reconnect"];
    let more = ["--rate", "400", "--arrivals", "uniform", "--warm-up", "0", "--duration", "12"];
    let mut command = home.stag(&[&run[..], &more, &["--json", "n"]].concat());
    let seconds = home.path("seconds");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&seconds).unwrap());
    let child = command.spawn().unwrap();
    wait_for("a second", || fs::read_to_string(&seconds).unwrap().contains("   1 s "));
    server.signal(Signal::KILL);
    server.wait();
    server = Server::start(&home, listen(&url));
    let output = child.wait_with_output().unwrap();
    let err = fs::read_to_string(&seconds).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{err}", text(&output).0);
    let document = json(&home.path("n"));
    assert_sum(&document);
    let (joined, nodes) = (&document["results"][0], &document["runs"][0]["nodes"]);
    let outages = joined["outages"].as_array().unwrap();
    assert_eq!(outages.len(), 2, "each node has its outage: {outages:?}");
    let gaps = joined["gaps"].as_array().unwrap();
    let [gap] = &gaps[..] else { panic!("one gap, in which both are: {gaps:?}") };
    // Its replies are the sum of the nodes' replies over the same time.
    let (from, step, calls) = steps(gap);
    assert!(calls.contains(&0) && calls.iter().sum::<u64>() > 0, "{gap}");
    for outage in outages {
        let at = outage["at_s"].as_f64().unwrap();
        assert!(from <= at && at < from + step * calls.len() as f64, "{at} is not in {gap}");
    }
    let until = from + step * calls.len() as f64;
    let mut sum = 0;
    for number in 0..2 {
        let (begin, step, calls) = steps(&nodes[number]["outcome"]["gaps"][0]);
        let at = |place: usize| begin + step * (place as f64 + 0.5);
        let within =
            calls.iter().enumerate().filter(|(place, _)| (from..until).contains(&at(*place)));
        sum += within.map(|(_, calls)| calls).sum::<u64>();
    }
    assert_eq!(calls.iter().sum::<u64>(), sum, "{gap}");
    drop(server);
}

/// A gap: where it begins and how long its steps are, in seconds, and the replies of each step.
fn steps(gap: &serde_json::Value) -> (f64, f64, Vec<u64>) {
    let calls = gap["calls"].as_array().unwrap();
    let [from, step] = ["from_s", "step_s"].map(|name| gap[name].as_f64().unwrap());
    (from, step, calls.iter().map(|calls| calls.as_u64().unwrap()).collect())
}

#[test]
fn strangers_are_turned_away_and_nodes_that_are_not_there_are_named() {
    let home = Home::new();
    token(&home, "a token that both know");
    let agent = Agent::start(&home, &[], "127.0.0.1:0");
    let at = agent.at();
    token(&home, "another token of a stranger");
    let run = ["bench", "tcp://127.0.0.1:1/x", "--token-file", "token", "--nodes"];
    let (_, err) = text(&home.run(&[&run[..], &[&at]].concat()));
    assert!(err.contains(&format!("node {at}: ")) && err.contains("another one"), "{err}");
    token(&home, "a token that both know");
    // A run that cannot be made there is refused in the agent's words.
    let (_, err) = text(&home.run(&[&run[..], &[&at]].concat()));
    assert!(err.contains(&format!("node {at}: ")) && err.contains("cannot connect"), "{err}");
    fs::set_permissions(home.path("token"), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(home.refused(&[&run[..], &[&at]].concat()).contains("chmod 600"));
    assert!(home.refused(&["bench", "--agent"]).contains("--token-file"));
}

#[test]
fn a_command_like_ssh_starts_agents_that_end_with_their_coordinator() {
    let home = Home::new();
    token(&home, "a token that both know");
    // As ssh: the host, then a command, which is another stag there.
    let script = format!("shift 2; exec {} \"$@\"\n", env!("CARGO_BIN_EXE_stag"));
    fs::write(home.path("fake"), script).unwrap();
    let server = echo(&home);
    let url = format!("tcp://{}/data", server.line("TCP"));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let node = format!("127.0.0.1:{port}");
    let run = ["bench", &url, "--nodes", &node, "--start", "sh fake", "--token-file", "token"];
    let output = home.run(&[&run[..], &["--calls", "20", "--warm-up", "0"]].concat());
    let (out, err) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.contains(&node), "{out}");
    assert!(std::net::TcpStream::connect(&node).is_err(), "the agent is gone");
}

#[test]
fn tasks_of_a_slurm_step_take_their_roles_by_rank() {
    let home = Home::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let job = format!(
        "servers = 1\nserve = ['serve', '--memory', '16M', '--name', 'data', '--listen', \
         'iwarp://127.0.0.1:0', '--tcp', '127.0.0.1:{port}']\n\
         url = 'tcp://{{server}}:{port}/data'\nrate = 200\nwarm-up = 0\nduration = 1\n\
         json = 'result.json'\n"
    );
    fs::write(home.path("job.toml"), job).unwrap();
    let task = |rank: &str, tasks: &str| {
        let mut command = home.stag(&["bench", "--slurm", "job.toml"]);
        command.env("SLURM_JOB_ID", "4711").env("SLURM_STEP_ID", "0").env("STAG_HOST", "127.0.0.1");
        command.env("SLURM_PROCID", rank).env("SLURM_NTASKS", tasks).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let too_few = task("0", "1").wait_with_output().unwrap();
    assert!(text(&too_few).1.contains("none is left to measure"), "{too_few:?}");
    let tasks = ["0", "1", "2"].map(|rank| task(rank, "3"));
    for (rank, child) in tasks.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "rank {rank}: {:?}", text(&output));
    }
    let document = json(&home.path("result.json"));
    assert_eq!(document["job"], "4711");
    assert_eq!(document["runs"][0]["nodes"].as_array().unwrap().len(), 2);
    assert_sum(&document);
    let missing = home.run(&["bench", "--slurm", "job.toml"]);
    assert!(text(&missing).1.contains("SLURM_JOB_ID is not set"), "{missing:?}");
}

/// Network namespaces that end with their test.
struct Namespaces(Vec<String>);

impl Namespaces {
    /// A server with a link to each of two others: 10.77.1.1 and .2, 10.77.2.1 and .2. Else why
    /// there are none.
    fn make() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root makes network namespaces".to_owned());
        }
        let id = std::process::id();
        let names: Vec<_> = ["s", "a", "b"].map(|name| format!("stag-{name}-{id}")).into();
        let made = Self(names);
        let [server, one, other] = &made.0[..] else { unreachable!("there are three") };
        for name in &made.0 {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        for (number, name) in [(1, one), (2, other)] {
            let (near, far) = (format!("sv{number}"), "eth0");
            ip(&format!("-n {server} link add {near} type veth peer name {far} netns {name}"))?;
            ip(&format!("-n {server} addr add 10.77.{number}.1/24 dev {near}"))?;
            ip(&format!("-n {name} addr add 10.77.{number}.2/24 dev {far}"))?;
            ip(&format!("-n {server} link set {near} up"))?;
            ip(&format!("-n {name} link set {far} up"))?;
            ip(&format!("-n {name} route add default via 10.77.{number}.1"))?;
        }
        Ok(made)
    }

    /// Words that run a command in namespace `number`.
    fn within(&self, number: usize) -> Vec<&str> {
        vec!["ip", "netns", "exec", &self.0[number]]
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(|error| format!("no command ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[test]
fn an_agent_that_is_killed_in_the_middle_is_named_and_what_it_told_counts() {
    let namespaces = match Namespaces::make() {
        Ok(namespaces) => namespaces,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let home = Home::new();
    token(&home, "a token that both know");
    let serve = ["serve", "--memory", "16M", "--name", "data"];
    let serve = [&serve[..], &["--listen", "iwarp://0.0.0.0:0", "--tcp", "0.0.0.0:0"]].concat();
    let serve = [&serve[..], &["--clients", "10.77.0.0/16"]].concat();
    let server = Server::start(&home, behind(&home, &namespaces.within(0), &serve));
    let port = server.line("TCP").rsplit_once(':').unwrap().1.to_owned();
    let agents = [1, 2].map(|at| Agent::start(&home, &namespaces.within(at), "0.0.0.0:20051"));
    let url = format!("tcp://10.77.1.1:{port}/data");
    let run = ["bench", &url, "--nodes", "10.77.1.2,10.77.2.2", "--token-file", "token"];
    let more = ["--rate", "400", "--warm-up", "0", "--duration", "5", "--json", "n"];
    let mut command = behind(&home, &namespaces.within(0), &[&run[..], &more].concat());
    let seconds = home.path("seconds");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&seconds).unwrap());
    let child = command.spawn().unwrap();
    // Seconds are printed even if standard error is a file.
    wait_for("two seconds", || fs::read_to_string(&seconds).unwrap().contains("   2 s "));
    agents[1].kill();
    let output = child.wait_with_output().unwrap();
    let err = fs::read_to_string(&seconds).unwrap();
    let (out, _) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    let last = err.lines().last().unwrap();
    assert!(last.starts_with("stag: nodes are missing: 10.77.2.2 (its control"), "{err}");
    assert!(out.contains("  MISSING: its control connection ended"), "{out}");
    let document = json(&home.path("n"));
    assert_eq!(document["runs"][0]["missing"], serde_json::json!(["10.77.2.2"]));
    assert_sum(&document);
    let of = |number: usize| &document["runs"][0]["nodes"][number]["outcome"];
    let told = of(1)["seconds"].as_array().unwrap().len();
    assert!((2..5).contains(&told), "{told} seconds of the one that was killed");
    assert!(of(0)["elapsed_s"].as_f64().unwrap() >= 4.9, "the other one went on to the end");
}
