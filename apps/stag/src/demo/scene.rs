//! The demo's requester.

use super::steps::{StageResult, failed};
use crate::caller;
use stag_client::{
    NfsClient,
    transfer::{self, SizedFile, TransferFault, TransferFlow, TransferTotals},
};
use stag_echo::pattern::Pattern;
use stag_engine::{Stats, clock::Clock};
use stag_fabrics::FabricAddress;
use stag_protocol::{
    nfs::v3::{CreateHow, FileHandle, SetAttributes},
    rpcrdma::Versions,
};
use std::{io, time::Duration};

/// Contents of the export.
pub(super) const EXPORT: &str = "/demo";
/// Seed of the content of all files.
pub(super) const SEED: u64 = 0x5746_4147;
/// Time that a call may take, the restart of the server included.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The requester, connected.
pub(super) struct DemoScene {
    pub(super) client: NfsClient,
    pub(super) clock: Clock,
    pub(super) root: FileHandle,
    pub(super) flow: TransferFlow,
}

impl DemoScene {
    /// Connects to stay connected, and mounts.
    pub(super) fn new(at: &FabricAddress, depth: usize) -> StageResult<Self> {
        let (mut client, clock) = caller::client(Some(at), depth, TIMEOUT, Versions::One, None)?;
        client.keep_connected(at).map_err(failed("the connection"))?;
        client.null().map_err(failed("NULL"))?;
        let root = client.mount(EXPORT).map_err(failed("MNT"))?;
        let info = client.fsinfo(root).map_err(failed("FSINFO"))?;
        let flow = TransferFlow::new(depth, info.read_max.min(info.write_max));
        Ok(Self { client, clock, root, flow })
    }

    pub(super) fn stats(&self) -> Stats {
        self.client.snapshot().engine
    }

    pub(super) fn create(&mut self, name: &str) -> StageResult<FileHandle> {
        let how =
            CreateHow::Guarded(SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
        let made = self.client.create(self.root, name.as_bytes(), how);
        match made.map_err(failed(&format!("CREATE {name}")))?.object {
            Some(file) => Ok(file),
            None => self.find(name),
        }
    }

    pub(super) fn find(&mut self, name: &str) -> StageResult<FileHandle> {
        let found = self.client.lookup(self.root, name.as_bytes());
        Ok(found.map_err(failed(&format!("LOOKUP {name}")))?.object)
    }

    /// Writes the content number `content`.
    pub(super) fn put(
        &mut self,
        file: FileHandle,
        content: usize,
        len: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<TransferTotals, transfer::TransferFailure> {
        let pattern = Pattern::new(SEED, content as u64);
        let mut source = |offset, room: &mut [u8]| {
            pattern.fill(offset, room);
            Ok(())
        };
        transfer::put(&mut self.client, SizedFile { file, len }, self.flow, &mut source, progress)
    }

    /// Reads the content number `content` and compares every octet.
    pub(super) fn compare(
        &mut self,
        file: FileHandle,
        content: usize,
        len: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), transfer::TransferFailure> {
        let pattern = Pattern::new(SEED, content as u64);
        let mut sink = |offset, octets: &[u8]| match pattern.differs(offset, octets) {
            None => Ok(()),
            Some((at, expected, found)) => Err(io::Error::other(format!(
                "octet {at} of {len} is {found:#04x}, and {expected:#04x} was written"
            ))),
        };
        let moved = transfer::get(
            &mut self.client,
            SizedFile { file, len },
            self.flow,
            &mut sink,
            progress,
        )?;
        if moved.octets == len {
            return Ok(());
        }
        let error =
            io::Error::other(format!("{} octets came, and {len} were written", moved.octets));
        Err(transfer::TransferFailure {
            step: "READ to the end of the file".to_owned(),
            why: TransferFault::Local(error),
        })
    }
}
