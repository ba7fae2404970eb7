//! Restarts while clients with state are silent: the time for which the server waits for them.

use super::script::*;

scripts! {
    fn a_silent_client_is_awaited_for_some_leases_only_and_keeps_its_state_without_a_restart() {
        BOTH: Open("f");
        TWO: Idle(12);
        // Its state was in no other's way, and its record is made again.
        ONE: Renew, Close("f"), Open("f");
        TWO: Idle(6);
        // It may come back.
        SERVER: Restart, Awaits(2);
        BOTH: Recover, Reclaim("f"), Complete;
        TWO: Idle(12);
        // A client that is switched off is not awaited.
        SERVER: Restart, Awaits(1);
        TWO: Recover, Reclaim("f"), Complete;
        SERVER: InGrace(0);
    }
}
