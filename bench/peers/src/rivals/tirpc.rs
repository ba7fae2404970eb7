//! libtirpc, what most programs of ONC RPC are linked with: a server and a client of it, compiled
//! where they are measured (`bench/peers/tirpc/`). No port mapper is asked.

use crate::{
    contender::{Absence, Contender, Reading},
    site::{MeasuringSite, RunningServer, shown, unique},
    stag::StagBench,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Program that calls the server.
#[derive(Clone, Debug)]
enum TirpcCall {
    /// libtirpc: one call at a time.
    Own,
    /// `stag bench`, whose calls leave together.
    Stag(StagBench),
}

/// A server of libtirpc and who calls it.
#[derive(Debug)]
pub struct Tirpc {
    caller: TirpcCall,
    /// The client's program.
    client: PathBuf,
    server: Option<(RunningServer, u16)>,
    commands: Vec<String>,
}

impl Tirpc {
    /// Called by libtirpc.
    pub fn new() -> Self {
        Self::called_by(TirpcCall::Own)
    }

    /// Called by `stag bench` with these options.
    pub fn with_stag_bench(options: &str) -> Self {
        Self::called_by(TirpcCall::Stag(StagBench::new(options)))
    }

    fn called_by(caller: TirpcCall) -> Self {
        Self { caller, client: PathBuf::new(), server: None, commands: Vec::new() }
    }

    /// Returns the command that calls the server.
    fn asking(&self, site: &MeasuringSite, port: u16) -> Command {
        match &self.caller {
            TirpcCall::Stag(bench) => bench.command(site, &url(port)),
            TirpcCall::Own => {
                let mut command = site.on_core(site.client, &self.client);
                command
                    .arg(port.to_string())
                    .args(program())
                    .arg(site.turn.as_secs_f64().to_string());
                command
            }
        }
    }
}

impl Default for Tirpc {
    fn default() -> Self {
        Self::new()
    }
}

impl Contender for Tirpc {
    fn name(&self) -> String {
        match &self.caller {
            TirpcCall::Own => "libtirpc, TCP".to_owned(),
            TirpcCall::Stag(_) => "libtirpc's server, TCP, same client".to_owned(),
        }
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        let home = site.home().join(format!("tirpc-{}", unique()));
        fs::create_dir(&home).map_err(Absence::failed)?;
        let flags = flags(site)?;
        let mut build = |source| compile(site, &home, source, &flags, &mut self.commands);
        let server = build(SERVER)?;
        self.client = build(CLIENT)?;
        let mut serving = site.on_core(site.server, server);
        serving.args(program());
        self.commands.push(shown(&serving));
        let (running, port) =
            site.serve(serving, |line| line.strip_prefix("PORT ")?.parse().ok())?;
        self.commands.push(shown(&self.asking(site, port)));
        self.server = Some((running, port));
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let (_, port) = self.server.as_ref().ok_or("it was not started")?;
        match &self.caller {
            TirpcCall::Stag(bench) => bench.run(site, &url(*port)),
            TirpcCall::Own => parse(&site.run(self.asking(site, *port))?),
        }
    }
}

fn url(port: u16) -> String {
    format!("tcp://127.0.0.1:{port}")
}

/// The echo program, which `stag bench` calls where no export is named: its number and its version.
fn program() -> [String; 2] {
    [stag_echo::PROGRAM, stag_echo::VERSION].map(|number| number.to_string())
}

/// Returns the flags that the compiler needs for libtirpc.
fn flags(site: &MeasuringSite) -> Result<Vec<String>, Absence> {
    let mut command = Command::new(site.find("pkg-config", "pkg-config")?);
    let flags = site.run({
        command.args(["--cflags", "--libs", "libtirpc"]);
        command
    });
    let missing =
        |_| Absence::Missing { program: "libtirpc".to_owned(), package: "libtirpc-dev".to_owned() };
    Ok(flags.map_err(missing)?.split_whitespace().map(str::to_owned).collect())
}

/// A program in C.
#[derive(Clone, Copy)]
struct ProgramSource {
    /// Name of the file and of the program.
    name: &'static str,
    text: &'static str,
}

const SERVER: ProgramSource =
    ProgramSource { name: "server", text: include_str!("../../tirpc/server.c") };
const CLIENT: ProgramSource =
    ProgramSource { name: "client", text: include_str!("../../tirpc/client.c") };

/// Compiles a source.
fn compile(
    site: &MeasuringSite,
    home: &Path,
    source: ProgramSource,
    flags: &[String],
    commands: &mut Vec<String>,
) -> Result<PathBuf, Absence> {
    let to = home.join(source.name);
    let from = to.with_extension("c");
    fs::write(&from, source.text).map_err(Absence::failed)?;
    let mut command = Command::new(site.find("cc", "gcc")?);
    command.arg("-O2").arg(&from).args(flags).arg("-o").arg(&to);
    commands.push(shown(&command));
    site.run(command).map_err(Absence::Failed)?;
    Ok(to)
}

/// Reads the line of `tirpc/client.c`.
fn parse(text: &str) -> Result<Reading, String> {
    let number = |name: &str| {
        let mut words = text.split_whitespace();
        let word = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|word| word.parse::<u64>().ok())
            .filter(|number| *number > 0)
            .map(|number| number as f64)
    };
    let reading = || {
        Some(Reading {
            p50_ns: Some(number("p50_ns")?),
            p99_ns: Some(number("p99_ns")?),
            calls_per_s: Some(number("calls")? / number("elapsed_ns")? * 1e9),
            ..Reading::default()
        })
    };
    reading()
        .ok_or_else(|| format!("libtirpc's client does not say what it should: {:?}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_line_is_read() {
        let reading =
            parse("calls=12136 elapsed_ns=1213600000 p50_ns=15060 p99_ns=3335361\n").unwrap();
        assert_eq!((reading.p50_ns, reading.p99_ns), (Some(15_060.0), Some(3_335_361.0)));
        assert_eq!((reading.calls_per_s, reading.octets_per_s), (Some(10_000.0), None));
    }

    #[test]
    fn a_line_with_something_missing_is_refused() {
        let all = "calls=1 elapsed_ns=2 p50_ns=3 p99_ns=4";
        assert!(parse(all).is_ok());
        for word in all.split(' ') {
            let (name, _) = word.split_once('=').unwrap();
            for broken in
                ["", name, &format!("{name}=0"), &format!("{name}=x"), &format!("{name}=-1")]
            {
                assert!(parse(&all.replace(word, broken)).is_err(), "{word} as {broken:?}");
            }
        }
    }

    #[test]
    fn its_client_and_its_server_are_compiled_and_understand_each_other() {
        let Ok(site) = MeasuringSite::new(std::time::Duration::from_millis(20)) else {
            return println!("skipped: this process may use one core");
        };
        let flags = match flags(&site) {
            Ok(flags) => flags,
            Err(absence) => return println!("skipped: {absence}"),
        };
        let built = |source| compile(&site, site.home(), source, &flags, &mut Vec::new()).unwrap();
        // Whatever seats programs on cores is not built by tests of the library.
        let mut serving = Command::new(built(SERVER));
        serving.args(program());
        let (_running, port): (_, u16) =
            site.serve(serving, |line| line.strip_prefix("PORT ")?.parse().ok()).unwrap();
        let mut asking = Command::new(built(CLIENT));
        asking.arg(port.to_string()).args(program()).arg("0.02");
        assert!(parse(&site.run(asking).unwrap()).unwrap().calls_per_s.unwrap() > 1.0);
    }
}
