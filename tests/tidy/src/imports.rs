//! Folders of a crate that import each other.
//!
//! A folder is a directory below a crate's `src/`; an arrow is a `use`, or a path in the code, from
//! a file below one folder to an item below a sibling. A folder and the folders in it belong
//! together, and a name that the crate's root exports stands for the folder that it comes from.

use crate::{Figure, FoundPlace, SourceFile, SourceTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, ItemMod, ItemUse, UseTree, visit::Visit};

type ModulePath = Vec<String>;
type Arrows = BTreeMap<String, BTreeMap<String, FoundPlace>>;

/// Arrows between sibling folders that are part of a circle.
#[must_use]
pub fn circles(tree: &SourceTree) -> Figure {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for source in tree.code() {
        if let Some((name, _)) = source.path.split_once("src/") {
            crates.entry(name).or_default().push(source);
        }
    }
    let mut found = Vec::new();
    for (name, sources) in crates {
        let arrows = arrows(&format!("{name}src/"), &sources);
        for (from, targets) in &arrows {
            let back = targets.iter().filter(|(to, _)| reaches(&arrows, to, from));
            found.extend(back.map(|(to, place)| FoundPlace {
                text: format!("{from} -> {to}: {}", place.text),
                ..place.clone()
            }));
        }
    }
    Figure::count("circles", "imports between folders that go in a circle", 0.0, found)
}

/// One arrow for each pair of sibling folders, with its first place.
fn arrows(base: &str, sources: &[&SourceFile]) -> Arrows {
    let modules: Vec<ModulePath> =
        sources.iter().map(|source| module(base, &source.path)).collect();
    let folders: BTreeSet<String> =
        sources.iter().flat_map(|source| folders(base, source)).collect();
    let roots = sources.iter().zip(&modules).filter(|(_, module)| module.is_empty());
    let exports = roots.flat_map(|(source, _)| exports(source)).collect();
    let mut arrows = Arrows::new();
    for (source, module) in sources.iter().zip(&modules) {
        let mut paths = Paths { module: module.clone(), found: Vec::new() };
        source.visit(&mut paths);
        for (line, target) in paths.found {
            let target = through(&exports, target);
            let Some((from, to)) = siblings(&folders, module, &target) else { continue };
            let text = target.join("::");
            let place = FoundPlace { file: source.path.clone(), line, text };
            arrows.entry(from).or_default().entry(to).or_insert(place);
        }
    }
    arrows
}

fn reaches(arrows: &Arrows, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(folder) = open.pop() {
        if folder == to {
            return true;
        }
        if seen.insert(folder.clone()) {
            open.extend(
                arrows.get(&folder).into_iter().flat_map(|targets| targets.keys().cloned()),
            );
        }
    }
    false
}

/// `src/a/b.rs` is a::b, `src/a/mod.rs` is a, `src/lib.rs` is nothing.
fn module(base: &str, path: &str) -> ModulePath {
    let below = path.strip_prefix(base).unwrap_or(path);
    let mut parts: ModulePath =
        below.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

fn folders<'a>(base: &'a str, source: &'a SourceFile) -> impl Iterator<Item = String> + 'a {
    let below = source.path.strip_prefix(base).unwrap_or(&source.path);
    below.match_indices('/').map(|(at, _)| below.chars().take(at).collect())
}

/// Names that the crate's root takes from its modules.
fn exports(source: &SourceFile) -> BTreeMap<String, ModulePath> {
    let mut all = BTreeMap::new();
    for item in &source.items {
        if let Item::Use(item) = item {
            for path in leaves(&item.tree, &ModulePath::new()) {
                let path: ModulePath =
                    path.into_iter().skip_while(|part| part == "self" || part == "crate").collect();
                if let Some(name) = path.last().filter(|_| path.len() > 1) {
                    all.insert(name.clone(), path.clone());
                }
            }
        }
    }
    all
}

fn through(exports: &BTreeMap<String, ModulePath>, target: ModulePath) -> ModulePath {
    target.first().and_then(|first| exports.get(first)).cloned().unwrap_or(target)
}

/// The two folders at which the paths of two modules part.
fn siblings(
    folders: &BTreeSet<String>,
    from: &ModulePath,
    to: &ModulePath,
) -> Option<(String, String)> {
    let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let upto = |path: &ModulePath| path.get(..=same).map(|parts| parts.join("/"));
    let (from, to) = (upto(from)?, upto(to)?);
    (folders.contains(&from) && folders.contains(&to)).then_some((from, to))
}

/// The paths of this crate that a file names, from the crate's root.
struct Paths {
    module: ModulePath,
    found: Vec<(usize, ModulePath)>,
}

impl Paths {
    fn keep(&mut self, line: usize, path: &[String]) {
        let mut base = match path.first().map(String::as_str) {
            Some("crate") => ModulePath::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                name => base.push(name.to_owned()),
            }
        }
        self.found.push((line, base));
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for path in leaves(&item.tree, &ModulePath::new()) {
            self.keep(item.use_token.span.start().line, &path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: ModulePath = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let Some(first) = path.segments.first().filter(|_| parts.len() > 1) {
            self.keep(first.ident.span().start().line, &parts);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if crate::types::is_test_module(module) {
            return;
        }
        self.module.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.module.pop();
    }
}

fn leaves(tree: &UseTree, before: &ModulePath) -> Vec<ModulePath> {
    let with = |name: String| before.iter().cloned().chain([name]).collect::<ModulePath>();
    match tree {
        UseTree::Path(path) => leaves(&path.tree, &with(path.ident.to_string())),
        UseTree::Name(name) => vec![with(name.ident.to_string())],
        UseTree::Rename(rename) => vec![with(rename.ident.to_string())],
        UseTree::Glob(_) => vec![before.clone()],
        UseTree::Group(group) => group.items.iter().flat_map(|tree| leaves(tree, before)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let parse = |(path, text): &(&str, &str)| {
            SourceFile::parse((*path).to_owned(), (*text).to_owned()).unwrap()
        };
        let tree = SourceTree { root: "/".into(), sources: files.iter().map(parse).collect() };
        circles(&tree).found.into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn two_folders_that_import_each_other_are_a_circle() {
        let found = circles_of(&[
            ("x/src/lib.rs", "mod a; mod b; pub use b::Thing;"),
            ("x/src/a/mod.rs", "use crate::Thing;"),
            ("x/src/b/mod.rs", "pub struct Thing;"),
            ("x/src/b/deep.rs", "fn f() { super::super::a::g(); }"),
        ]);
        assert_eq!(found, ["a -> b: b::Thing", "b -> a: a::g"]);
    }

    #[test]
    fn a_folder_and_what_lies_in_it_are_one_and_files_beside_folders_are_none() {
        let found = circles_of(&[
            ("x/src/lib.rs", "mod a; mod leaf;"),
            ("x/src/a/mod.rs", "mod b; use self::b::Inner; use crate::leaf::Leaf;"),
            ("x/src/a/b/mod.rs", "use super::Outer; pub struct Inner;"),
            ("x/src/leaf.rs", "use crate::a::Outer;"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn three_folders_in_a_ring_are_a_circle() {
        let ring = |next: &str| format!("use crate::{next}::X;");
        let found = circles_of(&[
            ("x/src/a/mod.rs", &ring("b")),
            ("x/src/b/mod.rs", &ring("c")),
            ("x/src/c/mod.rs", &ring("a")),
        ]);
        assert_eq!(found.len(), 3);
    }
}
