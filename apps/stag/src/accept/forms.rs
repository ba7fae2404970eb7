//! Every form of a message, in both versions and both directions, with the payload compared.

use super::{
    line::Line,
    program::{Question, Reply, ReverseEnd},
    report::StepGroup,
    steps::{Figures, StepFault, judge},
};
use crate::progress::Progress;
use stag_echo::forms::{FORMS, FormFault};
use stag_engine::CallFault;
use stag_fabrics::FabricAddress;
use stag_protocol::rpcrdma::{Version2, Versions};

/// The versions, as one caller speaks each.
const VERSIONS: [(u32, Versions); 2] = [(1, Versions::One), (2, Versions::Two(Version2::Directed))];
/// Reason for which a form is left out in the reverse direction of version 1.
const INLINE_ONLY: &str =
    "version 1 has no chunks in the reverse direction (RFC 8167 §5.3); the call was refused here";

/// Calls in all forms; a group for each version and direction.
pub fn groups(at: &FabricAddress, progress: &mut Progress) -> Vec<StepGroup> {
    let mut groups = Vec::new();
    for (number, versions) in VERSIONS {
        let mut forward = StepGroup::new(format!("forms, version {number}, forward"));
        let mut reverse = StepGroup::new(format!("forms, version {number}, reverse"));
        progress.begin(&forward.name, None);
        match Line::connect(at, versions) {
            Ok(mut line) => {
                call_forward(&mut line, &mut forward);
                progress.end(&format!("{}: {}", forward.name, forward.counts()));
                progress.begin(&reverse.name, None);
                call_reverse(&mut line, number, &mut reverse);
                progress.end(&format!("{}: {}", reverse.name, reverse.counts()));
            }
            Err(error) => {
                let why = error.to_string();
                forward.steps.push(judge("connect", || Err(why.into())));
                progress.end(&format!("{}: {}", forward.name, forward.counts()));
            }
        }
        groups.push(forward);
        groups.push(reverse);
    }
    groups
}

fn call_forward(line: &mut Line, group: &mut StepGroup) {
    for end in line.call_all() {
        let step = || match end.end {
            Ok(()) => Ok(Figures::new()),
            Err(fault) => Err(StepFault::Failed(fault.to_string())),
        };
        group.steps.push(judge(end.form.to_string(), step));
    }
    let kept = line.buffers_in_use();
    group.steps.push(judge("no buffer is kept", || match kept {
        0 => Ok(Figures::new()),
        kept => Err(format!("{kept} buffers are in use after all calls").into()),
    }));
}

fn call_reverse(line: &mut Line, version: u32, group: &mut StepGroup) {
    for (index, form) in FORMS.iter().enumerate() {
        let is_inline_only = version == 1 && !form.is_short();
        let step = || match (line.ask(&Question::Reverse(index))?, is_inline_only) {
            (Reply::Reversed(ReverseEnd::Same), false) => Ok(Figures::new()),
            (Reply::Reversed(ReverseEnd::TooLong), true) => {
                Err(StepFault::Skipped(INLINE_ONLY.to_owned()))
            }
            (Reply::Reversed(ReverseEnd::Failed(why)), _) => Err(why.into()),
            (other, _) => Err(format!("the server says {other:?}").into()),
        };
        group.steps.push(judge(form.to_string(), step));
    }
}

/// The end of a reverse call, as the server reports it.
pub fn reverse_end(end: Result<(), FormFault>) -> ReverseEnd {
    match end {
        Ok(()) => ReverseEnd::Same,
        Err(FormFault::Call(CallFault::TooLong)) => ReverseEnd::TooLong,
        Err(fault) => ReverseEnd::Failed(fault.to_string()),
    }
}
