//! Check of a reply against the one that its call should have.

use super::{OTHER, ask::Ask, block, maker::Maker};
use stag_client::Error;
use stag_echo::driver::Driven;
use stag_engine::{Stages, stages::service};
use stag_protocol::{
    nfs::v3::{
        Attributes, CommitOk, CreateOk, Failure, LookupOk, ReadOk, StableHow, WccData, WriteOk,
        WrittenData,
    },
    xdr::{Codec, Piece, Reader},
};
use stag_rpc::accepted;

impl Maker {
    /// Checks a reply against the expected one. Returns the octets of payload that the call moved.
    #[inline]
    pub fn check(&self, ask: Ask, reply: &[u8], result: &[u8]) -> Result<u64, Error> {
        if matches!(ask, Ask::Null | Ask::NfsNull) && result.is_empty() {
            let mut results = Reader::new(reply);
            accepted(&mut results)?;
            return results.finish().map(|()| 0).map_err(Error::Garbled);
        }
        self.check_any(ask, reply, result)
    }

    /// The same for any call.
    // A separate function, so that the shortest calls save no registers for all the others.
    #[inline(never)]
    fn check_any(&self, ask: Ask, reply: &[u8], result: &[u8]) -> Result<u64, Error> {
        let pieces = [Piece::Inline(reply), Piece::Chunk(result)];
        let mut results = Reader::over(&pieces);
        accepted(&mut results)?;
        let len = self.len as u64;
        match ask {
            Ask::Null => results.finish().map(|()| 0).map_err(Error::Garbled),
            Ask::Echo { place } => {
                self.payload(results, stag_echo::part(place, self.len)).map(|()| 2 * len)
            }
            Ask::Push { place } => {
                self.payload(results, stag_echo::part(place, self.len)).map(|()| len)
            }
            Ask::Pull { .. } => pulled(results).map(|()| len),
            Ask::Drive { .. } => driven(results).map(|()| 0),
            Ask::NfsNull => results.finish().map(|()| 0).map_err(Error::Garbled),
            Ask::GetAttr => carried_out::<Attributes, ()>(results).map(|_| 0),
            Ask::Lookup { .. } | Ask::Find { .. } => {
                carried_out::<LookupOk, Option<Attributes>>(results).map(|_| 0)
            }
            Ask::Create { .. } => carried_out::<CreateOk, WccData>(results).map(|_| 0),
            Ask::Remove { .. } => carried_out::<WccData, WccData>(results).map(|_| 0),
            Ask::Read { block: number } => {
                let octets = match ReadOk::usual_data(&mut results) {
                    Some(octets) => {
                        results.finish().map_err(Error::Garbled)?;
                        octets
                    }
                    None => {
                        let done = carried_out::<ReadOk<'_>, Option<Attributes>>(results)?;
                        done.data.octets().unwrap_or_default()
                    }
                };
                self.same(octets, block(number, self.len, false)).map(|()| len)
            }
            Ask::Write { .. } => {
                let done = written(results)?;
                self.written(done.count, done.committed).map(|()| len)
            }
            Ask::Commit => carried_out::<CommitOk, WccData>(results).map(|_| 0),
            // The place of its slot is not here: `check_next` reads it.
            Ask::ReadDirPlus { .. } => Err(OTHER),
        }
    }

    /// Compares what a WRITE took with what it was given.
    pub(super) fn written(&self, count: u32, committed: StableHow) -> Result<(), Error> {
        if count as usize != self.len {
            return Err(Error::Nonsense("WRITE took less than was sent"));
        }
        if committed < self.stability() {
            return Err(Error::Nonsense("WRITE is less stable than was asked for"));
        }
        Ok(())
    }

    fn payload(&self, mut results: Reader<'_>, expected: Option<&[u8]>) -> Result<(), Error> {
        let octets = results.item(self.len).map_err(Error::Garbled)?;
        self.same(octets, expected.unwrap_or_default())?;
        results.finish().map_err(Error::Garbled)
    }

    /// Checks that octets of payload are as expected.
    pub fn same(&self, octets: &[u8], expected: &[u8]) -> Result<(), Error> {
        if octets.len() != expected.len() {
            return Err(Error::Nonsense("the payload is shorter than what was asked for"));
        }
        if self.verify && octets != expected {
            return Err(CORRUPT);
        }
        Ok(())
    }
}

/// Reads the results of a procedure of NFS that was carried out: the arm of success.
#[inline]
pub(super) fn carried_out<'a, T: Codec<'a>, F: Codec<'a>>(results: Reader<'a>) -> Result<T, Error> {
    let ended: Result<T, Failure<F>> = results.whole().map_err(Error::Garbled)?;
    ended.map_err(|failure| Error::Nfs(failure.status))
}

/// Reads the results of a WRITE that was carried out.
#[inline]
pub(super) fn written(mut results: Reader<'_>) -> Result<WrittenData, Error> {
    if let Some(written) = WriteOk::usual(&mut results) {
        return results.finish().map(|()| written).map_err(Error::Garbled);
    }
    let WriteOk { count, committed, verifier, .. } = carried_out::<_, WccData>(results)?;
    Ok(WrittenData { count, committed, verifier })
}

/// Reads a server's report on the stages of its calls.
pub(crate) fn stages(reply: &[u8], result: &[u8]) -> Result<Stages, Error> {
    let pieces = [Piece::Inline(reply), Piece::Chunk(result)];
    let mut results = Reader::over(&pieces);
    accepted(&mut results)?;
    let octets = results.item(service::LEN_MAX).map_err(Error::Garbled)?;
    service::parse(octets).map_err(Error::Garbled)
}

/// The payload is wrong.
pub const CORRUPT: Error = Error::Nonsense("the payload is not what it should be");

fn pulled(mut results: Reader<'_>) -> Result<(), Error> {
    let is_same = results.u32().map_err(Error::Garbled)?;
    if is_same != 1 { Err(CORRUPT) } else { results.finish().map_err(Error::Garbled) }
}

/// Reads the result of DRIVE; every end of the server's calls other than a stop is an error.
fn driven(mut results: Reader<'_>) -> Result<(), Error> {
    let end = results.u32().map_err(Error::Garbled)?;
    results.finish().map_err(Error::Garbled)?;
    Err(Error::Nonsense(match Driven::from_number(end) {
        Driven::Stopped => return Ok(()),
        Driven::Corrupt => return Err(CORRUPT),
        Driven::TooLong => {
            "calls of the server have to fit inline on version 1 of RPC-over-RDMA (RFC 8167): \
             give a lower --size, or \
             --rdma-version 2"
        }
        Driven::Full => {
            "the server has no room for so many calls: give a lower --depth, --connections or \
             --size"
        }
        Driven::Failed => "a call of the server failed",
    }))
}
