//! Rivals that run already, named on the command line as NAME=URL: servers of NFS version 3, called
//! by `stag bench` as ours are.

use super::rows::{small_read_at_a_time, small_reads_at_a_time};
use crate::{
    contender::{Absence, Contender, Reading},
    goal::{GoalBound, GoalRow},
    goals::{null_tcp, read_tcp},
    site::{MeasuringSite, shown},
    stag::StagBench,
};
use std::str::FromStr;

/// Schemes of URLs that `stag bench` calls by NFS and that a rival may serve.
const SCHEMES: [&str; 4] = ["tcp", "iwarp", "rdma", "shm"];
/// Depths of the lines that a rival gets.
const DEPTHS: [usize; 2] = [32, 128];
/// Octets of a name in a table.
const NAME_MAX: usize = 40;

/// A server that runs already, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRival {
    /// Name in tables.
    pub name: String,
    /// URL of an export, as `stag bench` takes it.
    pub url: String,
}

impl FromStr for NamedRival {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "write NAME=URL, as in Chimera=tcp://127.0.0.1:2049/share";
        let (name, url) =
            text.split_once('=').ok_or_else(|| format!("{text:?} has no '=': {shape}"))?;
        let name = name.trim();
        if name.is_empty() {
            return Err(format!("{text:?} has no name in front of '=': {shape}"));
        }
        if name.len() > NAME_MAX || name.contains(|c: char| c.is_control() || c == '|') {
            return Err(format!(
                "{name:?} does not fit a table: give at most {NAME_MAX} octets without '|'"
            ));
        }
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| format!("{url:?} is no URL: {shape}"))?;
        if !SCHEMES.contains(&scheme) {
            return Err(format!(
                "there is no scheme {scheme}:// in {url:?}, only {}",
                SCHEMES.join(", ")
            ));
        }
        // A socket's export comes after a colon.
        let export = match scheme {
            "shm" => rest.split_once(":/"),
            _ => rest.split_once('/'),
        };
        let path = export.map_or("", |(_, path)| path.split('?').next().unwrap_or(path));
        if path.is_empty() {
            return Err(format!("{url:?} names no export, which READs need: {shape}"));
        }
        Ok(Self { name: name.to_owned(), url: url.to_owned() })
    }
}

/// A rival that runs already, and how it is called.
#[derive(Clone, Debug)]
struct NamedFigures {
    rival: NamedRival,
    bench: StagBench,
    commands: Vec<String>,
}

impl NamedFigures {
    fn new(rival: &NamedRival, options: &str) -> Self {
        Self { rival: rival.clone(), bench: StagBench::new(options), commands: Vec::new() }
    }
}

impl Contender for NamedFigures {
    fn name(&self) -> String {
        format!("{}, same client", self.rival.name)
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn is_stranger(&self) -> bool {
        true
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        self.commands = vec![
            format!("# {} runs already, at {}", self.rival.name, self.rival.url),
            shown(&self.bench.command(site, &self.rival.url)),
        ];
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        self.bench.run(site, &self.rival.url)
    }
}

/// The lines of `goal` for each of `rivals`; none for goals that are not about NFS over sockets.
pub fn rows(goal: &str, rivals: &[NamedRival]) -> Vec<GoalRow> {
    rivals.iter().flat_map(|rival| rows_of(goal, rival)).collect()
}

fn rows_of(goal: &str, rival: &NamedRival) -> Vec<GoalRow> {
    let theirs = |options: &str| NamedFigures::new(rival, options);
    match goal {
        "G4t" => {
            vec![null_tcp(GoalBound::None, theirs), read_tcp(GoalBound::None, theirs)]
        }
        "G7" => {
            let many = DEPTHS
                .into_iter()
                .flat_map(|depth| small_reads_at_a_time(depth, GoalBound::None, theirs));
            small_read_at_a_time(theirs).into_iter().chain(many).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::ReadingQuantity;

    fn rival(text: &str) -> NamedRival {
        text.parse().unwrap()
    }

    #[test]
    fn a_rival_is_a_name_and_the_url_of_an_export() {
        let plain = rival("Chimera=tcp://127.0.0.1:2049/share");
        assert_eq!(plain.name, "Chimera");
        assert_eq!(plain.url, "tcp://127.0.0.1:2049/share");
        // The text after the first '=' is the URL, which may contain more of them.
        let mounted = rival("My server 2=tcp://[::1]:2049/a/b?mountport=635");
        assert_eq!(mounted.url, "tcp://[::1]:2049/a/b?mountport=635");
        for url in ["iwarp://10.0.0.1:20049/x", "rdma://10.0.0.1:20049/x", "shm:///run/s.sock:/x"] {
            assert_eq!(rival(&format!("x={url}")).url, url);
        }
    }

    #[test]
    fn what_is_no_rival_says_what_to_write() {
        for (text, part) in [
            ("tcp://127.0.0.1:2049/share", "has no '='"),
            ("=tcp://127.0.0.1/share", "has no name"),
            (" =tcp://127.0.0.1/share", "has no name"),
            ("a|b=tcp://127.0.0.1/share", "does not fit a table"),
            ("a\nb=tcp://127.0.0.1/share", "does not fit a table"),
            (&format!("{}=tcp://127.0.0.1/share", "x".repeat(41)), "does not fit a table"),
            ("Chimera=127.0.0.1:2049", "is no URL"),
            ("Chimera=", "is no URL"),
            ("Chimera=http://127.0.0.1/share", "no scheme http://"),
            ("Chimera=tcp://127.0.0.1:2049", "names no export"),
            ("Chimera=tcp://127.0.0.1:2049/?mountport=1", "names no export"),
            ("Chimera=shm:///run/s.sock", "names no export"),
        ] {
            let why = text.parse::<NamedRival>().unwrap_err();
            assert!(why.contains(part) && !why.contains('\n'), "{text}: {why}");
        }
    }

    #[test]
    fn each_rival_gets_lines_at_every_depth_over_both_ways_and_no_bound() {
        let rivals = [rival("One=tcp://127.0.0.1:1/x"), rival("Two=tcp://127.0.0.1:2/x")];
        let (tcp, reads) = (rows("G4t", &rivals), rows("G7", &rivals));
        assert_eq!((tcp.len(), reads.len()), (2 * 2, 2 * 6));
        for row in tcp.iter().chain(&reads) {
            assert_eq!(row.bound, GoalBound::None);
            let is_one = row.what.contains("round trip");
            let quantity = if is_one { ReadingQuantity::RoundTrip } else { ReadingQuantity::Rate };
            assert_eq!(row.quantity, quantity, "{}", row.what);
        }
        let of = |name: &str| reads.iter().filter(|row| row.against() == name).count();
        assert_eq!((of("One, same client"), of("Two, same client")), (6, 6));
        for part in ["tcp", "iwarp", "depth 32", "depth 128"] {
            assert!(reads.iter().any(|row| row.what.contains(part)), "{part}");
        }
        assert!(rows("G1", &rivals).is_empty() && rows("G7", &[]).is_empty());
    }
}
