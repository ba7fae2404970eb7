//! Classes of a peer's answers to a defect, as the tables name them.

use std::fmt;

/// Answer of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPattern {
    /// MPA: the connection is accepted.
    Accepted,
    /// MPA: a Reply that refuses the connection (RFC 5044 §7.1.1).
    Rejected,
    /// TCP ended, nothing was said.
    Closed,
    /// A Terminate: layer, type, code (RFC 5040 §4.8); then TCP ended.
    Terminate(u8, u8, u8),
    /// RDMA_ERROR, ERR_VERS with the versions spoken (RFC 8166 §4.5.1).
    ErrVers(u32, u32),
    /// RDMA_ERROR, ERR_CHUNK (RFC 8166 §4.5.2).
    ErrChunk,
    /// RDMA_ERROR with another code.
    ErrOther(u32),
    /// Nothing: the next call on the same connection is answered.
    Discarded,
    /// RPC_MISMATCH with the versions spoken (RFC 5531 §9).
    RpcMismatch(u32, u32),
    /// AUTH_ERROR with its `auth_stat`.
    AuthError(u32),
    /// PROG_UNAVAIL.
    ProgUnavail,
    /// PROG_MISMATCH with the versions spoken.
    ProgMismatch(u32, u32),
    /// PROC_UNAVAIL.
    ProcUnavail,
    /// GARBAGE_ARGS.
    GarbageArgs,
    /// SYSTEM_ERR.
    SystemErr,
    /// SUCCESS, and status 0 where the procedure has one.
    Ok,
    /// SUCCESS with this status of NFS version 3.
    Nfs(u32),
    /// SUCCESS with this status of MOUNT version 3.
    Mount(u32),
    /// None is possible: we left first. The effect on others counts.
    Left,
    /// An error of transport or RPC ends the call at the requester that was answered badly.
    Failed,
    /// The requester ended the connection at its call's deadline, and the call failed.
    GivenUp,
    /// The reply arrived at the requester, and its call succeeded.
    Served,
    /// Neither an answer nor the end of the connection came in time.
    Nothing,
    /// More than one answer came.
    Several,
    /// The peer wrote where it was not allowed to, or echoed chunks that were not offered.
    Trespass,
    /// A context of RPCSEC_GSS serves its client no more, though the defect could not end it.
    ContextLost,
    /// The answer is no message that the peer may send.
    Nonsense,
}

/// An answer, and whether the connection ended with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenAnswers {
    /// The first answer.
    pub answer: AnswerPattern,
    /// A message came, and the next call on the same connection was not answered.
    pub closed: bool,
}

impl From<AnswerPattern> for SeenAnswers {
    fn from(answer: AnswerPattern) -> Self {
        Self { answer, closed: false }
    }
}

impl SeenAnswers {
    /// Returns true if `expected` allows the answer: alternatives between `|`, each either whole or
    /// without its numbers.
    pub fn is_in(&self, expected: &str) -> bool {
        let seen = self.to_string();
        expected.split('|').map(str::trim).any(|one| {
            seen == one || seen.strip_prefix(one).is_some_and(|rest| rest.starts_with(' '))
        })
    }
}

impl fmt::Display for SeenAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.answer.fmt(f)?;
        if self.closed { f.write_str(", closed") } else { Ok(()) }
    }
}

impl fmt::Display for AnswerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Terminate(layer, kind, code) => {
                return write!(f, "Terminate {layer:x}/{kind:x}/{code:02x}");
            }
            Self::ErrVers(low, high) => return write!(f, "ERR_VERS {low}..{high}"),
            Self::ErrOther(code) => return write!(f, "RDMA_ERROR {code}"),
            Self::RpcMismatch(low, high) => return write!(f, "RPC_MISMATCH {low}..{high}"),
            Self::ProgMismatch(low, high) => return write!(f, "PROG_MISMATCH {low}..{high}"),
            Self::AuthError(status) => return f.write_str(auth_status(status)),
            Self::Nfs(status) => return status_name(f, "NFS3", status),
            Self::Mount(status) => return status_name(f, "MNT3", status),
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Closed => "closed",
            Self::ErrChunk => "ERR_CHUNK",
            Self::Discarded => "discarded",
            Self::ProgUnavail => "PROG_UNAVAIL",
            Self::ProcUnavail => "PROC_UNAVAIL",
            Self::GarbageArgs => "GARBAGE_ARGS",
            Self::SystemErr => "SYSTEM_ERR",
            Self::Ok => "OK",
            Self::Left => "left",
            Self::Failed => "call fails",
            Self::GivenUp => "closed, and the call fails",
            Self::Served => "call succeeds",
            Self::Nothing => "nothing in time",
            Self::Several => "several answers",
            Self::Trespass => "trespass",
            Self::ContextLost => "context lost",
            Self::Nonsense => "nonsense",
        })
    }
}

const fn auth_status(status: u32) -> &'static str {
    match status {
        1 => "AUTH_BADCRED",
        2 => "AUTH_REJECTEDCRED",
        3 => "AUTH_BADVERF",
        4 => "AUTH_REJECTEDVERF",
        5 => "AUTH_TOOWEAK",
        13 => "RPCSEC_GSS_CREDPROBLEM",
        14 => "RPCSEC_GSS_CTXPROBLEM",
        _ => "AUTH_ERROR (another)",
    }
}

fn status_name(f: &mut fmt::Formatter<'_>, family: &str, status: u32) -> fmt::Result {
    let name = match status {
        1 => "PERM",
        2 => "NOENT",
        5 => "IO",
        6 => "NXIO",
        13 => "ACCES",
        17 => "EXIST",
        18 => "XDEV",
        19 => "NODEV",
        20 => "NOTDIR",
        21 => "ISDIR",
        22 => "INVAL",
        27 => "FBIG",
        28 => "NOSPC",
        30 => "ROFS",
        31 => "MLINK",
        63 => "NAMETOOLONG",
        66 => "NOTEMPTY",
        69 => "DQUOT",
        70 => "STALE",
        71 => "REMOTE",
        10001 => "BADHANDLE",
        10002 => "NOT_SYNC",
        10003 => "BAD_COOKIE",
        10004 => "NOTSUPP",
        10005 => "TOOSMALL",
        10006 => "SERVERFAULT",
        10007 => "BADTYPE",
        10008 => "JUKEBOX",
        other => return write!(f, "{family}ERR_{other}"),
    };
    write!(f, "{family}ERR_{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_in_a_class_with_or_without_its_numbers() {
        let seen = SeenAnswers::from(AnswerPattern::ErrVers(1, 2));
        assert!(seen.is_in("ERR_VERS") && seen.is_in("closed | ERR_VERS 1..2"));
        assert!(!seen.is_in("ERR_VERS 1..1") && !seen.is_in("ERR_CHUNK") && !seen.is_in("ERR_VER"));
        let closed = SeenAnswers { closed: true, ..seen };
        assert!(!closed.is_in("ERR_VERS 1..2") && closed.is_in("ERR_VERS 1..2, closed"));
        assert!(SeenAnswers::from(AnswerPattern::Terminate(1, 2, 5)).is_in("Terminate 1/2/05"));
        assert!(
            SeenAnswers::from(AnswerPattern::Nfs(10001)).is_in("NFS3ERR_STALE | NFS3ERR_BADHANDLE")
        );
    }
}
