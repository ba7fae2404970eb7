//! Access control lists: NFSACL, which some servers have on the NFS port and others do not.

use crate::{Error, NfsClient};
use stag_protocol::{
    nfs::{
        acl::{
            self, Entries, Entry, GetAclArgs, GetAclResult, Lists, Procedure, SetAclArgs,
            SetAclResult,
        },
        v3::FileHandle,
    },
    xdr::{Codec, Reader},
};
use stag_rpc::{Provider, RawCall};

/// Access control list of a file: the rights of users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// The entries of the access list.
    pub access: Vec<Entry>,
    /// For a directory: the initial access lists of its new entries.
    pub default: Vec<Entry>,
}

impl<P: Provider> NfsClient<P> {
    /// NULL of NFSACL. [`Error::Rejected`] with PROG_UNAVAIL says that the server has no such
    /// lists.
    ///
    /// # Errors
    /// Here and below: [`Error`] says which.
    pub fn acl_null(&mut self) -> Result<(), Error> {
        self.call_empty(acl::PROGRAM, acl::VERSION, Procedure::Null.number())
    }

    /// Gets these parts of a file's lists; the others are empty. Long lists come in a Reply chunk
    /// (RFC 8267 §5.2).
    pub fn getacl(&mut self, object: FileHandle, parts_asked: acl::Parts) -> Result<Acl, Error> {
        let arguments = GetAclArgs { object, parts: parts_asked };
        self.call(
            &parts(Procedure::GetAcl),
            |writer| arguments.emit(writer),
            |results| {
                let lists =
                    whole::<GetAclResult<'_>>(results)?.map_err(|failure| failure.status)?.lists;
                let all = |entries: &Entries<'_>| entries.iter().collect::<Vec<_>>();
                Ok(Acl { access: all(&lists.access), default: all(&lists.default) })
            },
        )
    }

    /// Replaces a file's access list, and its default list if it is a directory. Many entries make
    /// a long call.
    pub fn setacl(
        &mut self,
        object: FileHandle,
        acl: &Acl,
        is_directory: bool,
    ) -> Result<(), Error> {
        let access = acl::Parts::ACCESS | acl::Parts::ACCESS_COUNT;
        let default = acl::Parts::DEFAULT | acl::Parts::DEFAULT_COUNT;
        let lists = Lists {
            parts: if is_directory { access | default } else { access },
            access: Entries::new(&acl.access),
            default: Entries::new(&acl.default),
        };
        let arguments = SetAclArgs { object, lists };
        self.call(
            &parts(Procedure::SetAcl),
            |writer| arguments.emit(writer),
            |results| {
                Ok(whole::<SetAclResult>(results)?.map(drop).map_err(|failure| failure.status)?)
            },
        )
    }
}

fn parts(procedure: Procedure) -> RawCall<'static> {
    RawCall {
        results_max: acl::RESULTS_LEN_MAX,
        ..RawCall::new(acl::PROGRAM, acl::VERSION, procedure.number())
    }
}

/// Results that take all of the reply.
fn whole<'a, T: Codec<'a>>(mut results: Reader<'a>) -> Result<T, Error> {
    let parsed = T::parse(&mut results).map_err(Error::Garbled)?;
    results.finish().map(|()| parsed).map_err(Error::Garbled)
}
