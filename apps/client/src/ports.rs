//! Port lookup by a port mapper (RFC 1833).

use crate::{Error, NfsClient};
use stag_protocol::{
    rpc::portmap::{self, Mapping},
    xdr::{Codec, Reader},
};
use stag_rpc::{Provider, RawCall};

impl<P: Provider> NfsClient<P> {
    /// The port where a version of a program listens on TCP, for a client that is connected to a
    /// port mapper. `None` when it is not registered.
    ///
    /// # Errors
    /// As any call; [`Error::Nonsense`] when the port is none.
    pub fn port_of(&mut self, program: u32, version: u32) -> Result<Option<u16>, Error> {
        let asked = Mapping { program, version, protocol: portmap::TCP, port: 0 };
        let parts = RawCall {
            results_max: 4,
            ..RawCall::new(portmap::PROGRAM, portmap::VERSION, portmap::GETPORT)
        };
        self.call(
            &parts,
            |writer| asked.emit(writer),
            |mut results: Reader<'_>| {
                let port = results.u32().and_then(|port| results.finish().map(|()| port));
                let port = u16::try_from(port.map_err(Error::Garbled)?);
                let port = port
                    .map_err(|_| Error::Nonsense("the port mapper gives a port beyond 65,535"))?;
                Ok((port != 0).then_some(port))
            },
        )
    }
}
