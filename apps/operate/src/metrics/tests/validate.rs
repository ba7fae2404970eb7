//! A reader of the text exposition format, as strict as Prometheus' own, for tests.

use std::collections::{BTreeMap, BTreeSet};

/// Checks each line, and what the lines say together.
///
/// # Errors
/// A fault, with its line.
pub fn validate(text: &str) -> Result<(), String> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut helped, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    if !text.ends_with('\n') {
        return Err("the last line does not end".to_owned());
    }
    for line in text.lines() {
        let wrong = |what: &str| Err(format!("{what}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            if !rest.split_once(' ').is_some_and(|(name, _)| helped.insert(name.to_owned())) {
                return wrong("a second or empty HELP");
            }
            continue;
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            if kinds.insert(name, kind).is_some() || !helped.contains(name) {
                return wrong("a second TYPE, or one without HELP");
            }
            continue;
        }
        let Some((name, labels, value)) = sample(line) else { return wrong("no sample") };
        if !seen.insert(format!("{name}{labels:?}")) {
            return wrong("a second sample of the same series");
        }
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
            name.strip_suffix(end).filter(|name| kinds.get(name) == Some(&"histogram"))
        });
        if !kinds.contains_key(family.unwrap_or(name)) {
            return wrong("a sample without TYPE");
        }
        if let Some((end, others)) = labels.split_last().filter(|_| name.ends_with("_bucket")) {
            let end =
                if end.1 == "+Inf" { f64::INFINITY } else { end.1.parse().unwrap_or(f64::NAN) };
            buckets.entry(format!("{name}{others:?}")).or_default().push((end, value));
        }
    }
    for (name, buckets) in buckets {
        let pairs = buckets.iter().zip(buckets.iter().skip(1));
        let grows = pairs.clone().all(|(one, next)| one.0 < next.0 && one.1 <= next.1);
        if !grows || buckets.last().is_none_or(|(end, _)| *end != f64::INFINITY) {
            return Err(format!("buckets of {name}: {buckets:?}"));
        }
    }
    Ok(())
}

/// A sample's name, its labels with their values, and its value.
type Sample<'a> = (&'a str, Vec<(&'a str, String)>, f64);

fn sample(line: &str) -> Option<Sample<'_>> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if !is_name(label) || labels.iter().any(|(known, _)| *known == label) {
                return None;
            }
            labels.push((label, value));
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => break rest = after.strip_prefix('}')?,
            }
        }
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_name(name).then_some((name, labels, value))
}

/// The value of a label up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prometheus_refuses_is_refused() {
        let head = "# HELP a_total A.\n# TYPE a_total counter\n";
        for good in ["a_total 1\n", "a_total{b=\"c\\\\\\\"\\n\"} 2.5\na_total{b=\"d\"} 1e9\n"] {
            assert_eq!(validate(&format!("{head}{good}")), Ok(()), "{good}");
        }
        for bad in [
            "a_total 1",
            "a_total\n",
            "a_total x\n",
            "a_total{b=c} 1\n",
            "a_total{b=\"c} 1\n",
            "a_total{b=\"\\x\"} 1\n",
            "a_total{b=\"c\",b=\"d\"} 1\n",
            "a_total{9=\"c\"} 1\n",
            "a_total 1\na_total 1\n",
            "b_total 1\n",
            "# TYPE a_total counter\n",
            "# HELP a_total B.\n",
        ] {
            assert!(validate(&format!("{head}{bad}")).is_err(), "{bad}");
        }
        let head = "# HELP h H.\n# TYPE h histogram\n";
        assert!(
            validate(&format!("{head}h_bucket{{le=\"1\"}} 2\nh_bucket{{le=\"+Inf\"}} 1\n"))
                .is_err()
        );
        assert!(validate(&format!("{head}h_bucket{{le=\"1\"}} 2\n")).is_err());
    }
}
