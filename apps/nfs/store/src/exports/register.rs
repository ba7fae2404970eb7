//! The register of export ids, which are never reused: the file `exports` of the state directory.

use std::fmt::Write as _;

use super::{
    cluster::Cluster,
    config::ExportId,
    handle::Birth,
    state_dir::{StateDirectory, cannot},
};
use crate::start_error::StartError;

/// One export with an id.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RegisterLine {
    pub(crate) id: ExportId,
    pub(crate) inode: u64,
    pub(crate) birth: Birth,
    pub(crate) name: String,
}

/// The file `exports`: one line each, `ID INODE SECONDS NANOSECONDS NAME`. Lines are never removed.
/// In a cluster, its file has the ids, and a name keeps its id whatever its directory: handles into
/// a former one lead nowhere, as their files are gone.
pub(crate) struct Register<'a> {
    lines: Vec<RegisterLine>,
    pub(crate) cluster: Option<&'a Cluster>,
    changed: bool,
}

impl<'a> Register<'a> {
    const FILE: &'static str = "exports";

    pub(crate) fn read(
        state: &StateDirectory,
        cluster: Option<&'a Cluster>,
    ) -> Result<Self, StartError> {
        let path = state.path().join(Self::FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(cannot("read", &path)(error)),
        };
        let lines = text.lines().map(Self::line).collect::<Option<_>>();
        let lines = lines.ok_or_else(|| StartError(format!("{} is damaged", path.display())))?;
        Ok(Self { lines, cluster, changed: false })
    }

    fn line(text: &str) -> Option<RegisterLine> {
        let mut words = text.splitn(5, ' ');
        Some(RegisterLine {
            id: ExportId(words.next()?.parse().ok()?),
            inode: words.next()?.parse().ok()?,
            birth: Birth {
                seconds: words.next()?.parse().ok()?,
                nanos: words.next()?.parse().ok()?,
            },
            name: words.next()?.to_owned(),
        })
    }

    pub(crate) fn id_of(&mut self, wanted: RegisterLine) -> Result<ExportId, StartError> {
        if let Some(cluster) = self.cluster {
            return cluster.id_of(&wanted.name).ok_or_else(|| {
                StartError(format!(
                    "the file of the cluster {} has no export {name}: add it there with 'stag \
                     cluster add FILE {name}', and copy the file to all its gateways",
                    cluster.name(),
                    name = wanted.name
                ))
            });
        }
        let same = |line: &&RegisterLine| {
            (line.inode, line.birth, &line.name) == (wanted.inode, wanted.birth, &wanted.name)
        };
        if let Some(line) = self.lines.iter().find(same) {
            return Ok(line.id);
        }
        let last = self.lines.iter().map(|line| line.id.0).max().unwrap_or(0);
        let id =
            last.checked_add(1).ok_or_else(|| StartError("no export id is left".to_owned()))?;
        self.lines.push(RegisterLine { id: ExportId(id), ..wanted });
        self.changed = true;
        Ok(ExportId(id))
    }

    pub(crate) fn save(&self, state: &StateDirectory) -> Result<(), StartError> {
        if !self.changed {
            return Ok(());
        }
        let mut text = String::new();
        for RegisterLine { id, inode, birth, name } in &self.lines {
            writeln!(text, "{} {inode} {} {} {name}", id.0, birth.seconds, birth.nanos)
                .expect("a string takes every text");
        }
        state.replace(Self::FILE, text.as_bytes())
    }
}
