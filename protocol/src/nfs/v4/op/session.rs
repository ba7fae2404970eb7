//! Clients and sessions (RFC 8881 §18.33–§18.37, §18.46).

use crate::nfs::v4::forms::{numbers, record, union};
use crate::nfs::v4::{Array, Bitmap, Owner4, SessionId, Text, Time4, Verifier4};
use crate::rpc::AuthSys;

use super::GssService;

/// Flags of EXCHANGE_ID (RFC 8881 §18.35.1).
pub mod exchange_flag {
    /// Referrals are understood, or given.
    pub const SUPP_MOVED_REFER: u32 = 0x0000_0001;
    /// Migration is understood, or done.
    pub const SUPP_MOVED_MIGR: u32 = 0x0000_0002;
    /// Operations of fencing are understood (version 4.2).
    pub const SUPP_FENCE_OPS: u32 = 0x0000_0004;
    /// Stateids are bound to principals.
    pub const BIND_PRINC_STATEID: u32 = 0x0000_0100;
    /// No pNFS.
    pub const USE_NON_PNFS: u32 = 0x0001_0000;
    /// A metadata server.
    pub const USE_PNFS_MDS: u32 = 0x0002_0000;
    /// A data server.
    pub const USE_PNFS_DS: u32 = 0x0004_0000;
    /// The request updates a confirmed record.
    pub const UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
    /// The record is confirmed; in answers only.
    pub const CONFIRMED_R: u32 = 0x8000_0000;
    /// Bits that a request may have.
    pub const REQUEST_MASK: u32 = SUPP_MOVED_REFER
        | SUPP_MOVED_MIGR
        | SUPP_FENCE_OPS
        | BIND_PRINC_STATEID
        | USE_NON_PNFS
        | USE_PNFS_MDS
        | USE_PNFS_DS
        | UPD_CONFIRMED_REC_A;
}

/// Flags of CREATE_SESSION (RFC 8881 §18.36.1).
pub mod session_flag {
    /// Replies outlive a restart.
    pub const PERSIST: u32 = 1;
    /// The connection carries callbacks.
    pub const CONN_BACK_CHAN: u32 = 2;
    /// The connection goes over to RDMA.
    pub const CONN_RDMA: u32 = 4;
}

/// Status flags of SEQUENCE (RFC 8881 §18.46.2).
pub mod sequence_flag {
    /// No session of the client has a callback path.
    pub const CB_PATH_DOWN: u32 = 0x0001;
    /// All state was revoked, because the lease expired.
    pub const EXPIRED_ALL_STATE_REVOKED: u32 = 0x0008;
    /// Some state was revoked, because the lease expired.
    pub const EXPIRED_SOME_STATE_REVOKED: u32 = 0x0010;
    /// State was revoked by an administrator.
    pub const ADMIN_STATE_REVOKED: u32 = 0x0020;
    /// Delegations were revoked.
    pub const RECALLABLE_STATE_REVOKED: u32 = 0x0040;
    /// The server restarted and kept the session.
    pub const RESTART_RECLAIM_NEEDED: u32 = 0x0100;
    /// This session has no callback path.
    pub const CB_PATH_DOWN_SESSION: u32 = 0x0200;
    /// The callback channel of this session is spoilt.
    pub const BACKCHANNEL_FAULT: u32 = 0x0400;
}

record! {
    /// Name and incarnation of a client (`client_owner4`).
    #[derive(Copy)]
    ClientOwner<'a> {
        /// Another one after a restart of the client.
        verifier: Verifier4,
        /// The client.
        owner: Owner4<'a>,
    }
}

record! {
    /// Operations under state protection (`state_protect_ops4`).
    #[derive(Copy)]
    ProtectedOperations {
        /// They need the protecting principal.
        enforce: Bitmap,
        /// They may have it.
        allow: Bitmap,
    }
}

record! {
    /// Parameters of SP4_SSV (`ssv_sp_parms4`).
    SsvParameters<'a> {
        /// Operations.
        operations: ProtectedOperations,
        /// Hash algorithms.
        hashes: Array<'a, Text<'a, 1024>>,
        /// Encryption algorithms.
        ciphers: Array<'a, Text<'a, 1024>>,
        /// Versions of the secret that stay valid.
        window: u32,
        /// Handles wanted.
        handles: u32,
    }
}

union! {
    /// State protection that a client requests (`state_protect4_a`).
    StateProtection<'a> {
        /// None.
        0 => None,
        /// By the machine's credential.
        1 => MachineCredential(ProtectedOperations),
        /// By a shared secret.
        2 => Ssv(SsvParameters<'a>),
    }
}

record! {
    /// Name of an implementation (`nfs_impl_id4`).
    #[derive(Copy)]
    Implementation<'a> {
        /// Domain of its maker.
        domain: Text<'a, 1024>,
        /// Product.
        name: Text<'a, 1024>,
        /// Date of its making.
        date: Time4,
    }
}

record! {
    /// Arguments of EXCHANGE_ID.
    ExchangeIdArgs<'a> {
        /// The client.
        client: ClientOwner<'a>,
        /// Flags ([`exchange_flag`]).
        flags: u32,
        /// State protection.
        protection: StateProtection<'a>,
        /// The client's implementation.
        // An array of at most one (RFC 8881 §18.35.1) has the form of optional data.
        implementation: Option<Implementation<'a>>,
    }
}

record! {
    /// State protection by SP4_SSV as it is granted (`ssv_prot_info4`).
    SsvGranted<'a> {
        /// Operations.
        operations: ProtectedOperations,
        /// Chosen hash algorithm.
        hash: u32,
        /// Chosen encryption algorithm.
        cipher: u32,
        /// Octets of the secret.
        secret_len: u32,
        /// Versions of the secret that stay valid.
        window: u32,
        /// Handles.
        handles: Array<'a, Text<'a, 1024>>,
    }
}

union! {
    /// State protection that is granted (`state_protect4_r`). We grant none.
    GrantedProtection<'a> {
        /// None.
        0 => None,
        /// By the machine's credential.
        1 => MachineCredential(ProtectedOperations),
        /// By a shared secret.
        2 => Ssv(SsvGranted<'a>),
    }
}

record! {
    /// Identity of a server (`server_owner4`).
    #[derive(Copy)]
    ServerOwner<'a> {
        /// Equal where sessions can be trunked.
        minor: u64,
        /// Equal where client IDs can be trunked.
        major: Owner4<'a>,
    }
}

record! {
    /// Results of EXCHANGE_ID.
    ExchangeIdOk<'a> {
        /// The client ID.
        client_id: u64,
        /// Sequence ID of the next CREATE_SESSION.
        sequence: u32,
        /// Flags ([`exchange_flag`]).
        flags: u32,
        /// State protection.
        protection: GrantedProtection<'a>,
        /// The server.
        server: ServerOwner<'a>,
        /// Servers with the same scope recognise each other's client IDs, handles and stateids.
        scope: Owner4<'a>,
        /// The server's implementation.
        implementation: Option<Implementation<'a>>,
    }
}

record! {
    /// Sizes and numbers of a channel (`channel_attrs4`).
    #[derive(Copy)]
    ChannelAttributes {
        /// Padding of headers.
        header_pad: u32,
        /// Octets of the longest request, RPC header included.
        request_max: u32,
        /// Octets of the longest reply.
        response_max: u32,
        /// Octets of the longest reply that is cached.
        response_cached_max: u32,
        /// Operations of a compound.
        operations_max: u32,
        /// Slots.
        requests_max: u32,
        /// Depth of the inbound RDMA Read queue, if the connection is to switch to RDMA.
        rdma_ird: Option<u32>,
    }
}

record! {
    /// Contexts of RPCSEC_GSS for callbacks (`gss_cb_handles4`).
    #[derive(Copy)]
    GssCallback<'a> {
        /// Protection.
        service: GssService,
        /// The server's handle.
        from_server: Text<'a, 1024>,
        /// The client's handle.
        from_client: Text<'a, 1024>,
    }
}

union! {
    /// Credential that callbacks may have (`callback_sec_parms4`).
    CallbackSecurity<'a> {
        /// AUTH_NONE.
        0 => None,
        /// AUTH_SYS.
        1 => Sys(AuthSys<'a>),
        /// RPCSEC_GSS.
        6 => Gss(GssCallback<'a>),
    }
}

record! {
    /// Arguments of BACKCHANNEL_CTL.
    BackchannelCtlArgs<'a> {
        /// Program of the callbacks.
        program: u32,
        /// Their credentials.
        security: Array<'a, CallbackSecurity<'a>>,
    }
}

numbers! {
    /// Channels that a client requests for a connection (`channel_dir_from_client4`).
    ChannelWish {
        /// The fore channel.
        Fore = 1,
        /// The back channel.
        Back = 2,
        /// The fore channel, and the back channel if possible.
        ForeOrBoth = 3,
        /// The back channel, and the fore channel if possible.
        BackOrBoth = 7,
    }
}

numbers! {
    /// Channels that a connection has (`channel_dir_from_server4`).
    ChannelGrant {
        /// The fore channel.
        Fore = 1,
        /// The back channel.
        Back = 2,
        /// Both.
        Both = 3,
    }
}

record! {
    /// Arguments of BIND_CONN_TO_SESSION.
    #[derive(Copy)]
    BindConnArgs {
        /// The session.
        session: SessionId,
        /// Channels wanted.
        wish: ChannelWish,
        /// True if the connection is to go over to RDMA.
        rdma_mode: bool,
    }
}

record! {
    /// Results of BIND_CONN_TO_SESSION.
    #[derive(Copy)]
    BindConnOk {
        /// The session.
        session: SessionId,
        /// Channels given.
        grant: ChannelGrant,
        /// True if the connection goes over to RDMA.
        rdma_mode: bool,
    }
}

record! {
    /// Arguments of CREATE_SESSION.
    CreateSessionArgs<'a> {
        /// The client ID.
        client_id: u64,
        /// Counts the client's calls of CREATE_SESSION.
        sequence: u32,
        /// Flags ([`session_flag`]).
        flags: u32,
        /// The fore channel.
        fore: ChannelAttributes,
        /// The back channel.
        back: ChannelAttributes,
        /// Program of the callbacks.
        program: u32,
        /// Their credentials.
        security: Array<'a, CallbackSecurity<'a>>,
    }
}

record! {
    /// Results of CREATE_SESSION.
    #[derive(Copy)]
    CreateSessionOk {
        /// The session.
        session: SessionId,
        /// As it was asked.
        sequence: u32,
        /// Flags ([`session_flag`]).
        flags: u32,
        /// The fore channel.
        fore: ChannelAttributes,
        /// The back channel.
        back: ChannelAttributes,
    }
}

record! {
    /// Arguments of SEQUENCE.
    #[derive(Copy)]
    SequenceArgs {
        /// The session.
        session: SessionId,
        /// Sequence ID of the slot.
        sequence: u32,
        /// The slot.
        slot: u32,
        /// The highest slot that the client uses.
        highest_slot: u32,
        /// True if the reply is to be cached whole.
        cache_this: bool,
    }
}

record! {
    /// Results of SEQUENCE.
    #[derive(Copy)]
    SequenceOk {
        /// The session.
        session: SessionId,
        /// Sequence ID of the slot.
        sequence: u32,
        /// The slot.
        slot: u32,
        /// The highest slot that the server takes.
        highest_slot: u32,
        /// The highest slot that the server wants to be used.
        target_highest_slot: u32,
        /// Status flags ([`sequence_flag`]).
        flags: u32,
    }
}
