//! Version 4 at the gateway: NULL and COMPOUND (RFC 8881 §16).

use stag_engine::{Answer, Call, Cx};
use stag_protocol::rpc::Accepted;

use super::{Gateway, NoMessage, caller, write_header};
use crate::drc::CallSource;
use crate::store::Store;
use crate::v4::{CompoundCall, Nfs4, Nfs4Config, Nfs4Records, NoReply};

impl<S: Store> Gateway<S> {
    /// Serves version 4, too. Its clients are this shard's alone.
    #[must_use]
    pub fn with_nfs4(mut self, config: Nfs4Config) -> Self {
        self.nfs4 = Some(Box::new(Nfs4::new(config, self.store.exports())));
        self
    }

    /// Begins version 4, which is served already, with records of its clients.
    #[must_use]
    pub fn with_records(mut self, records: Nfs4Records) -> Self {
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.recover(records);
        }
        self
    }

    /// Does not serve version 3.
    #[must_use]
    pub const fn without_nfs3(mut self) -> Self {
        self.serves_3 = false;
        self
    }

    /// NULL of version 4.
    pub(super) fn null4(&mut self, cx: &mut Cx<'_>, call: &Call<'_>) -> Result<Answer, NoMessage> {
        match call.arguments.clone().finish() {
            Ok(()) => Err(write_header(cx, call.id, call.header.reply(Accepted::Success))),
            Err(_) => self.refuse(cx, call.id, call.header.reply(Accepted::GarbageArgs)),
        }
    }

    /// Carries out a compound of version 4.
    pub(super) fn compound(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: Call<'_>,
    ) -> Result<Answer, NoMessage> {
        let Call { id, header, arguments, pulled, .. } = call;
        let Some(nfs4) = &mut self.nfs4 else { return Err(NoMessage::Dropped) };
        let caller = caller(&header.credential, source.from);
        let call = CompoundCall { source, header: &header, arguments, pulled, caller };
        match nfs4.compound(cx, &mut self.store, &mut self.counters.data, call) {
            Ok(answer) => Ok(answer),
            Err(NoReply::Garbage) => self.refuse(cx, id, header.reply(Accepted::GarbageArgs)),
            Err(NoReply::NoMemory) => Err(NoMessage::Dropped),
            Err(NoReply::Held) => {
                // It may carry handles.
                self.write_index();
                Err(NoMessage::Waits)
            }
        }
    }
}
