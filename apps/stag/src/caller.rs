//! Client that the calling commands share: over the fabric of its address, or over TCP.

use crate::Error;
use rustix::rand::{GetRandomFlags, getrandom};
use stag_client::{ClientConfig, NfsClient};
use stag_engine::{Config, clock::Clock, tls::ClientTls};
use stag_fabrics::FabricAddress;
use stag_protocol::rpcrdma::Versions;
use stag_tuning::ProcessSettings;
use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

/// Random numbers of the system.
pub fn random<const LEN: usize>() -> Result<[u8; LEN], Error> {
    let mut random = [0; LEN];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|error| Error::failure(format!("the system gives no random numbers: {error}")))?;
    Ok(random)
}

/// A client that is not connected and tries `versions`, for `depth` large calls at a time that may
/// take `timeout` each, and its clock. Its fabric is that of `at`. With `tls` it makes no call over
/// TCP without TLS.
pub fn client(
    at: Option<&FabricAddress>,
    depth: usize,
    timeout: Duration,
    versions: Versions,
    tls: Option<&Arc<ClientTls>>,
) -> Result<(NfsClient, Clock), Error> {
    let config = ClientConfig { timeout, ..ClientConfig::new(0) }.with_depth(depth);
    let shard = Config { call_versions: versions, call_tls: tls.cloned(), ..config.shard };
    let (mut client, clock) = NfsClient::on_fabric(at, ClientConfig { shard, ..config })
        .map_err(|error| Error::failure(format!("cannot call: {error}")))?;
    client.tell_waits(|longest| {
        aside(format!(
            "the server asks for more time, as one does that has just started; waiting for it, \
             {} s at most\n",
            longest.as_secs()
        ));
    });
    Ok((client, clock))
}

/// Applies the settings that this process can change for itself, and prints them. Threads that are
/// started from here on inherit them, for as long as the returned value lives.
pub fn settle() -> ProcessSettings {
    let settings = ProcessSettings::take(true);
    aside(settings.line() + "\n");
    settings
}

/// Writes to standard error. An error is ignored: the reader may be gone.
pub fn aside(text: impl AsRef<[u8]>) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_ref()).and_then(|()| err.flush());
}

/// Writes to standard output. An error is ignored, as the reader may be gone; the exit code still
/// says how it went.
pub fn say(text: impl AsRef<[u8]>) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_ref()).and_then(|()| out.flush());
}
