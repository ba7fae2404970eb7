//! Reports of a server about the stages of its calls.

use super::InputVerdict;
use stag_engine::{Stage, stages::service};

/// An answer: the parsed fields equal its octets, and are no more than there are octets for.
pub fn answer(input: &[u8]) -> InputVerdict {
    let stages = match service::parse(input) {
        Ok(stages) => stages,
        Err(error) => return InputVerdict::refused(&error),
    };
    assert_eq!(service::parse(input).as_ref(), Ok(&stages));
    assert_eq!(input.get(..4), Some(&stages.shard().to_be_bytes()[..]));
    assert_eq!(input.get(4..8), Some(&stages.every().to_be_bytes()[..]));
    // Nothing is kept of a shard that watches no calls.
    assert_eq!(stages.iter().count(), if stages.every() > 0 { Stage::ALL.len() } else { 0 });
    let distinct: usize = stages.iter().map(|(_, times)| times.iter_recorded().count()).sum();
    assert!(distinct * 16 <= input.len(), "{distinct} times in {} octets", input.len());
    let mut twice = stages.clone();
    twice.add(&stages);
    for (_, times) in twice.iter() {
        let (middle, most) = (times.value_at_quantile(0.5), times.max());
        assert!(middle <= most, "{middle} {most}");
    }
    let full = stages.iter().filter(|(_, times)| !times.is_empty()).count();
    InputVerdict::accepted((stages.every() > 0, full, stages.calls().min(3)))
}
