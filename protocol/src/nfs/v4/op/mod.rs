//! The operations: numbers, arguments and results in one table (RFC 8881 §17, RFC 7862 §13, RFC
//! 8276 §8.4).
//!
//! [`Operation`] numbers all of them. [`Request`] has the arguments of the served operations and
//! [`Answer`] their results. The others are answered by NFS4ERR_NOTSUPP. The compound ends there,
//! so their arguments need not be parsed.

mod bound;
mod copy;
mod io;
mod lock;
mod name;
mod open;
mod session;

pub use bound::ReplyLimits;
pub use copy::*;
pub use io::*;
pub use lock::*;
pub use name::*;
pub use open::*;
pub use session::*;

use super::compound::{AnswerSet, OperationFault, OperationSet};
use super::{Handle4, Name4, RawAttributes, Stateid, Status4};
use crate::nfs::binding::Eligible;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// Declares the operations of a direction: first the ones with arguments and results, then the
/// others.
macro_rules! operations {
    (
        $operation:ident, $request:ident, $answer:ident;
        served {
            $($(#[$doc:meta])* $name:ident($arguments:ty) -> $results:ty = $number:literal;)+
        }
        refused { $($(#[$not_doc:meta])* $not:ident = $not_number:literal;)+ }
    ) => {
        /// An operation, by its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $operation {
            $($(#[$doc])* $name = $number,)+
            $($(#[$not_doc])* $not = $not_number,)+
        }

        impl $operation {
            /// All of them: the served operations, then the others.
            pub const ALL: &[Self] = &[$(Self::$name,)+ $(Self::$not),+];

            /// The operation of this number in any minor version.
            pub const fn new(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    $($not_number => Some(Self::$not),)+
                    _ => None,
                }
            }

            /// Returns true if we know its arguments and results.
            pub const fn is_served(self) -> bool {
                matches!(self, $(Self::$name)|+)
            }
        }

        impl From<$operation> for u32 {
            fn from(operation: $operation) -> Self {
                operation as Self
            }
        }

        impl TryFrom<u32> for $operation {
            type Error = Error;
            fn try_from(number: u32) -> Result<Self, Error> {
                Self::new(number).ok_or(Error::BadValue)
            }
        }

        /// Arguments of an operation.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $request<'a> {
            $($(#[$doc])* $name($arguments),)+
        }

        impl<'a> $request<'a> {
            /// Takes the arguments of an operation that is served.
            #[inline(always)]
            pub fn parse(
                operation: $operation,
                reader: &mut Reader<'a>,
            ) -> Result<Self, Error> {
                match operation {
                    $($operation::$name => Codec::parse(reader).map(Self::$name),)+
                    $($operation::$not)|+ => Err(Error::BadValue),
                }
            }

            /// The operation.
            pub const fn operation(&self) -> $operation {
                match self {
                    $(Self::$name(_) => $operation::$name,)+
                }
            }

            /// Writes number and arguments.
            pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                writer.u32(self.operation() as u32)?;
                match self {
                    $(Self::$name(arguments) => arguments.emit(writer),)+
                }
            }
        }

        /// Results of an operation.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $answer<'a> {
            $($(#[$doc])* $name($results),)+
            /// An operation that is not carried out, because it is not served, not defined, or its
            /// arguments are malformed.
            Refused(OperationFault<$operation>),
        }

        impl<'a> AnswerSet<'a> for $answer<'a> {
            fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
                let number = reader.u32()?;
                match $operation::new(number) {
                    $(Some($operation::$name) => {
                        Codec::parse(reader).map(Self::$name)
                    })+
                    _ => OperationFault::parse(number, reader).map(Self::Refused),
                }
            }

            fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                match self {
                    $(Self::$name(results) => {
                        writer.u32($number)?;
                        results.emit(writer)
                    })+
                    Self::Refused(fault) => fault.emit(writer),
                }
            }

            fn status(&self) -> Status4 {
                match self {
                    $(Self::$name(results) => HasStatus::status(results),)+
                    Self::Refused(fault) => fault.status,
                }
            }
        }

        impl<'a> OperationSet<'a> for $request<'a> {
            type Number = $operation;

            fn number(number: u32, minor_version: u32) -> Option<$operation> {
                // RFC 8881 §15.1.3.4 [8881-10]: each minor version has its own operations
                $operation::new(number).filter(|found| found.minor_version() <= minor_version)
            }
            #[inline]
            fn is_served(number: $operation) -> bool {
                number.is_served()
            }

            #[inline(always)]
            fn parse(number: $operation, reader: &mut Reader<'a>) -> Result<Self, Error> {
                $request::parse(number, reader)
            }
        }
    };
}

pub(super) use operations;

operations! {
    Operation, Request, Answer;
    served {
        /// Says what the caller may do (RFC 8881 §18.1).
        Access(Access4Args) -> Result<Access4Ok, Status4> = 3;
        /// Ends an open (RFC 8881 §18.2).
        Close(Close4Args) -> Result<Stateid, Status4> = 4;
        /// Makes written data stable (RFC 8881 §18.3).
        Commit(Commit4Args) -> Result<super::Verifier4, Status4> = 5;
        /// Makes an object that is no regular file (RFC 8881 §18.4).
        Create(Create4Args<'a>) -> Result<Create4Ok, Status4> = 6;
        /// Returns a delegation (RFC 8881 §18.6).
        DelegReturn(Stateid) -> Result<(), Status4> = 8;
        /// Gives attributes (RFC 8881 §18.7).
        GetAttr(super::Bitmap) -> Result<RawAttributes<'a>, Status4> = 9;
        /// Gives the current filehandle (RFC 8881 §18.8).
        GetFh(()) -> Result<Handle4<'a>, Status4> = 10;
        /// Gives a file a further name (RFC 8881 §18.9).
        Link(Name4<'a>) -> Result<super::ChangeInfo, Status4> = 11;
        /// Locks a range (RFC 8881 §18.10).
        Lock(Lock4Args<'a>) -> Result<Stateid, LockFault<'a>> = 12;
        /// Asks for a lock that conflicts (RFC 8881 §18.11).
        LockT(LockT4Args<'a>) -> Result<(), LockFault<'a>> = 13;
        /// Unlocks a range (RFC 8881 §18.12).
        LockU(LockU4Args) -> Result<Stateid, Status4> = 14;
        /// Finds an object by its name (RFC 8881 §18.13).
        Lookup(Name4<'a>) -> Result<(), Status4> = 15;
        /// Finds the parent of a directory (RFC 8881 §18.14).
        LookupP(()) -> Result<(), Status4> = 16;
        /// Goes on if attributes differ (RFC 8881 §18.15).
        NVerify(RawAttributes<'a>) -> Result<(), Status4> = 17;
        /// Opens a file (RFC 8881 §18.16).
        Open(Open4Args<'a>) -> Result<Open4Ok<'a>, Status4> = 18;
        /// Takes access of an open away (RFC 8881 §18.18).
        OpenDowngrade(OpenDowngrade4Args) -> Result<Stateid, Status4> = 21;
        /// Sets the current filehandle (RFC 8881 §18.19).
        PutFh(Handle4<'a>) -> Result<(), Status4> = 22;
        /// Makes the public filehandle the current one (RFC 8881 §18.20).
        PutPubFh(()) -> Result<(), Status4> = 23;
        /// Makes the root's filehandle the current one (RFC 8881 §18.21).
        PutRootFh(()) -> Result<(), Status4> = 24;
        /// Reads from a file (RFC 8881 §18.22).
        Read(Read4Args) -> Result<Read4Ok<'a>, Status4> = 25;
        /// Lists a directory (RFC 8881 §18.23).
        ReadDir(ReadDir4Args) -> Result<ReadDir4Ok<'a>, Status4> = 26;
        /// Gives the path in a symbolic link (RFC 8881 §18.24).
        ReadLink(()) -> Result<LinkPath<'a>, Status4> = 27;
        /// Removes an object (RFC 8881 §18.25).
        Remove(Name4<'a>) -> Result<super::ChangeInfo, Status4> = 28;
        /// Gives an object another name (RFC 8881 §18.26).
        Rename(Rename4Args<'a>) -> Result<Rename4Ok, Status4> = 29;
        /// Makes the saved filehandle the current one (RFC 8881 §18.27).
        RestoreFh(()) -> Result<(), Status4> = 31;
        /// Saves the current filehandle (RFC 8881 §18.28).
        SaveFh(()) -> Result<(), Status4> = 32;
        /// Gives the security flavors for a name (RFC 8881 §18.29).
        SecInfo(Name4<'a>) -> Result<super::Array<'a, SecurityFlavor<'a>>, Status4> = 33;
        /// Changes attributes (RFC 8881 §18.30).
        SetAttr(SetAttr4Args<'a>) -> SetAttr4Result = 34;
        /// Goes on if attributes are equal (RFC 8881 §18.31).
        Verify(RawAttributes<'a>) -> Result<(), Status4> = 37;
        /// Writes to a file (RFC 8881 §18.32).
        Write(Write4Args<'a>) -> Result<Write4Ok, Status4> = 38;
        /// Changes program and security of callbacks (RFC 8881 §18.33).
        BackchannelCtl(BackchannelCtlArgs<'a>) -> Result<(), Status4> = 40;
        /// Binds this connection to a session (RFC 8881 §18.34).
        BindConnToSession(BindConnArgs) -> Result<BindConnOk, Status4> = 41;
        /// Makes or finds a client ID (RFC 8881 §18.35).
        ExchangeId(ExchangeIdArgs<'a>) -> Result<ExchangeIdOk<'a>, Status4> = 42;
        /// Makes a session, and confirms its client ID (RFC 8881 §18.36).
        CreateSession(CreateSessionArgs<'a>) -> Result<CreateSessionOk, Status4> = 43;
        /// Ends a session (RFC 8881 §18.37).
        DestroySession(super::SessionId) -> Result<(), Status4> = 44;
        /// Forgets a stateid without locks, or a revoked one (RFC 8881 §18.38).
        FreeStateid(Stateid) -> Result<(), Status4> = 45;
        /// Gives the security flavors of the current filehandle or its parent (RFC 8881 §18.45).
        SecInfoNoName(SecInfoStyle) -> Result<super::Array<'a, SecurityFlavor<'a>>, Status4> = 52;
        /// Identifies session and slot of the compound (RFC 8881 §18.46).
        Sequence(SequenceArgs) -> Result<SequenceOk, Status4> = 53;
        /// Asks for the status of stateids (RFC 8881 §18.48).
        TestStateid(super::Array<'a, Stateid>) -> Result<super::Array<'a, Status4>, Status4> = 55;
        /// Forgets a client ID (RFC 8881 §18.50).
        DestroyClientid(u64) -> Result<(), Status4> = 57;
        /// Says that nothing more is reclaimed: for one file system, or at all (RFC 8881 §18.51).
        ReclaimComplete(bool) -> Result<(), Status4> = 58;
        /// Reserves space (RFC 7862 §15.1).
        Allocate(FileRange) -> Result<(), Status4> = 59;
        /// Copies from the saved file to the current one (RFC 7862 §15.2).
        Copy(Copy4Args<'a>) -> Result<Copy4Ok, CopyFault> = 60;
        /// Gives space back (RFC 7862 §15.4).
        Deallocate(FileRange) -> Result<(), Status4> = 62;
        /// Announces how a file will be used (RFC 7862 §15.5).
        IoAdvise(IoAdviseArgs) -> Result<super::Bitmap, Status4> = 63;
        /// Finds the next data or hole (RFC 7862 §15.11).
        Seek(SeekArgs) -> Result<SeekOk, Status4> = 69;
        /// Shares extents of the saved file with the current one (RFC 7862 §15.13).
        Clone(CloneArgs) -> Result<(), Status4> = 71;
        /// Gives an extended attribute (RFC 8276 §8.4.1).
        GetXattr(Name4<'a>) -> Result<XattrValue<'a>, Status4> = 72;
        /// Sets an extended attribute (RFC 8276 §8.4.2).
        SetXattr(SetXattrArgs<'a>) -> Result<super::ChangeInfo, Status4> = 73;
        /// Lists extended attributes (RFC 8276 §8.4.3).
        ListXattrs(ListXattrsArgs) -> Result<ListXattrsOk<'a>, Status4> = 74;
        /// Removes an extended attribute (RFC 8276 §8.4.4).
        RemoveXattr(Name4<'a>) -> Result<super::ChangeInfo, Status4> = 75;
    }
    refused {
        /// Gives up delegations that were not reclaimed (RFC 8881 §18.5).
        DelegPurge = 7;
        /// Opens the directory of named attributes (RFC 8881 §18.17).
        OpenAttr = 19;
        /// Of version 4.0.
        OpenConfirm = 20;
        /// Of version 4.0.
        Renew = 30;
        /// Of version 4.0.
        SetClientid = 35;
        /// Of version 4.0.
        SetClientidConfirm = 36;
        /// Of version 4.0.
        ReleaseLockowner = 39;
        /// Asks for a delegation of a directory (RFC 8881 §18.39).
        GetDirDelegation = 46;
        /// Of pNFS (RFC 8881 §18.40).
        GetDeviceInfo = 47;
        /// Of pNFS (RFC 8881 §18.41).
        GetDeviceList = 48;
        /// Of pNFS (RFC 8881 §18.42).
        LayoutCommit = 49;
        /// Of pNFS (RFC 8881 §18.43).
        LayoutGet = 50;
        /// Of pNFS (RFC 8881 §18.44).
        LayoutReturn = 51;
        /// Changes the secret of SP4_SSV (RFC 8881 §18.47).
        SetSsv = 54;
        /// Asks for a delegation without an open (RFC 8881 §18.49).
        WantDelegation = 56;
        /// Notifies the source of a copy between servers (RFC 7862 §15.3).
        CopyNotify = 61;
        /// Of pNFS (RFC 7862 §15.6).
        LayoutError = 64;
        /// Of pNFS (RFC 7862 §15.7).
        LayoutStats = 65;
        /// Stops an asynchronous copy (RFC 7862 §15.8).
        OffloadCancel = 66;
        /// Asks for the state of an asynchronous copy (RFC 7862 §15.9).
        OffloadStatus = 67;
        /// Reads data and holes (RFC 7862 §15.10).
        ReadPlus = 68;
        /// Writes a pattern (RFC 7862 §15.12).
        WriteSame = 70;
    }
}

impl Operation {
    /// The smallest minor version that defines it.
    pub const fn minor_version(self) -> u32 {
        // RFC 7862 §13 [7862-1]: what minor version 2 adds is not defined in minor version 1
        if self as u32 > Self::ReclaimComplete as u32 { 2 } else { 1 }
    }

    /// The DDP-eligible item, if there is one (RFC 8267 §6.1).
    pub const fn ddp_eligible(self) -> Option<Eligible> {
        match self {
            Self::Write | Self::Create => Some(Eligible::Argument),
            Self::Read | Self::ReadLink => Some(Eligible::Result),
            _ => None,
        }
    }
}

/// Results that begin with a status.
pub(in crate::nfs::v4) trait HasStatus {
    fn status(&self) -> Status4;
}

impl<T, F: FailureArm> HasStatus for Result<T, F> {
    fn status(&self) -> Status4 {
        self.as_ref().err().map_or(Status4::Ok, FailureArm::status)
    }
}

/// Failure arms of a result: for nearly all operations the status alone.
pub(in crate::nfs::v4) trait FailureArm: Sized {
    /// The status, which precedes the arm's content.
    fn status(&self) -> Status4;
}

/// Content of a failure arm after its status.
pub(in crate::nfs::v4) trait FailureContent<'a>: FailureArm {
    fn parse_arm(status: Status4, reader: &mut Reader<'a>) -> Result<Self, Error>;
    fn emit_arm(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom>;
}

impl FailureArm for Status4 {
    fn status(&self) -> Status4 {
        *self
    }
}

impl FailureContent<'_> for Status4 {
    fn parse_arm(status: Status4, _: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(status)
    }
    fn emit_arm(&self, _: &mut Writer<'_>) -> Result<(), NoRoom> {
        Ok(())
    }
}

impl<'a, T: Codec<'a>, F: FailureContent<'a>> Codec<'a> for Result<T, F> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match Status4::parse(reader)? {
            Status4::Ok => Ok(T::parse(reader)?),
            status => Err(F::parse_arm(status, reader)?),
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Ok(value) => {
                Status4::Ok.emit(writer)?;
                value.emit(writer)
            }
            Err(failure) => {
                debug_assert_ne!(failure.status(), Status4::Ok, "a failure has a cause");
                failure.status().emit(writer)?;
                failure.emit_arm(writer)
            }
        }
    }
}
