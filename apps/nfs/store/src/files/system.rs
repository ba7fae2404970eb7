//! FSSTAT, FSINFO, PATHCONF (RFC 1813 §3.3.18–3.3.20).

use rustix::fs::fstatvfs;
use stag_protocol::nfs::v3::{FileHandle, FsInfo, FsStat, PathConf, Time};

use super::{Files, Intent, errno::status};
use crate::{Failed, FileAttributes, TRANSFER_MAX};

/// Bytes of directory entries that a client should request at once.
const READDIR_PREFERRED: u32 = 32 << 10;

type FsAttributes<T> = Result<(T, FileAttributes), Failed<Option<FileAttributes>>>;

impl Files {
    /// FSSTAT (RFC 1813 §3.3.18).
    ///
    /// # Errors
    /// The status of the reply.
    pub fn fsstat(&mut self, object: &FileHandle) -> FsAttributes<FsStat> {
        let slot = self.resolve(object, Intent::Look)?;
        let attributes = self.attributes(slot)?;
        let found = fstatvfs(self.cache.path(slot));
        let found =
            found.map_err(|error| Failed { status: status(error), about: Some(attributes) })?;
        let octets = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let fsstat = FsStat {
            total_octets: octets(found.f_blocks),
            free_octets: octets(found.f_bfree),
            // RFC 1813 §3.3.18 [1813-89]: an FSSTAT counts octets and files: all, free, available
            available_octets: octets(found.f_bavail),
            total_files: found.f_files,
            free_files: found.f_ffree,
            available_files: found.f_favail,
            unchanged_seconds: 0,
        };
        Ok((fsstat, attributes))
    }

    /// FSINFO (RFC 1813 §3.3.19). The largest file size is that of the export's file system
    /// (`limits`).
    ///
    /// # Errors
    /// The status of the reply.
    pub fn fsinfo(&mut self, object: &FileHandle) -> FsAttributes<FsInfo> {
        let slot = self.resolve(object, Intent::Look)?;
        let (read_max, write_max) = self.transfer_sizes(slot, TRANSFER_MAX);
        let fsinfo = FsInfo {
            read_max,
            // RFC 1813 §3.3.19 [1813-90]: the preferred sizes are the largest ones
            read_preferred: read_max,
            read_multiple: 4096,
            write_max,
            write_preferred: write_max,
            write_multiple: 4096,
            readdir_preferred: READDIR_PREFERRED,
            // RFC 1813 §3.3.19 [1813-93]: maxfilesize is the size of the largest file
            file_size_max: self.export_of(slot).limits().file_size_max,
            // RFC 1813 §3.3.19 [1813-91]: times are kept to the accuracy of time_delta
            time_delta: Time { seconds: 0, nanos: 1 },
            // RFC 1813 §3.3.19 [1813-92]: the FSINFO properties describe what is supported
            properties: FsInfo::LINK | FsInfo::SYMLINK | FsInfo::HOMOGENEOUS | FsInfo::CAN_SET_TIME,
        };
        Ok((fsinfo, self.attributes(slot)?))
    }

    /// PATHCONF (RFC 1813 §3.3.20).
    ///
    /// # Errors
    /// The status of the reply.
    pub fn pathconf(&mut self, object: &FileHandle) -> FsAttributes<PathConf> {
        let slot = self.resolve(object, Intent::Look)?;
        let attributes = self.attributes(slot)?;
        let found = fstatvfs(self.cache.path(slot));
        let found =
            found.map_err(|error| Failed { status: status(error), about: Some(attributes) })?;
        let name_max =
            u32::try_from(found.f_namemax).unwrap_or(u32::MAX).min(super::name::NAME_MAX as u32);
        let pathconf = PathConf {
            // RFC 1813 §3.3.20 [1813-94]: linkmax is the largest number of hard links
            link_max: self.export_of(slot).limits().link_max,
            name_max,
            // RFC 1813 §3.3.20 [1813-95]: names are never cut, and their case is kept and compared
            no_trunc: true,
            // RFC 1813 §3.3.20 [1813-96]: chown_restricted says if only root gives files away
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        Ok((pathconf, attributes))
    }
}
