//! REMOVE, RMDIR, RENAME and LINK: the procedures that remove, move and add names (RFC 1813
//! §3.3.12–3.3.15).

use super::{Attributes, DirOpArgs, Failure, FileHandle, WccData};
use crate::xdr::structure;

/// Arguments of REMOVE and RMDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoveArgs<'a> {
    /// The name to take away.
    pub object: DirOpArgs<'a>,
}

structure!(RemoveArgs<'a> { object });

/// Results of REMOVE and RMDIR: the directory before and after.
pub type RemoveResult = Result<WccData, Failure<WccData>>;

/// Arguments of RENAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameArgs<'a> {
    /// The name it has.
    pub from: DirOpArgs<'a>,
    /// The name it gets.
    pub to: DirOpArgs<'a>,
}

structure!(RenameArgs<'a> { from, to });

/// Both directories of a RENAME.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameWcc {
    /// Directory that the name was in, before and after.
    pub from_dir: WccData,
    /// Directory that the name goes to, before and after.
    pub to_dir: WccData,
}

structure!(RenameWcc { from_dir, to_dir });

/// Results of RENAME.
pub type RenameResult = Result<RenameWcc, Failure<RenameWcc>>;

/// Arguments of LINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkArgs<'a> {
    /// The file.
    pub file: FileHandle,
    /// The further name it gets.
    pub link: DirOpArgs<'a>,
}

structure!(LinkArgs<'a> { file, link });

/// The file and the directory of a LINK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkWcc {
    /// The file's attributes.
    pub attributes: Option<Attributes>,
    /// The directory before and after.
    pub dir_wcc: WccData,
}

structure!(LinkWcc { attributes, dir_wcc });

/// Results of LINK.
pub type LinkResult = Result<LinkWcc, Failure<LinkWcc>>;
