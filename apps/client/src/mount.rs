//! The procedures of MOUNT that a client needs (RFC 1813 §5), and their places in version 4.

use crate::{Error, NfsClient};
use stag_protocol::nfs::{mount, v3::FileHandle};
use stag_rpc::{Provider, RawCall};

/// Octets of a MOUNT reply with a list in it: there is no limit in the protocol.
const LIST_MAX: usize = 65_536;

impl<P: Provider> NfsClient<P> {
    fn mount_call<T>(
        &mut self,
        call: &mount::Call<'_>,
        read: impl FnOnce(mount::Reply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let procedure = call.procedure();
        let results_max = match call {
            mount::Call::Dump | mount::Call::Export => LIST_MAX,
            mount::Call::Mnt(_) => 512,
            _ => 0,
        };
        let parts = RawCall {
            results_max,
            ..RawCall::new(mount::PROGRAM, mount::VERSION, procedure.number())
        };
        self.call(
            &parts,
            |writer| call.emit(writer),
            |results| {
                mount::Reply::parse(procedure, results).map_err(Error::Garbled).and_then(read)
            },
        )
    }

    /// NULL of MOUNT.
    pub fn mount_null(&mut self) -> Result<(), Error> {
        if self.four.is_some() {
            return Ok(());
        }
        self.mount_call(&mount::Call::Null, |_| Ok(()))
    }

    /// The root of an export, given as `/NAME`.
    pub fn mount(&mut self, path: &str) -> Result<FileHandle, Error> {
        if self.four.is_some() {
            return self.mount4(path);
        }
        self.mount_call(&mount::Call::Mnt(mount::Path(path.as_bytes())), |reply| match reply {
            mount::Reply::Mnt(Ok(mounted)) => Ok(mounted.handle),
            mount::Reply::Mnt(Err(status)) => Err(Error::Mount(status)),
            _ => Err(Error::Nonsense("the reply is one of another procedure")),
        })
    }

    /// Notifies the server that an export is no longer used.
    pub fn unmount(&mut self, path: &str) -> Result<(), Error> {
        if self.four.is_some() {
            return Ok(());
        }
        self.mount_call(&mount::Call::Umnt(mount::Path(path.as_bytes())), |_| Ok(()))
    }

    /// The paths of all exports, without the clients that may mount them.
    pub fn exports(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        if self.four.is_some() {
            return self.exports4();
        }
        self.mount_call(&mount::Call::Export, |reply| match reply {
            mount::Reply::Export(exports) => {
                Ok(exports.map(|export| export.directory.0.to_vec()).collect())
            }
            _ => Err(Error::Nonsense("the reply is one of another procedure")),
        })
    }
}
