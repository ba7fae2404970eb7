//! Status of an operation and of a compound (`nfsstat4`, RFC 8881 §15.1, RFC 7862 §11, RFC 8276
//! §8.4).

use super::forms::numbers;

numbers! {
    // RFC 8881 §15.1 [8881-1]: statuses have the numbers of the RFC and no others
    /// `nfsstat4`: the numbers of all minor versions that the description has.
    Status4 {
        /// The operation succeeded.
        Ok = 0,
        /// Only the owner or a privileged user may do this.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// A hard error of the storage below.
        Io = 5,
        /// No such device, or no data or hole past the offset (SEEK).
        NxIo = 6,
        /// The caller has no permission.
        Access = 13,
        /// The name exists already.
        Exist = 17,
        /// The objects are on different file systems.
        XDev = 18,
        /// A directory was needed.
        NotDir = 20,
        /// Something else than a directory was needed.
        IsDir = 21,
        /// An argument is invalid.
        Inval = 22,
        /// The file would grow beyond the limit of the server.
        FBig = 27,
        /// No space is left.
        NoSpc = 28,
        /// The file system is read-only.
        RoFs = 30,
        /// Too many hard links.
        MLink = 31,
        /// A name is longer than the server takes.
        NameTooLong = 63,
        /// The directory is not empty.
        NotEmpty = 66,
        /// The caller's quota is used up.
        DQuot = 69,
        /// The filehandle names a file that no longer exists.
        Stale = 70,
        /// The filehandle fails the server's consistency checks.
        BadHandle = 10001,
        /// A READDIR cookie means nothing to the server.
        BadCookie = 10003,
        /// The operation is not supported.
        NotSupp = 10004,
        /// The caller's limit is too small for the result.
        TooSmall = 10005,
        /// The server failed in a way that no other status describes.
        ServerFault = 10006,
        /// An object of this type cannot be made.
        BadType = 10007,
        /// The server needs time: ask again later.
        Delay = 10008,
        /// NVERIFY found the attributes equal.
        Same = 10009,
        /// A conflicting lock is held.
        Denied = 10010,
        /// The lease of this state has expired.
        Expired = 10011,
        /// A mandatory lock prevents the I/O.
        Locked = 10012,
        /// The server is in its grace period.
        Grace = 10013,
        /// The volatile filehandle has expired.
        FhExpired = 10014,
        /// A share reservation of another open denies this.
        ShareDenied = 10015,
        /// The security flavor does not fit the object.
        WrongSec = 10016,
        /// Another principal uses this client owner.
        ClidInUse = 10017,
        /// Of version 4.0: no error of version 4.1.
        Resource = 10018,
        /// The file system is at another server.
        Moved = 10019,
        /// There is no current filehandle.
        NoFileHandle = 10020,
        /// The minor version is not served.
        MinorVersMismatch = 10021,
        /// The client ID is not known.
        StaleClientid = 10022,
        /// The stateid is of an earlier server instance (version 4.0).
        StaleStateid = 10023,
        /// The seqid of the stateid is not the newest.
        OldStateid = 10024,
        /// The stateid names no state.
        BadStateid = 10025,
        /// Of version 4.0: a seqid out of order.
        BadSeqid = 10026,
        /// VERIFY found the attributes different.
        NotSame = 10027,
        /// The range cannot be split or joined as asked.
        LockRange = 10028,
        /// The object is a symbolic link.
        Symlink = 10029,
        /// There is no saved filehandle (version 4.0).
        RestoreFh = 10030,
        /// A file system of the lease has moved (version 4.0).
        LeaseMoved = 10031,
        /// An attribute to set or to compare is not supported.
        AttrNotSupp = 10032,
        /// A reclaim outside of the grace period.
        NoGrace = 10033,
        /// The server cannot show that the reclaim is sound.
        ReclaimBad = 10034,
        /// The reclaim conflicts with other state.
        ReclaimConflict = 10035,
        /// The arguments cannot be decoded.
        BadXdr = 10036,
        /// The open cannot be closed while it has locks.
        LocksHeld = 10037,
        /// The open does not cover this access.
        OpenMode = 10038,
        /// An owner cannot be translated.
        BadOwner = 10039,
        /// A string has a character that is not supported.
        BadChar = 10040,
        /// A name is not supported.
        BadName = 10041,
        /// The range of the lock is not supported.
        BadRange = 10042,
        /// The lock cannot be changed atomically.
        LockNotSupp = 10043,
        /// The operation number is not defined.
        OpIllegal = 10044,
        /// The lock would end in a deadlock.
        Deadlock = 10045,
        /// The file is open, which prevents the operation.
        FileOpen = 10046,
        /// An administrator revoked the state.
        AdminRevoked = 10047,
        /// The callback path is down.
        CbPathDown = 10048,
        /// The layout's I/O mode is wrong.
        BadIoMode = 10049,
        /// The layout is not valid.
        BadLayout = 10050,
        /// The digest of SET_SSV is wrong.
        BadSessionDigest = 10051,
        /// The session ID is not known.
        BadSession = 10052,
        /// The slot ID is beyond the slot table.
        BadSlot = 10053,
        /// RECLAIM_COMPLETE was done before.
        CompleteAlready = 10054,
        /// The connection is not bound to the session.
        ConnNotBoundToSession = 10055,
        /// The delegation is wanted already.
        DelegAlreadyWanted = 10056,
        /// Calls in the back channel are outstanding.
        BackChanBusy = 10057,
        /// The layout may be given later.
        LayoutTryLater = 10058,
        /// There are no layouts for this file.
        LayoutUnavailable = 10059,
        /// The client has no such layout.
        NoMatchingLayout = 10060,
        /// A recall of the object is in progress.
        RecallConflict = 10061,
        /// The layout type is not known.
        UnknownLayoutType = 10062,
        /// The sequence ID is neither the next nor the last.
        SeqMisordered = 10063,
        /// SEQUENCE is not the first operation.
        SequencePos = 10064,
        /// The request exceeds the size of the channel.
        ReqTooBig = 10065,
        /// The reply would exceed the size of the channel.
        RepTooBig = 10066,
        /// The reply would exceed the size that is cached.
        RepTooBigToCache = 10067,
        /// A retry of a request whose reply is not cached.
        RetryUncachedRep = 10068,
        /// The compound could not be recovered safely.
        UnsafeCompound = 10069,
        /// More operations than the channel allows.
        TooManyOps = 10070,
        /// The operation needs SEQUENCE before it.
        OpNotInSession = 10071,
        /// No hash algorithm of the list is supported.
        HashAlgUnsupp = 10072,
        /// The client ID has sessions or state.
        ClientidBusy = 10074,
        /// I/O to a hole of a sparse layout.
        PnfsIoHole = 10075,
        /// A retry that differs from the first request.
        SeqFalseRetry = 10076,
        /// The highest slot ID is beyond the slot table.
        BadHighSlot = 10077,
        /// The session is persistent and takes no new requests.
        DeadSession = 10078,
        /// No encryption algorithm of the list is supported.
        EncrAlgUnsupp = 10079,
        /// I/O without a layout.
        PnfsNoLayout = 10080,
        /// The operation must be the only one.
        NotOnlyOp = 10081,
        /// The principal may not do this with this state.
        WrongCred = 10082,
        /// The object has the wrong type.
        WrongType = 10083,
        /// No directory delegation is available.
        DirDelegUnavail = 10084,
        /// The client rejects the delegation.
        RejectDeleg = 10085,
        /// A layout is being returned.
        ReturnConflict = 10086,
        /// The delegation or layout was revoked.
        DelegRevoked = 10087,
        /// Copies from this server are not supported.
        PartnerNotSupp = 10088,
        /// The source server does not allow the copy.
        PartnerNoAuth = 10089,
        /// The arm of the union is not supported.
        UnionNotSupp = 10090,
        /// The copy is not allowed here.
        OffloadDenied = 10091,
        /// The label format is not supported.
        WrongLfs = 10092,
        /// The label is invalid.
        Badlabel = 10093,
        /// The copy cannot be done as required.
        OffloadNoReqs = 10094,
        /// No such extended attribute (RFC 8276).
        NoXattr = 10095,
        /// The extended attribute is too big (RFC 8276).
        Xattr2Big = 10096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Codec, Error, Reader};

    #[test]
    fn only_the_statuses_of_the_specifications_exist() {
        let parse = |value: u32| Status4::parse(&mut Reader::new(&value.to_be_bytes()));
        let known = [0, 1, 2, 5, 6, 13, 17, 18, 20, 21, 22, 27, 28, 30, 31, 63, 66, 69, 70];
        let is_known = |value: u32| {
            known.contains(&value) || matches!(value, 10001 | 10003..=10072 | 10074..=10096)
        };
        for value in 0..20_000 {
            match parse(value) {
                Ok(status) => assert!(is_known(value) && status as u32 == value, "{value}"),
                Err(error) => assert!(!is_known(value) && error == Error::BadValue, "{value}"),
            }
        }
        assert_eq!(parse(u32::MAX), Err(Error::BadValue));
    }
}
