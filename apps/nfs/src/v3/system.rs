//! FSSTAT, FSINFO and PATHCONF (RFC 1813 §3.3.18–3.3.20).

use stag_protocol::nfs::v3::{
    Attributes, Failure, FsInfoResult, FsStatResult, PathConfResult, SystemArgs, SystemOk,
};

use stag_nfs_store::{Failed, FileAttributes, Procedures};

pub(super) fn fsstat(store: &mut impl Procedures, args: &SystemArgs) -> FsStatResult {
    about(store.fsstat(&args.object))
}

pub(super) fn fsinfo(store: &mut impl Procedures, args: &SystemArgs) -> FsInfoResult {
    about(store.fsinfo(&args.object))
}

pub(super) fn pathconf(store: &mut impl Procedures, args: &SystemArgs) -> PathConfResult {
    about(store.pathconf(&args.object))
}

fn about<T>(
    outcome: Result<(T, FileAttributes), Failed<Option<FileAttributes>>>,
) -> Result<SystemOk<T>, Failure<Option<Attributes>>> {
    let (about, attributes) = outcome?;
    Ok(SystemOk { attributes: Some(attributes.into()), about })
}
