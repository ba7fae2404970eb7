//! The 22 procedures of NFS version 3: numbers, arguments and results in one table (RFC 1813 §3).

use super::*;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

macro_rules! procedures {
    ($($(#[$doc:meta])* $name:ident($arguments:ty) -> $results:ty = $number:literal;)+) => {
        /// A procedure, by its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Procedure {
            /// Does nothing (RFC 1813 §3.3.0).
            Null = 0,
            $($(#[$doc])* $name = $number,)+
        }

        impl Procedure {
            /// All procedures, indexed by number.
            pub const ALL: [Self; [0, $($number),+].len()] = [Self::Null, $(Self::$name),+];
        }

        /// A call's arguments.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call<'a> {
            /// NULL has none.
            Null,
            $($(#[$doc])* $name($arguments),)+
        }

        impl<'a> Call<'a> {
            /// The arguments of `procedure`, which are all that `reader` still holds.
            pub fn parse(procedure: Procedure, mut reader: Reader<'a>) -> Result<Self, Error> {
                let call = match procedure {
                    Procedure::Null => Self::Null,
                    $(Procedure::$name => Self::$name(Codec::parse(&mut reader)?),)+
                };
                reader.finish().map(|()| call)
            }

            /// Writes the arguments, which follow the call header.
            pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                match self {
                    Self::Null => Ok(()),
                    $(Self::$name(arguments) => arguments.emit(writer),)+
                }
            }

            /// Procedure that these arguments belong to.
            pub const fn procedure(&self) -> Procedure {
                match self {
                    Self::Null => Procedure::Null,
                    $(Self::$name(_) => Procedure::$name,)+
                }
            }
        }

        /// A reply's results.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Reply<'a> {
            /// NULL has none.
            Null,
            $($(#[$doc])* $name($results),)+
        }

        impl<'a> Reply<'a> {
            /// The results of `procedure`, which are all that `reader` still holds.
            pub fn parse(procedure: Procedure, mut reader: Reader<'a>) -> Result<Self, Error> {
                let reply = match procedure {
                    Procedure::Null => Self::Null,
                    $(Procedure::$name => Self::$name(Codec::parse(&mut reader)?),)+
                };
                reader.finish().map(|()| reply)
            }

            /// Writes the results, which follow the reply header.
            pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                match self {
                    Self::Null => Ok(()),
                    $(Self::$name(results) => results.emit(writer),)+
                }
            }

            /// Procedure that these results belong to.
            pub const fn procedure(&self) -> Procedure {
                match self {
                    Self::Null => Procedure::Null,
                    $(Self::$name(_) => Procedure::$name,)+
                }
            }

            /// Status with which the procedure ended.
            pub fn status(&self) -> Status {
                match self {
                    Self::Null => Status::Ok,
                    $(Self::$name(results) => {
                        let failure = results.as_ref().err();
                        failure.map_or(Status::Ok, |failure| failure.status)
                    })+
                }
            }
        }
    };
}

procedures! {
    /// Gives a file's attributes (RFC 1813 §3.3.1).
    GetAttr(GetAttrArgs) -> GetAttrResult = 1;
    /// Changes a file's attributes (RFC 1813 §3.3.2).
    SetAttr(SetAttrArgs) -> SetAttrResult = 2;
    /// Finds a file by its name (RFC 1813 §3.3.3).
    Lookup(LookupArgs<'a>) -> LookupResult = 3;
    /// Says what the caller may do (RFC 1813 §3.3.4).
    Access(AccessArgs) -> AccessResult = 4;
    /// Gives the path in a symbolic link (RFC 1813 §3.3.5).
    ReadLink(ReadLinkArgs) -> ReadLinkResult<'a> = 5;
    /// Reads from a file (RFC 1813 §3.3.6).
    Read(ReadArgs) -> ReadResult<'a> = 6;
    /// Writes to a file (RFC 1813 §3.3.7).
    Write(WriteArgs<'a>) -> WriteResult = 7;
    /// Makes a file (RFC 1813 §3.3.8).
    Create(CreateArgs<'a>) -> CreateResult = 8;
    /// Makes a directory (RFC 1813 §3.3.9).
    MkDir(MkDirArgs<'a>) -> CreateResult = 9;
    /// Makes a symbolic link (RFC 1813 §3.3.10).
    Symlink(SymlinkArgs<'a>) -> CreateResult = 10;
    /// Makes a device, a socket or a pipe (RFC 1813 §3.3.11).
    MkNod(MkNodArgs<'a>) -> CreateResult = 11;
    /// Removes a file (RFC 1813 §3.3.12).
    Remove(RemoveArgs<'a>) -> RemoveResult = 12;
    /// Removes a directory (RFC 1813 §3.3.13).
    RmDir(RemoveArgs<'a>) -> RemoveResult = 13;
    /// Gives a file another name (RFC 1813 §3.3.14).
    Rename(RenameArgs<'a>) -> RenameResult = 14;
    /// Gives a file a further name (RFC 1813 §3.3.15).
    Link(LinkArgs<'a>) -> LinkResult = 15;
    /// Lists a directory (RFC 1813 §3.3.16).
    ReadDir(ReadDirArgs) -> ReadDirResult<'a> = 16;
    /// Lists a directory, its files' attributes and handles too (RFC 1813 §3.3.17).
    ReadDirPlus(ReadDirPlusArgs) -> ReadDirPlusResult<'a> = 17;
    /// Says how full a file system is (RFC 1813 §3.3.18).
    FsStat(SystemArgs) -> FsStatResult = 18;
    /// Says what a file system can do (RFC 1813 §3.3.19).
    FsInfo(SystemArgs) -> FsInfoResult = 19;
    /// Says how names behave (RFC 1813 §3.3.20).
    PathConf(SystemArgs) -> PathConfResult = 20;
    /// Makes written data stable (RFC 1813 §3.3.21).
    Commit(CommitArgs) -> CommitResult = 21;
}

impl Procedure {
    /// The procedure of this number; `None` is PROC_UNAVAIL.
    pub fn new(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_procedure_lies_at_its_number_and_there_are_no_more() {
        for (number, procedure) in (0..).zip(Procedure::ALL) {
            assert_eq!(procedure.number(), number);
            assert_eq!(Procedure::new(number), Some(procedure));
        }
        assert_eq!(Procedure::ALL.last(), Some(&Procedure::Commit));
        assert_eq!(Procedure::new(22), None);
        assert_eq!(Procedure::new(u32::MAX), None);
    }
}
