//! Places in the statistics: keys joined by dots, of which some are labels.

use serde_json::Value;

/// A place such as `engine.limits.{limit}`. A part `{label}` stands for any key, which becomes the
/// value of that label; `{label=a|b}` for these keys; text may precede and follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path(pub &'static str);

/// A number, and the labels that its place gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values of labels, in the order of the place.
    pub labels: Vec<(&'static str, String)>,
    /// The number as it stands in the statistics.
    pub value: f64,
}

/// One part of a path.
#[derive(Clone, Copy)]
struct Part {
    before: &'static str,
    /// The name of the label, and the keys that it takes; empty if it takes any.
    label: Option<(&'static str, &'static str)>,
    after: &'static str,
}

impl Part {
    fn parse(text: &'static str) -> Self {
        let parts = text.split_once('{').and_then(|(before, rest)| {
            let (inner, after) = rest.split_once('}')?;
            Some((before, inner.split_once('=').unwrap_or((inner, "")), after))
        });
        match parts {
            Some((before, label, after)) => Self { before, label: Some(label), after },
            None => Self { before: text, label: None, after: "" },
        }
    }

    /// The value of the label that `key` gives; empty without a label. None if `key` does not
    /// match.
    fn value(self, key: &str) -> Option<&str> {
        let middle = key.strip_prefix(self.before)?.strip_suffix(self.after)?;
        match self.label {
            None => middle.is_empty().then_some(middle),
            Some((_, "")) => (!middle.is_empty()).then_some(middle),
            Some((_, keys)) => keys.split('|').any(|known| known == middle).then_some(middle),
        }
    }
}

impl Path {
    fn parts(self) -> impl Iterator<Item = Part> {
        self.0.split('.').map(Part::parse)
    }

    /// The labels, in order.
    #[cfg(test)]
    pub fn labels(self) -> impl Iterator<Item = &'static str> {
        self.parts().filter_map(|part| part.label).map(|(label, _)| label)
    }

    /// Returns true if this place is meant by the path.
    pub fn matches(self, keys: &[&str]) -> bool {
        let mut parts = self.parts();
        keys.iter().all(|key| parts.next().is_some_and(|part| part.value(key).is_some()))
            && parts.next().is_none()
    }

    /// The numbers of `value` at this path.
    pub fn samples(self, value: &Value) -> Vec<Sample> {
        let parts: Vec<Part> = self.parts().collect();
        let mut found = Vec::new();
        walk(value, &parts, &mut Vec::new(), &mut found);
        found
    }
}

fn walk(
    value: &Value,
    parts: &[Part],
    labels: &mut Vec<(&'static str, String)>,
    found: &mut Vec<Sample>,
) {
    let Some((part, rest)) = parts.split_first() else {
        found.extend(value.as_f64().map(|value| Sample { labels: labels.clone(), value }));
        return;
    };
    for (key, within) in value.as_object().into_iter().flatten() {
        let Some(label) = part.value(key) else { continue };
        labels.extend(part.label.map(|(name, _)| (name, label.to_owned())));
        walk(within, rest, labels, found);
        if part.label.is_some() {
            labels.pop();
        }
    }
}

/// The places of all numbers of `value`, with the numbers.
pub fn numbers(value: &Value) -> Vec<(Vec<&str>, f64)> {
    let mut found = Vec::new();
    collect(value, &mut Vec::new(), &mut found);
    found
}

fn collect<'a>(value: &'a Value, keys: &mut Vec<&'a str>, found: &mut Vec<(Vec<&'a str>, f64)>) {
    for (key, within) in value.as_object().into_iter().flatten() {
        keys.push(key);
        match within.as_f64() {
            Some(number) => found.push((keys.clone(), number)),
            None => collect(within, keys, found),
        }
        keys.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_the_keys_that_a_path_leaves_open() {
        let value = json!({
            "calls": {"READ": {"n": 3}, "WRITE": {"n": 4}},
            "chunks": {"read": 1, "read_segments": 2, "write": 5},
        });
        let of = |path| {
            let samples = Path(path).samples(&value).into_iter();
            let text = |sample: Sample| {
                let labels = sample.labels.iter().map(|(name, value)| format!("{name}={value} "));
                format!("{}{}", labels.collect::<String>(), sample.value)
            };
            samples.map(text).collect::<Vec<_>>()
        };
        assert_eq!(of("calls.{procedure}.n"), ["procedure=READ 3", "procedure=WRITE 4"]);
        assert_eq!(of("chunks.{chunk=read|write}"), ["chunk=read 1", "chunk=write 5"]);
        assert_eq!(of("chunks.{chunk}_segments"), ["chunk=read 2"]);
        assert_eq!(of("chunks.read"), ["1"]);
        assert!(of("chunks").is_empty() && of("calls.READ.n.more").is_empty());
        assert_eq!(Path("a.{b}.x_{c=d|e}_y").labels().collect::<Vec<_>>(), ["b", "c"]);
        assert!(Path("chunks.{chunk=read|write}").matches(&["chunks", "write"]));
        assert!(!Path("chunks.{chunk=read|write}").matches(&["chunks", "read_segments"]));
        assert!(!Path("chunks.{chunk}").matches(&["chunks"]));
        assert_eq!(numbers(&value).len(), 5);
    }
}
