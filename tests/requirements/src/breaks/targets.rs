//! The test programs of the workspace, and the tests that each holds.

use crate::RustSources;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeSet, io, path::Path};

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestTarget {
    /// The package's name.
    pub package: String,
    /// The package's folder in the workspace.
    pub folder: String,
    /// `lib`, `bin` or `test`.
    pub kind: String,
    /// The target's name.
    pub name: String,
    /// Its main file in the workspace.
    pub source: String,
}

/// All test programs of the workspace that are built without features.
#[derive(Debug)]
pub struct Targets {
    all: Vec<TestTarget>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    targets: Vec<PackageTarget>,
}

#[derive(Deserialize)]
struct PackageTarget {
    kind: Vec<String>,
    name: String,
    src_path: String,
    test: bool,
    #[serde(default, rename = "required-features")]
    required_features: Vec<String>,
}

impl TestTarget {
    /// The arguments of `cargo test` that build this one.
    pub(super) fn arguments(&self) -> Vec<String> {
        match self.kind.as_str() {
            "lib" => vec!["--lib".to_owned()],
            kind => vec![format!("--{kind}"), self.name.clone()],
        }
    }

    /// Says if one of cargo's messages speaks of this target's test program.
    pub(super) fn is_in(&self, message: &Value) -> bool {
        let target = |key: &str| message.pointer(&format!("/target/{key}"));
        let is_kind = target("kind")
            .and_then(Value::as_array)
            .is_some_and(|kinds| kinds.contains(&self.kind.as_str().into()));
        let is_source = target("src_path")
            .and_then(Value::as_str)
            .is_some_and(|path| path.ends_with(&self.source));
        let is_test = message.pointer("/profile/test").and_then(Value::as_bool) == Some(true);
        is_kind
            && is_source
            && is_test
            && target("name").and_then(Value::as_str) == Some(&self.name)
    }

    /// The full names of the tests that a rule calls `file::name`, of all that the program has. A
    /// macro may make a module of a test, which has one for each subject: `name::on_files`.
    pub(super) fn names(&self, file: &str, name: &str, all: &[String]) -> Vec<String> {
        let mut ending: Vec<&String> = all.iter().filter(|full| ends_with(full, name)).collect();
        let of_subject =
            |full: &&String| full.rsplit_once("::").is_some_and(|(test, _)| ends_with(test, name));
        ending.extend(all.iter().filter(of_subject));
        let module = module(file);
        let is_near = |full: &str| full.split("::").any(|part| part == module);
        let near: Vec<_> = ending.iter().filter(|full| is_near(full)).collect();
        if near.is_empty() {
            ending.into_iter().cloned().collect()
        } else {
            near.into_iter().map(|full| (*full).clone()).collect()
        }
    }
}

/// Says if `name` is the last part of a path.
fn ends_with(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|front| front.is_empty() || front.ends_with("::"))
}

/// The module that a file makes: its name, or its folder's.
fn module(file: &str) -> &str {
    let mut parts = file.trim_end_matches(".rs").rsplit('/');
    match parts.next().unwrap_or_default() {
        "mod" | "tests" => parts.next().unwrap_or_default(),
        name => name,
    }
}

impl Targets {
    /// Reads what `cargo metadata` prints.
    pub(super) fn parse(root: &Path, text: &[u8]) -> io::Result<Self> {
        let metadata: Metadata = serde_json::from_slice(text)?;
        let below = |path: &str| {
            Path::new(path)
                .strip_prefix(root)
                .unwrap_or(Path::new(path))
                .to_string_lossy()
                .into_owned()
        };
        let mut all = Vec::new();
        for package in metadata.packages {
            let folder =
                below(package.manifest_path.trim_end_matches("Cargo.toml").trim_end_matches('/'));
            for target in package.targets {
                let kind = target
                    .kind
                    .into_iter()
                    .find(|kind| ["lib", "bin", "test"].contains(&kind.as_str()));
                let Some(kind) =
                    kind.filter(|_| target.test && target.required_features.is_empty())
                else {
                    continue;
                };
                all.push(TestTarget {
                    package: package.name.clone(),
                    folder: folder.clone(),
                    kind,
                    name: target.name,
                    source: below(&target.src_path),
                });
            }
        }
        Ok(Self { all })
    }

    /// The package that a file belongs to: the one whose folder is nearest.
    #[must_use]
    pub fn package(&self, file: &str) -> Option<&TestTarget> {
        let around = self.all.iter().filter(|target| {
            target.folder.is_empty()
                || file.strip_prefix(&target.folder).is_some_and(|rest| rest.starts_with('/'))
        });
        around.max_by_key(|target| target.folder.len())
    }

    /// The test programs that hold `file::name`. A case of a list that a macro makes tests of is in
    /// every program that calls the macro.
    #[must_use]
    pub fn of(&self, file: &str, name: &str, sources: &RustSources) -> Vec<TestTarget> {
        let Some(call) = sources.list_of(file, name) else { return self.holding(file) };
        let callers = sources.files_with(&call).flat_map(|caller| self.holding(caller));
        callers.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The test program that a file is part of, if it is one's.
    fn holding(&self, file: &str) -> Vec<TestTarget> {
        let Some(package) = self.package(file).map(|target| target.package.clone()) else {
            return Vec::new();
        };
        let own = self.all.iter().filter(|target| target.package == package);
        let folder = |target: &TestTarget| {
            target.source.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"))
        };
        // `tests/x.rs` is its own main file; `tests/x/y.rs` belongs to `tests/x/main.rs`;
        // `src/y.rs` to the library, or the only program.
        let near = own.filter(|target| {
            target.source == file
                || (file.starts_with(&folder(target))
                    && (target.kind != "test" || target.source.ends_with("/main.rs")))
        });
        let best = near.max_by_key(|target| {
            (target.source == file, folder(target).len(), target.kind == "lib")
        });
        best.into_iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str, name: &str, source: &str) -> TestTarget {
        let folder = source.split('/').next().unwrap().to_owned();
        TestTarget {
            package: folder.clone(),
            folder,
            kind: kind.to_owned(),
            name: name.to_owned(),
            source: source.to_owned(),
        }
    }

    fn found(file: &str, name: &str, sources: &RustSources) -> Vec<String> {
        let all = vec![
            target("lib", "a", "a/src/lib.rs"),
            target("bin", "a", "a/src/main.rs"),
            target("test", "x", "a/tests/x.rs"),
            target("test", "wire", "a/tests/wire/main.rs"),
            target("lib", "b", "b/src/lib.rs"),
            target("test", "cases", "b/tests/cases.rs"),
        ];
        Targets { all }.of(file, name, sources).into_iter().map(|target| target.source).collect()
    }

    #[test]
    fn a_test_is_found_in_the_program_that_holds_it() {
        let none = RustSources::default();
        assert_eq!(found("a/src/deep/y.rs", "t", &none), ["a/src/lib.rs"]);
        assert_eq!(found("a/tests/x.rs", "t", &none), ["a/tests/x.rs"]);
        assert_eq!(found("a/tests/wire/y.rs", "t", &none), ["a/tests/wire/main.rs"]);
        assert_eq!(found("c/tests/x.rs", "t", &none), [""; 0]);
    }

    #[test]
    fn a_case_of_a_list_is_in_every_program_that_calls_it() {
        let list = ("a/src/mod.rs", "macro_rules! all_cases {\n    memory::reads\n}\n");
        let call = "a::all_cases!(Own);\n";
        let sources = RustSources::of(&[list, ("b/tests/cases.rs", call)]);
        assert_eq!(found("a/src/memory.rs", "reads", &sources), ["b/tests/cases.rs"]);
        // A program's list of cases that it leaves out is no list of cases.
        let omitted = ("a/src/fake.rs", "const OMITTED: &str = \"\n    memory::reads\n\";\n");
        let sources = RustSources::of(&[omitted, list, ("b/tests/cases.rs", call)]);
        assert_eq!(found("a/src/memory.rs", "reads", &sources), ["b/tests/cases.rs"]);
        // The call may stand in any file of a program.
        let sources = RustSources::of(&[
            list,
            ("b/tests/cases.rs", call),
            ("b/src/fake/tests.rs", call),
            ("b/src/fake/more.rs", call),
        ]);
        let programs = ["b/src/lib.rs", "b/tests/cases.rs"];
        assert_eq!(found("a/src/memory.rs", "reads", &sources), programs);
    }

    #[test]
    fn a_name_that_two_modules_have_is_that_of_the_rules_file() {
        let all = ["a::tests::t", "b::tests::t", "c::tests::other", "t"].map(str::to_owned);
        let target = target("lib", "a", "a/src/lib.rs");
        assert_eq!(target.names("a/src/b.rs", "t", &all), ["b::tests::t"]);
        assert_eq!(target.names("a/src/store/tests.rs", "other", &all), ["c::tests::other"]);
        assert_eq!(target.names("a/src/b.rs", "none", &all), [""; 0]);
        let all = ["b::t::files", "b::t::memory", "c::t", "b::tt::files"].map(str::to_owned);
        assert_eq!(target.names("a/src/b.rs", "t", &all), ["b::t::files", "b::t::memory"]);
    }
}
