//! FSSTAT, FSINFO and PATHCONF (RFC 1813 §3.3.18–3.3.20).

use stag_protocol::nfs::v3::{
    Attributes, Failure, FsInfoResult, FsStatResult, PathConfResult, SystemArgs, SystemOk,
};

use super::failure;
use crate::store::{Failed, files::Files};

pub(super) fn fsstat(files: &mut Files, args: &SystemArgs) -> FsStatResult {
    about(files.fsstat(&args.object))
}

pub(super) fn fsinfo(files: &mut Files, args: &SystemArgs) -> FsInfoResult {
    about(files.fsinfo(&args.object))
}

pub(super) fn pathconf(files: &mut Files, args: &SystemArgs) -> PathConfResult {
    about(files.pathconf(&args.object))
}

type Known = Option<Attributes>;

fn about<T>(outcome: Result<(T, Attributes), Failed<Known>>) -> Result<SystemOk<T>, Failure<Known>> {
    let (about, attributes) = outcome.map_err(failure)?;
    Ok(SystemOk { attributes: Some(attributes), about })
}
