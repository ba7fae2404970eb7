//! Protection of a client's state by the credential of its machine (SP4_MACH_CRED, RFC 8881
//! §2.10.8.3, §18.35.3).
//!
//! Linux asks for it with every mount by Kerberos. The operations that end what a client has, and
//! BIND_CONN_TO_SESSION then need the principal that made the client, with integrity. The
//! operations that let state go may come from that principal, too, after the ticket of the user has
//! ended. A connection is bound by BIND_CONN_TO_SESSION only: the home shard binds it, and sends it
//! to the shard that has the slots of the session.

use stag_protocol::nfs::v4::{Bitmap, Operation, ProtectedOperations};

use super::Principal;
use stag_nfs_store::Security;

/// Operations that are enforced if a client asks for that.
const ENFORCED: [Operation; 6] = [
    Operation::DelegPurge,
    Operation::BindConnToSession,
    Operation::ExchangeId,
    Operation::CreateSession,
    Operation::DestroySession,
    Operation::DestroyClientid,
];
/// Operations that let state go, which are allowed.
const ALLOWED: [Operation; 6] = [
    Operation::Close,
    Operation::DelegReturn,
    Operation::LockU,
    Operation::OpenDowngrade,
    Operation::FreeStateid,
    Operation::TestStateid,
];

fn set(operations: [Operation; 6]) -> Bitmap {
    Bitmap::of(operations.map(|operation| operation as u32))
}

/// Protection of a client by its machine's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v4) struct MachineGuard {
    enforced: Bitmap,
    allowed: Bitmap,
}

impl MachineGuard {
    /// The protection that a client gets which asks for these operations.
    pub(in crate::v4) fn granted(asked: &ProtectedOperations) -> Self {
        // RFC 8881 §18.35.3 [8881-365]: the operations that end state are enforced as asked
        Self {
            enforced: asked.enforce.intersection(&set(ENFORCED)),
            allowed: asked.allow.intersection(&set(ALLOWED)),
        }
    }

    /// The same as EXCHANGE_ID answers it.
    pub(in crate::v4) fn operations(&self) -> ProtectedOperations {
        ProtectedOperations { enforce: self.enforced, allow: self.allowed }
    }

    /// Returns true if an operation needs the machine's credential.
    pub(in crate::v4) fn enforces(&self, operation: Operation) -> bool {
        self.enforced.contains(operation as u32)
    }

    /// Returns true if connections are bound by BIND_CONN_TO_SESSION only.
    pub(in crate::v4) fn binds_connections(&self) -> bool {
        self.enforces(Operation::BindConnToSession)
    }

    /// Returns true if the machine's credential may be used for an operation, whatever flavors an
    /// export asks for.
    pub(in crate::v4) fn allows(&self, operation: Operation) -> bool {
        self.allowed.contains(operation as u32)
    }
}

/// Returns true for a call that can have a machine's credential: a principal, with integrity.
pub(in crate::v4) const fn is_machine_credential(principal: Principal, security: Security) -> bool {
    matches!(principal, Principal::Proven(_))
        && matches!(security, Security::Krb5i | Security::Krb5p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_gets_what_it_asks_for_but_for_writes_by_the_machine() {
        // What Linux 6.12 sends.
        let numbers = |words: [u32; 2]| {
            let words = u64::from(words[0]) | u64::from(words[1]) << 32;
            Bitmap::of((0..64).filter(move |bit| words >> bit & 1 == 1))
        };
        let (enforce, allow) = (numbers([0, 0x0200_1e00]), numbers([0x0020_4130, 0x0098_2042]));
        let guard = MachineGuard::granted(&ProtectedOperations { enforce, allow });
        assert_eq!(guard.operations().enforce, enforce);
        assert_eq!(guard.operations().allow, Bitmap::of([4, 8, 14, 21, 45, 55]));
        assert!(guard.binds_connections() && guard.allows(Operation::Close));
        let others = ProtectedOperations { enforce: Bitmap::of([9, 38]), allow: Bitmap::of([38]) };
        let none = MachineGuard::granted(&others);
        assert!(!none.binds_connections() && !none.allows(Operation::Close));
        assert_eq!(none.operations().enforce, Bitmap::EMPTY);
    }
}
