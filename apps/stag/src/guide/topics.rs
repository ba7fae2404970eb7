//! Pages of `stag help`: the pages of the operator's guide, in the order of the book's
//! `docs/SUMMARY.md`.

/// A page.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// The word by which it is asked for.
    pub name: &'static str,
    /// Its Markdown.
    pub text: &'static str,
}

impl Topic {
    /// The page's heading.
    pub fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("# ")
    }
}

macro_rules! topics {
    ($($name:literal => $file:literal),+ $(,)?) => {
        &[$(Topic { name: $name, text: include_str!(concat!("../../../../docs/", $file)) }),+]
    };
}

/// All pages.
pub const TOPICS: &[Topic] = topics! {
    "quick-start" => "guide/quick-start.md",
    "installing" => "guide/installing.md",
    "adapters" => "guide/adapters.md",
    "accept" => "guide/accept.md",
    "exports" => "guide/exports.md",
    "mounting" => "guide/mounting.md",
    "fabrics" => "guide/fabrics.md",
    "capacity" => "guide/capacity.md",
    "fleet" => "guide/fleet.md",
    "upgrade" => "guide/upgrade.md",
    "troubleshooting" => "guide/troubleshooting.md",
    "operating" => "operating.md",
    "permissions" => "permissions.md",
    "security" => "security.md",
    "kerberos" => "kerberos.md",
    "tuning" => "tuning.md",
    "cluster" => "cluster.md",
    "re-export" => "re-export.md",
    "ceph" => "ceph.md",
    "nfs4" => "nfs4.md",
    "flexfiles" => "flexfiles.md",
    "bench" => "BENCH.md",
    "metrics" => "metrics.md",
    "errors" => "errors.md",
    "glossary" => "glossary.md",
};

/// The page whose file ends in `path`, as links of other pages name it.
pub fn by_file(path: &str) -> Option<&'static Topic> {
    let stem = path.rsplit('/').next()?.strip_suffix(".md")?;
    TOPICS.iter().find(|topic| topic.name.eq_ignore_ascii_case(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_heading_a_name_of_its_own_and_can_be_linked() {
        for topic in TOPICS {
            assert!(topic.text.starts_with("# "), "{}", topic.name);
            assert_eq!(TOPICS.iter().filter(|other| other.name == topic.name).count(), 1);
        }
        assert_eq!(by_file("../BENCH.md").map(|topic| topic.name), Some("bench"));
        assert!(by_file("../README.md").is_none());
    }

    /// The operator's part of the book ends with the heading of the next part.
    #[test]
    fn the_topics_are_the_pages_of_the_book_for_operators_in_its_order() {
        let summary = include_str!("../../../../docs/SUMMARY.md");
        let (_, operators) = summary.split_once("# For operators\n").expect("the part is there");
        let operators = operators.split("\n# ").next().expect("the part is there");
        let files = operators.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
        let names: Vec<_> = files.map(|file| by_file(file).map(|topic| topic.name)).collect();
        let ours: Vec<_> = TOPICS.iter().map(|topic| Some(topic.name)).collect();
        assert_eq!(names, ours);
    }
}
