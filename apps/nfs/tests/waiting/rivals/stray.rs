//! A client of version 3, which holds no rights and heeds none.

use super::{mail, player::Player};
use stag_protocol::nfs::{
    Bulk,
    v3::{self, FileHandle, StableHow},
};
use std::rc::Rc;

impl Player {
    /// Its process: it does `deeds` random things.
    pub async fn stray(self: Rc<Self>, deeds: usize) {
        let directory = self.scene.directory;
        for _ in 0..deeds {
            let name = v3::Name(self.name());
            let place = v3::DirOpArgs { dir: directory, name };
            let found = self.ask3(&v3::Call::Lookup(v3::LookupArgs { what: place })).await;
            let file = found.as_deref().and_then(handle_of);
            let number = self.scene.ledger.borrow_mut().number();
            let mode = Some(0o600 | number as u32 & 0o77);
            let set = v3::SetAttributes { mode, ..v3::SetAttributes::default() };
            let to = v3::DirOpArgs { dir: directory, name: v3::Name(self.name()) };
            // Names that version 3 changes are not judged where a lookup may wait (docs/nfs4.md).
            let kinds = if self.scene.is_at_once { 5 } else { 3 };
            let call = match (self.below(kinds), file) {
                (0, Some(object)) => {
                    v3::Call::SetAttr(v3::SetAttrArgs { object, attributes: set, guard: None })
                }
                (1 | 2, Some(file)) => v3::Call::Write(v3::WriteArgs {
                    file,
                    offset: number,
                    stable: StableHow::FileSync,
                    data: Bulk::Inline(b"version3"),
                }),
                (3, _) => v3::Call::Remove(v3::RemoveArgs { object: place }),
                (4, _) => v3::Call::Rename(v3::RenameArgs { from: place, to }),
                _ => continue,
            };
            self.ask3(&call).await;
            self.rest(1_500).await;
        }
        self.state.borrow_mut().is_done = true;
    }

    async fn ask3(&self, call: &v3::Call<'_>) -> Option<Vec<u8>> {
        let octets = mail::call3(self.uid, call);
        mail::call(&self.mail, self.below(2), octets).await.ok()
    }
}

/// The handle in a reply to LOOKUP of version 3.
fn handle_of(reply: &[u8]) -> Option<FileHandle> {
    if mail::status3(reply) != 0 {
        return None;
    }
    let octets = &reply[stag_protocol::rpc::ReplyHeader::LEN + 4..];
    let len = u32::from_be_bytes(*octets.first_chunk()?) as usize;
    FileHandle::new(octets.get(4..4 + len)?)
}
