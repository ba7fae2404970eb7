//! Reporting of faults noted by the procedures of this store ([`crate::exports::faults`]).

use rustix::io::Errno;
use stag_protocol::nfs::v3::FileHandle;

use super::Files;
use crate::{
    StoreRequest,
    exports::{
        config::{Export, stat},
        faults::{self, FaultPlace, NotedFault},
        handle::HandleKey,
    },
};

impl Files {
    /// Carries out an operation on an object, and reports any fault noted meanwhile.
    #[inline]
    pub(super) fn noting<T>(
        &mut self,
        operation: &str,
        about: &FileHandle,
        call: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let outcome = call(self);
        if faults::is_noted() {
            self.report_fault(operation, self.export_named(about));
        }
        outcome
    }

    /// Reports a fault noted for an operation that a helper completed.
    pub(super) fn report_noted(&self, operation: &StoreRequest) {
        if faults::is_noted() {
            let [one, other] = operation.objects();
            let about = other.or(one);
            let export = about.and_then(|about| self.export_named(&about));
            self.report_fault(operation.label(), export);
        }
    }

    /// The export that a handle names, which is not verified.
    pub(super) fn export_named(&self, object: &FileHandle) -> Option<&Export> {
        self.serving.export(HandleKey::claimed_export(object)?)
    }

    /// Takes and reports the noted fault.
    #[cold]
    pub(super) fn report_fault(&self, operation: &str, export: Option<&Export>) {
        if let (Some(fault), Some(export)) = (faults::take(), export)
            && blames(fault, export)
        {
            self.shared.faults.report(export.name(), operation, fault);
        }
    }
}

/// Returns true unless the error is expected for this export.
fn blames(NotedFault { errno, at }: NotedFault, export: &Export) -> bool {
    match errno {
        _ if at == FaultPlace::State => true,
        // It was mounted read-only from the start, by intent.
        Errno::ROFS => !export.limits().is_read_only,
        // Files are removed all the time; the root is not.
        Errno::STALE => stat(export.root()).is_err_and(|error| error == Errno::STALE),
        _ => true,
    }
}
