//! READDIR (RFC 8881 §18.23), with the attributes of version 3.

use super::{
    answers,
    requests::{OBJECT, mask, put},
};
use crate::{DirEntry, Error, NfsClient, listing::PagedListing};
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Answer, Attribute, Bitmap, CompoundReply, ReadDir4Args, Request},
};
use stag_rpc::Provider;

/// A page of a directory.
struct Page {
    entries: Vec<DirEntry>,
    verifier: [u8; 8],
    eof: bool,
}

impl<P: Provider> NfsClient<P> {
    /// A whole directory, in pages of at most `count` octets.
    pub(crate) fn list4(&mut self, dir: FileHandle, count: u32) -> Result<Vec<DirEntry>, Error> {
        self.list_from(&put(&dir), count)
    }

    /// The paths of all exports: the names in the root.
    pub(crate) fn exports4(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let entries = self.list_from(&Request::PutRootFh(()), 65_536)?;
        Ok(entries.into_iter().map(|entry| [b"/", &entry.name[..]].concat()).collect())
    }

    fn list_from(&mut self, place: &Request<'_>, count: u32) -> Result<Vec<DirEntry>, Error> {
        let mut asked = mask(&OBJECT);
        asked.insert(Attribute::RdattrError as u32);
        asked.insert(Attribute::Filehandle as u32);
        let (mut verifier, mut listing) = ([0; 8], PagedListing::default());
        loop {
            let requests = [place.clone(), readdir(listing.cookie(), verifier, count, asked)];
            let page = self.run4(&requests, page)?;
            verifier = page.verifier;
            if listing.turn(page.entries, page.eof)? {
                return Ok(listing.into_entries());
            }
        }
    }
}

const fn readdir(
    cookie: u64,
    verifier: [u8; 8],
    count: u32,
    attributes: Bitmap,
) -> Request<'static> {
    let (dir_count, max_count) = (count, count);
    Request::ReadDir(ReadDir4Args { cookie, verifier, dir_count, max_count, attributes })
}

fn page(reply: CompoundReply<'_>) -> Result<Page, Error> {
    for answer in reply {
        let answer = answer.map_err(Error::Garbled)?;
        answers::check(&answer)?;
        let Answer::ReadDir(Ok(ok)) = answer else { continue };
        let entries = ok.entries.clone().map(|entry| {
            // Attributes that cannot be read count as none.
            let values = entry.attributes.values().unwrap_or_default();
            DirEntry {
                name: entry.name.0.to_vec(),
                fileid: values.fileid.unwrap_or_default(),
                cookie: entry.cookie,
                attributes: answers::attributes(&values),
                handle: values.filehandle.and_then(|handle| FileHandle::new(handle.0)),
            }
        });
        return Ok(Page { entries: entries.collect(), verifier: ok.verifier, eof: ok.eof });
    }
    Err(Error::Nonsense("the results are those of other operations"))
}
