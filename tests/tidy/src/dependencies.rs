//! Dependencies: crates in several versions, licences that `deny.toml` does not list, sources other
//! than the registry, and dependencies that no source of their crate names.

use crate::{Figure, FoundPlace, SourceTree};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

/// Crates that the whole tree of dependencies holds in several versions, today: seven of them for
/// rdma-sys, whose bindings come from an early bindgen, and three for ratatui (`stag ctl top`),
/// whose crossterm still has signal-hook 0.3; one is ring's getrandom.
const DUPLICATES_MAX: f64 = 17.0;

/// The three figures of the tree of dependencies, as `cargo metadata` reports it.
#[must_use]
pub fn all(tree: &SourceTree) -> Vec<Figure> {
    let told = metadata(&tree.root);
    let packages = |told: &Value| told.get("packages").and_then(Value::as_array).cloned();
    let packages = told.as_ref().map(|told| packages(told).unwrap_or_default());
    let (duplicated, refused, unused) = match &packages {
        Ok(packages) => {
            let allowed = allowed(&tree.root);
            let own: Vec<&Value> = packages.iter().filter(|package| is_own(package)).collect();
            (duplicates(packages), refused(packages, &allowed), unused(tree, &own))
        }
        // An error must not pass for a clean result.
        Err(error) => {
            let failed = vec![FoundPlace {
                file: "Cargo.toml".to_owned(),
                line: 0,
                text: error.to_string(),
            }];
            (failed.clone(), failed.clone(), failed)
        }
    };
    vec![
        Figure::count("duplicates", "crates in several versions", DUPLICATES_MAX, duplicated),
        Figure::count("refused", "dependencies that deny.toml does not allow", 0.0, refused),
        Figure::count("unused", "dependencies that their crate does not name", 0.0, unused),
    ]
}

fn metadata(root: &Path) -> Result<Value, String> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let done = command.current_dir(root).output().map_err(|error| format!("cargo: {error}"))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
    }
    serde_json::from_slice(&done.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn is_own(package: &Value) -> bool {
    package.get("source").is_none_or(Value::is_null)
}

fn duplicates(packages: &[Value]) -> Vec<FoundPlace> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(text(package, "name")).or_default().insert(text(package, "version"));
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    let place = |(name, versions): (&str, BTreeSet<&str>)| {
        let versions: Vec<&str> = versions.into_iter().collect();
        let text = format!("{name} {}", versions.join(", "));
        FoundPlace { file: "Cargo.lock".to_owned(), line: 0, text }
    };
    several.map(place).collect()
}

/// The licences in the list of `deny.toml`.
fn allowed(root: &Path) -> BTreeSet<String> {
    let file = fs::read_to_string(root.join("deny.toml")).unwrap_or_default();
    let list = file.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn refused(packages: &[Value], allowed: &BTreeSet<String>) -> Vec<FoundPlace> {
    let mut found = Vec::new();
    for package in packages.iter().filter(|package| !is_own(package)) {
        let (name, licence) = (text(package, "name"), licence(package));
        let mut refuse = |why: String| {
            let text = format!("{name}: {why}");
            found.push(FoundPlace { file: "Cargo.lock".to_owned(), line: 0, text });
        };
        if !is_allowed(&licence, allowed) {
            refuse(format!("the licence '{licence}' is not in the list"));
        }
        if !text(package, "source").starts_with("registry+") {
            refuse(format!("comes from {}", text(package, "source")));
        }
    }
    found
}

/// The licence that a crate declares, or the one whose text its licence file begins with.
fn licence(package: &Value) -> String {
    let declared = text(package, "license");
    if !declared.is_empty() {
        return declared.to_owned();
    }
    let folder = Path::new(text(package, "manifest_path")).parent().unwrap_or(Path::new("."));
    let file = fs::read_to_string(folder.join(text(package, "license_file"))).unwrap_or_default();
    let title = file.lines().next().unwrap_or_default().trim();
    title.strip_suffix(" License").unwrap_or(title).to_owned()
}

/// True if an expression of SPDX can be met by licences in the list: each part of an AND has
/// an alternative that is.
fn is_allowed(licence: &str, allowed: &BTreeSet<String>) -> bool {
    let plain = licence.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|one| allowed.contains(one.trim())))
}

/// Dependencies whose name occurs in no source of the crate that asks for them.
fn unused(tree: &SourceTree, own: &[&Value]) -> Vec<FoundPlace> {
    let root = tree.root.to_string_lossy();
    let folder = |package: &Value| {
        let manifest = text(package, "manifest_path");
        let below = manifest.strip_prefix(&*root).unwrap_or(manifest).trim_start_matches('/');
        below.trim_end_matches("Cargo.toml").to_owned()
    };
    let folders: Vec<String> = own.iter().map(|package| folder(package)).collect();
    let mut found = Vec::new();
    for (package, folder) in own.iter().zip(&folders) {
        let words: BTreeSet<&str> = sources_of(tree, folder, &folders)
            .flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '_')))
            .collect();
        let dependencies = package.get("dependencies").and_then(Value::as_array);
        for dependency in dependencies.into_iter().flatten() {
            let named = dependency.get("rename").and_then(Value::as_str);
            let name = named.unwrap_or_else(|| text(dependency, "name"));
            if !words.contains(name.replace('-', "_").as_str()) {
                let file = format!("{folder}Cargo.toml");
                found.push(FoundPlace { file, line: 0, text: name.to_owned() });
            }
        }
    }
    found
}

/// Texts of the files below a crate's folder that belong to no crate inside of it.
fn sources_of<'a>(
    tree: &'a SourceTree,
    folder: &'a str,
    folders: &'a [String],
) -> impl Iterator<Item = &'a str> {
    let is_inner = |inner: &&String| inner.len() > folder.len() && inner.starts_with(folder);
    let inner: Vec<&String> = folders.iter().filter(is_inner).collect();
    let sources = tree.sources.iter().filter(move |source| source.path.starts_with(folder));
    sources
        .filter(move |source| !inner.iter().any(|inner| source.path.starts_with(*inner)))
        .map(|source| source.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_licence_is_met_by_one_of_its_alternatives_in_each_part() {
        let allowed = ["MIT", "Zlib"].map(str::to_owned).into();
        for fine in ["MIT", "GPL-2.0 OR MIT", "Apache-2.0/MIT", "(MIT OR X) AND Zlib"] {
            assert!(is_allowed(fine, &allowed), "{fine}");
        }
        for bad in ["", "GPL-2.0", "MIT AND GPL-2.0"] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_crate_in_two_versions_is_found_and_a_source_that_is_no_registry_too() {
        let package = |name: &str, version: &str, source: &str| {
            let licence = "MIT";
            json!({ "name": name, "version": version, "source": source, "license": licence })
        };
        let packages = [
            package("a", "1.0.0", "registry+x"),
            package("a", "2.0.0", "registry+x"),
            package("b", "1.0.0", "git+y"),
        ];
        let places = duplicates(&packages);
        assert_eq!(places.iter().map(|f| f.text.as_str()).collect::<Vec<_>>(), ["a 1.0.0, 2.0.0"]);
        let places = refused(&packages, &["MIT".to_owned()].into());
        assert_eq!(
            places.iter().map(|f| f.text.as_str()).collect::<Vec<_>>(),
            ["b: comes from git+y"]
        );
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let source = |path: &str, text: &str| {
            crate::SourceFile::parse(path.to_owned(), text.to_owned()).unwrap()
        };
        let sources =
            vec![source("a/src/lib.rs", "use b_c::D;"), source("a/in/lib.rs", "use e::F;")];
        let tree = SourceTree { root: "/r".into(), sources };
        let (outer, inner) = (
            json!({ "manifest_path": "/r/a/Cargo.toml",
                "dependencies": [{ "name": "b-c" }, { "name": "e" }] }),
            json!({ "manifest_path": "/r/a/in/Cargo.toml", "dependencies": [{ "name": "e" }] }),
        );
        let found = unused(&tree, &[&outer, &inner]);
        assert_eq!(found.iter().map(|f| f.text.as_str()).collect::<Vec<_>>(), ["e"]);
        assert_eq!(found.first().map(|f| f.file.as_str()), Some("a/Cargo.toml"));
    }
}
