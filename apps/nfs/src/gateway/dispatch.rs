//! Dispatch of a call header to its procedure, with its caller.

use stag_engine::PeerAddress;
use stag_protocol::{
    nfs::{
        mount::{self, Procedure as MountProcedure},
        v3::{self, Procedure},
        v4,
    },
    rpc::{Accepted, AuthStatus, CallHeader, Credential, Denied, ReplyHeader, UnixUser},
};

use stag_nfs_store::{self, Security, User};

/// A procedure to execute.
pub(super) enum CallTarget {
    Mount(MountProcedure),
    Nfs(Procedure),
    /// NULL of NFS version 4.
    Null4,
    /// COMPOUND of NFS version 4.
    Compound,
}

/// Describes a caller to the store, by credential, address, and the identity that its connection
/// proves.
#[inline(always)]
pub(super) fn caller(
    credential: &Credential<'_>,
    address: PeerAddress,
    is_proven: bool,
) -> stag_nfs_store::Caller {
    let user = match credential {
        Credential::Sys(sys) => User::Unix { uid: sys.uid, gid: sys.gid, gids: sys.gids },
        Credential::None | Credential::Other(_) => User::Anyone,
        Credential::Proven(proven) => {
            let unix = |UnixUser { uid, gid, gids }| User::Unix { uid, gid, gids };
            proven.unix.map_or(User::Anyone, unix)
        }
    };
    let security = security(credential);
    // A ticket proves its user from whatever port.
    let is_proven = is_proven || security.is_proven();
    stag_nfs_store::Caller { user, address, is_proven, security }
}

/// The security of a call with this credential.
pub(super) fn security(credential: &Credential<'_>) -> Security {
    match credential {
        Credential::Sys(_) => Security::Sys,
        Credential::None | Credential::Other(_) => Security::None,
        Credential::Proven(proven) => proven.service.into(),
    }
}

/// Versions of NFS that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServedVersions {
    pub(super) three: bool,
    pub(super) four: bool,
}

impl ServedVersions {
    /// The lowest and the highest served version of a program.
    fn range(self, program: u32) -> (u32, u32) {
        match program {
            v3::PROGRAM if self.four => {
                (if self.three { v3::VERSION } else { v4::VERSION }, v4::VERSION)
            }
            _ => (v3::VERSION, v3::VERSION),
        }
    }
}

/// Finds the called procedure, or the error for a caller who cannot call it.
pub(super) fn route(
    header: &CallHeader<'_>,
    served: ServedVersions,
) -> Result<CallTarget, ReplyHeader<'static>> {
    // RFC 5531 §8.1 [5531-5]: program, version and procedure name the target
    let target = match (header.program, header.version) {
        // RFC 8267 §5.1 [8267-1]: a server of NFS over RDMA offers MOUNT over TCP
        (mount::PROGRAM, mount::VERSION) => {
            MountProcedure::new(header.procedure).map(CallTarget::Mount)
        }
        (v3::PROGRAM, v3::VERSION) if served.three => {
            Procedure::new(header.procedure).map(CallTarget::Nfs)
        }
        (v3::PROGRAM, v4::VERSION) if served.four => match header.procedure {
            0 => Some(CallTarget::Null4),
            v4::COMPOUND => Some(CallTarget::Compound),
            _ => None,
        },
        (program @ (mount::PROGRAM | v3::PROGRAM), _) => {
            const { assert!(mount::VERSION == v3::VERSION) };
            // RFC 5531 §8.1 [5531-9]: an unknown version gets PROG_MISMATCH and the range
            let (low, high) = served.range(program);
            return Err(header.reply(Accepted::ProgMismatch { low, high }));
        }
        // RFC 5531 §8.1 [5531-8]: an unknown program gets PROG_UNAVAIL
        _ => return Err(header.reply(Accepted::ProgUnavail)),
    };
    // RFC 5531 §8.1 [5531-10]: an unknown procedure gets PROC_UNAVAIL
    let target = target.ok_or_else(|| header.reply(Accepted::ProcUnavail))?;
    match header.credential {
        // RFC 1813 §3.3.0 [1813-20]: a NULL call does no work and needs no credential
        // RFC 5531 §12.1 [5531-25]: procedure 0 takes and gives nothing, for anybody
        Credential::None | Credential::Sys(_) | Credential::Proven(_) => Ok(target),
        // Control messages of RPCSEC_GSS come with procedure 0 (RFC 2203 §5.2.3.1).
        // RFC 5531 §9 [5531-20]: a flavor that is not accepted gets AUTH_TOOWEAK
        _ => Err(header.deny(Denied::AuthError(AuthStatus::TOO_WEAK))),
    }
}
