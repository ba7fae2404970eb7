//! FSSTAT, FSINFO and PATHCONF (RFC 1813 §3.3.18–3.3.20).

use stag_protocol::nfs::v3::{
    Attributes, Failure, FsInfoResult, FsStatResult, PathConfResult, SystemArgs, SystemOk,
};

use super::failure;
use crate::store::{Failed, Procedures};

pub(super) fn fsstat(store: &mut impl Procedures, args: &SystemArgs) -> FsStatResult {
    about(store.fsstat(&args.object))
}

pub(super) fn fsinfo(store: &mut impl Procedures, args: &SystemArgs) -> FsInfoResult {
    about(store.fsinfo(&args.object))
}

pub(super) fn pathconf(store: &mut impl Procedures, args: &SystemArgs) -> PathConfResult {
    about(store.pathconf(&args.object))
}

type Attributed = Option<Attributes>;

fn about<T>(
    outcome: Result<(T, Attributes), Failed<Attributed>>,
) -> Result<SystemOk<T>, Failure<Attributed>> {
    let (about, attributes) = outcome.map_err(failure)?;
    Ok(SystemOk { attributes: Some(attributes), about })
}
