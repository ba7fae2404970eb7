//! What the calling commands share: a client over the fabric of its address, which also calls over TCP.

use crate::Error;
use rustix::rand::{GetRandomFlags, getrandom};
use stag_engine::clock::Clock;
use stag_fabrics::{AnyProvider, FabricAddress, Settings};
use stag_load::{Client, Config};
use stag_protocol::rpcrdma::Versions;
use std::{
    io::{self, Write},
    time::Duration,
};

/// Random numbers of the system.
pub fn random<const LEN: usize>() -> Result<[u8; LEN], Error> {
    let mut random = [0; LEN];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|error| Error::failure(format!("the system gives no random numbers: {error}")))?;
    Ok(random)
}

/// A client that is not connected and tries `versions`, for `depth` large calls at a time that may take `timeout` each, and its
/// clock. Its fabric is that of `at`.
pub fn client(
    at: Option<&FabricAddress>,
    depth: usize,
    timeout: Duration,
    versions: Versions,
) -> Result<(Client<AnyProvider>, Clock), Error> {
    let short = |error: io::Error| Error::failure(format!("no memory or descriptors to call with: {error}"));
    let clock = Clock::start();
    let mut config = Config { timeout, ..Config::new(u32::from_ne_bytes(random()?)).with_depth(depth) };
    config.shard.call_versions = versions;
    let reserved_port = stag_load::takes_reserved_ports();
    let settings = Settings { reserved_port, ..Settings::new(config.limits(), random()?, clock.now()) };
    let fabric = AnyProvider::for_connecting(settings, at).map_err(short)?;
    let client = Client::new(fabric, config, move || clock.now()).map_err(short)?;
    Ok((client, clock))
}

/// Writes to standard error. Whoever reads may be gone: nobody dies of that.
pub fn aside(text: impl AsRef<[u8]>) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_ref()).and_then(|()| err.flush());
}

/// Writes to standard output. Whoever reads may be gone; the exit code still says how it went.
pub fn say(text: impl AsRef<[u8]>) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_ref()).and_then(|()| out.flush());
}
