//! Rules, code and tests agree, the pages match the rules, and the check itself detects every
//! mistake it is made for.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_requirements::{
    Column, RuleStanding, RustSources, Specification, breaks::table::BreakTable, page, problems,
    sources::FoundFunction,
};
use std::fs;

#[test]
fn every_rule_that_is_met_has_its_code_and_its_tests() {
    let specifications = Specification::read_all(&stag_requirements::requirements()).unwrap();
    let problems =
        problems(&specifications, &RustSources::read(&stag_requirements::root()).unwrap());
    println!("{}", page::totals(&specifications));
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn the_pages_are_what_the_rules_say() {
    let specifications = Specification::read_all(&stag_requirements::requirements()).unwrap();
    for (name, text) in page::all(&specifications) {
        let written =
            fs::read_to_string(stag_requirements::requirements().join(&name)).unwrap_or_default();
        assert!(
            written == text,
            "docs/requirements/{name} is out of date; fix: cargo run -p stag-requirements"
        );
    }
}

#[test]
fn the_page_of_broken_lines_is_what_the_table_says() {
    let folder = stag_requirements::requirements();
    let specifications = Specification::read_all(&folder).unwrap();
    let table = BreakTable::read(&folder).unwrap();
    let written = fs::read_to_string(folder.join("broken.md")).unwrap_or_default();
    assert!(
        written == table.page(&specifications),
        "docs/requirements/broken.md is out of date; fix: cargo run -p stag-requirements"
    );
}

const CODE: (&str, &str) = ("a/src/x.rs", "// RFC 8166 §1 [8166-1]\nfn x() {}\n");
const TEST: (&str, &str) = (
    "a/tests/y.rs",
    "#[test]\nfn it_holds() {}\n\nfn helper() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn slow() {}\n",
);

const HEAD: &str = r#"
specification = "RFC 8166"
title = "T"
prefix = "8166"
words = "The text has one MUST, which has a row."
"#;

const RULE: &str = r#"
[[rule]]
id = "8166-1"
section = "1"
level = "MUST"
role = "both"
text = "Something always holds."
status = "met"
code = ["a/src/x.rs"]
tests = ["a/tests/y.rs::it_holds"]
"#;

fn specification(rules: &str) -> Specification {
    Specification::parse("rfc8166", &format!("{HEAD}{rules}")).unwrap()
}

fn found(rules: &str, files: &[(&str, &str)]) -> Vec<String> {
    problems(&[specification(rules)], &RustSources::of(files))
}

#[test]
fn a_rule_with_code_and_test_is_right() {
    assert_eq!(found(RULE, &[CODE, TEST]), [""; 0]);
}

#[test]
fn every_mistake_in_a_rule_is_seen() {
    let mistakes = [
        ("8166-1\"", "8166-x\"", "an id here is 8166-N"),
        ("8166-1\"", "8166-01\"", "an id here is 8166-N"),
        ("8166-1\"", "8167-1\"", "an id here is 8166-N"),
        ("8166-1\"", "8166-0\"", "its number does not rise"),
        ("8166-1\"", "8166-2\"", "no rule has this id"),
        ("section = \"1\"", "section = \"\"", "it has no section"),
        ("\"both\"", "\"\"", "it binds nobody"),
        ("Something always holds.", "Something always holds", "its text is no sentence"),
        ("Something always holds.", "Holds.", "its text is no sentence"),
        ("code = [\"a/src/x.rs\"]", "", "no code is named"),
        ("code = [\"a/src/x.rs\"]", "code = [\"a/src/z.rs\"]", "there is no file a/src/z.rs"),
        (
            "code = [\"a/src/x.rs\"]",
            "code = [\"a/tests/y.rs\"]",
            "no comment in a/tests/y.rs carries [8166-1]",
        ),
        (
            "code = [\"a/src/x.rs\"]",
            "code = [\"a/tests/y.rs\"]",
            "the rule does not name that file",
        ),
        ("tests = [\"a/tests/y.rs::it_holds\"]", "", "no test is named"),
        ("::it_holds", "::it_hold", "there is no a/tests/y.rs::it_hold"),
        ("y.rs::it_holds", "z.rs::it_holds", "there is no a/tests/z.rs::it_holds"),
        ("::it_holds", "::helper", "is no test"),
        ("::it_holds", "::slow", "is ignored by cargo test"),
        ("\"met\"", "\"not met\"", "it is not met, but no reason is given"),
        ("\"met\"", "\"not ours\"", "it is not ours, but no reason is given"),
        ("\"met\"", "\"not ours\"", "no code or test of ours can meet it"),
        ("\"met\"", "\"met\"\nreason = \"because\"", "it is met: reason"),
        (
            "\"met\"",
            "\"not met\"\nreason = \"Nobody uses that any more.\"\ncounter = \"no_such\"",
            "no code knows the counter no_such",
        ),
    ];
    for (from, to, problem) in mistakes {
        assert!(RULE.contains(from), "{from}");
        let seen = found(&RULE.replacen(from, to, 1), &[CODE, TEST]);
        assert!(
            seen.iter().any(|sentence| sentence.contains(problem)),
            "'{to}' shows {seen:?} instead of '{problem}'"
        );
    }
}

#[test]
fn a_specification_says_where_its_key_words_went() {
    let silent = HEAD.replace("The text has one MUST, which has a row.", "");
    let silent = Specification::parse("rfc8166", &format!("{silent}{RULE}")).unwrap();
    let seen = problems(&[silent], &RustSources::of(&[CODE, TEST]));
    assert_eq!(seen, ["rfc8166: it does not say where each key word went (words)"]);
}

#[test]
fn a_number_and_a_prefix_are_used_once() {
    assert!(found(&RULE.repeat(2), &[CODE, TEST])[0].contains("its number does not rise"));
    let twice = [specification(RULE), specification("")];
    assert!(
        problems(&twice, &RustSources::of(&[CODE, TEST]))[0].contains("the prefix '8166' is taken")
    );
}

#[test]
fn an_id_is_found_in_comments_only_and_an_unknown_one_is_told() {
    let stranger =
        ("a/src/z.rs", "let a = b[8166-7];\nlet c = d; // as [9999-3] says, [not] in [0-9]\n");
    assert_eq!(
        found(RULE, &[CODE, TEST, stranger]),
        ["9999-3: no rule has this id, which stands in a/src/z.rs"]
    );
}

#[test]
fn a_rule_that_is_not_met_may_name_a_counter_that_the_code_knows() {
    let rule = RULE.replace(
        "\"met\"",
        "\"not met\"\nreason = \"It needs a device with two ports.\"\ncounter \
         = \"limits.turned_away\"",
    );
    assert_eq!(
        found(&rule, &[CODE, TEST, ("a/src/z.rs", "stats.limits.turned_away += 1;")]),
        [""; 0]
    );
}

const OF_A_PROVIDER: (&str, &str) =
    ("engine/providers/shm/src/x.rs", "// RFC 8166 §1 [8166-1]\nfn x() {}\n");
const CASE: (&str, &str) = ("tests/conformance/src/y.rs", "pub fn it_holds() {}\n");
const LIST: (&str, &str) = ("tests/conformance/src/lib.rs", "    y::it_holds\n");
const FIXTURES: [(&str, &str); 4] = [
    ("engine/providers/iwarp/tests/conformance.rs", ""),
    ("engine/providers/shm/tests/conformance.rs", ""),
    ("engine/providers/sim/tests/conformance.rs", "(case == \"it_holds\").then_some(\"no\")"),
    ("engine/providers/ibverbs/tests/conformance.rs", "\"it_holds\" => Some(\"no\"),"),
];

fn found_on_providers(claims: &str) -> Vec<String> {
    let rule = RULE
        .replace("a/src/x.rs", OF_A_PROVIDER.0)
        .replace("a/tests/y.rs::it_holds", "tests/conformance/src/y.rs::it_holds");
    let mut files = vec![OF_A_PROVIDER, CASE, LIST];
    files.extend(FIXTURES);
    found(&format!("{rule}providers = {{ {claims} }}"), &files)
}

#[test]
fn a_rule_of_a_provider_is_met_where_its_code_and_its_test_run() {
    const REST: &str = "sim = \"not ours: There is no wire that it could bind.\", ibverbs = \"not \
        shown: The suite leaves it out there.\"";
    const IWARP: &str = "iwarp = \"not met: Nobody has written that yet.\"";
    assert_eq!(found_on_providers(&format!("shm = \"met\", {IWARP}, {REST}")), [""; 0]);
    for (claims, problem) in [
        (format!("shm = \"met\", {REST}"), "it does not say how it stands on iwarp"),
        (
            format!("shm = \"met\", iwarp = \"not met\", {REST}"),
            "it is not met on iwarp, but no reason is given",
        ),
        (
            format!("shm = \"met\", iwarp = \"met\", {REST}"),
            "it is met on iwarp, but no code named runs there",
        ),
        (
            format!("shm = \"not shown: Nobody has looked at it yet.\", {IWARP}, {REST}"),
            "it is met on no provider",
        ),
        (
            format!("shm = \"met\", {IWARP}, sim = \"met\", ibverbs = \"met\""),
            "it is met on ibverbs, but no test named runs there",
        ),
        (
            format!("shm = \"met\", {IWARP}, sim = \"met\", ibverbs = \"met\""),
            "it is met on sim, but no test named runs there",
        ),
    ] {
        let seen = found_on_providers(&claims);
        assert!(seen.iter().any(|sentence| sentence.contains(problem)), "{claims} shows {seen:?}");
    }
    for misspelt in ["rxe = \"met\"", "shm = \"done\"", "shm = \"not met because\""] {
        assert!(
            Specification::parse("rfc8166", &format!("{HEAD}{RULE}providers = {{ {misspelt} }}"))
                .is_err()
        );
    }
}

#[test]
fn what_only_one_provider_can_show_counts_there_and_nowhere_else() {
    let rule =
        format!("{RULE}providers = {{ ibverbs = \"not shown: No adapter was there to try it.\" }}");
    let specifications = [specification(&rule)];
    let columns = Column::ALL
        .map(|column| specifications[0].claim(&specifications[0].rule[0], column).unwrap());
    assert_eq!(
        columns.map(|claim| claim.standing),
        [RuleStanding::Met, RuleStanding::Met, RuleStanding::NotShown, RuleStanding::Met],
        "code above the providers runs on each of them"
    );
    let overview = &page::all(&specifications)[0].1;
    assert!(
        overview
            .contains("| all | 1 · 0 · 0 · 0 | 1 · 0 · 0 · 0 | 0 · 1 · 0 · 0 | 1 · 0 · 0 · 0 |")
    );
    assert!(overview.contains("| 8166-1 | ibverbs | not shown |"));
}

#[test]
fn a_misspelt_field_or_level_is_no_rule() {
    for (from, to) in [("tests", "test"), ("\"MUST\"", "\"Must\""), ("\"met\"", "\"done\"")] {
        let head = "specification = \"RFC 8166\"\ntitle = \"T\"\nprefix = \"8166\"\n";
        assert!(
            Specification::parse("rfc8166", &format!("{head}{}", RULE.replacen(from, to, 1)))
                .is_err(),
            "{to}"
        );
    }
}

#[test]
fn cases_of_a_list_and_of_a_macro_are_tests() {
    let cases = (
        "v/src/memory.rs",
        "pub fn reads<F: Fixture>(world: &mut World<F>) {}\npub fn unlisted() {}\n",
    );
    let list = ("v/src/mod.rs", "conformance_tests! {\n    memory::reads\n}\n");
    let every = (
        "v/src/every.rs",
        "on_every_store! {\n    fn inside(bench) {\n        work();\n    }\n}\nfn outside() {}\n",
    );
    let sources = RustSources::of(&[cases, list, every]);
    assert_eq!(sources.test("v/src/memory.rs", "reads"), FoundFunction::Test);
    assert_eq!(sources.test("v/src/memory.rs", "unlisted"), FoundFunction::NoTest);
    assert_eq!(sources.test("v/src/every.rs", "inside"), FoundFunction::Test);
    assert_eq!(sources.test("v/src/every.rs", "outside"), FoundFunction::NoTest);
}
