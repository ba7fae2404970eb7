//! Rooms of a crate that import each other, and layers.
//!
//! A room is a module at the top of a crate, a file or a folder; `v4` of the gateway has rooms,
//! too. An arrow is a `use`, or a path in the code, from a file of one room or folder to an item of
//! a sibling. A module and the modules in it belong together, and a name that a module takes from
//! another one stands for the module that it comes from.

use crate::{Figure, FoundPlace, SourceFile, SourceTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, ItemMod, ItemUse, UseTree, visit::Visit};

type ModulePath = Vec<String>;
type Arrows = BTreeMap<String, BTreeMap<String, FoundPlace>>;
type Exports = BTreeMap<ModulePath, BTreeMap<String, ModulePath>>;

/// Arrows between sibling folders that are part of a circle.
#[must_use]
pub fn circles(tree: &SourceTree) -> Figure {
    let all = |base: &str, sources: &[&SourceFile]| {
        sources.iter().flat_map(|source| folders(base, source)).collect()
    };
    let about = "imports between folders that go in a circle";
    Figure::count("circles", about, 0.0, in_circles(tree, &all))
}

/// Arrows between rooms, files or folders, that are part of a circle.
#[must_use]
pub fn room_circles(tree: &SourceTree) -> Figure {
    let all = |base: &str, sources: &[&SourceFile]| {
        sources.iter().filter_map(|source| room(&module(base, &source.path))).collect()
    };
    let about = "imports between rooms of a crate, files or folders, that go in a circle";
    Figure::count("room-circles", about, ROOM_CIRCLES_MAX, in_circles(tree, &all))
}

/// Circles that are left: the state tables of version 4 and the ibverbs provider, where methods of
/// one type stand in many files, and small ones. The engine, the gateway, its stores, the command
/// line and the load generator have none.
const ROOM_CIRCLES_MAX: f64 = 200.0;

/// Rooms of the gateway's version 4, from the top down.
const LAYERS: [&str; 11] = [
    "administration",
    "shards",
    "interpreter",
    "op",
    "v3_conflicts",
    "local",
    "attributes",
    "callbacks",
    "context",
    "recovery",
    "session",
];
const LAYERED: &str = "apps/nfs/src/";

/// Arrows of the gateway's version 4 that go upwards in the list of its layers, or to a room that
/// has no layer.
#[must_use]
pub fn upward(tree: &SourceTree) -> Figure {
    let mut sources = Vec::new();
    sources.extend(tree.code().filter(|source| source.path.starts_with(LAYERED)));
    let rooms = sources.iter().filter_map(|source| room(&module(LAYERED, &source.path))).collect();
    let mut found = Vec::new();
    for (from, targets) in arrows(LAYERED, &sources, &rooms) {
        let layer = |room: &str| {
            let room = room.strip_prefix("v4/")?;
            Some(LAYERS.iter().position(|layer| *layer == room))
        };
        for (to, place) in targets {
            let (Some(above), Some(below)) = (layer(&from), layer(&to)) else { continue };
            if above.is_none() || below.is_none() || above > below {
                found.push(FoundPlace { text: format!("{from} -> {to}: {}", place.text), ..place });
            }
        }
    }
    Figure::count("upward", "imports of the gateway's v4 that go upwards", 0.0, found)
}

/// The room of a module.
fn room(module: &ModulePath) -> Option<String> {
    let depth = if module.first().is_some_and(|top| top == "v4") { 2 } else { 1 };
    module.get(..depth).map(|parts| parts.join("/"))
}

/// Arrows that are part of a circle, between the nodes that `nodes` finds in each crate.
fn in_circles(
    tree: &SourceTree,
    nodes: &dyn Fn(&str, &[&SourceFile]) -> BTreeSet<String>,
) -> Vec<FoundPlace> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for source in tree.code() {
        if let Some((name, _)) = source.path.split_once("src/") {
            crates.entry(name).or_default().push(source);
        }
    }
    let mut found = Vec::new();
    for (name, sources) in crates {
        let base = format!("{name}src/");
        let arrows = arrows(&base, &sources, &nodes(&base, &sources));
        for (from, targets) in &arrows {
            let back = targets.iter().filter(|(to, _)| reaches(&arrows, to, from));
            found.extend(back.map(|(to, place)| FoundPlace {
                text: format!("{from} -> {to}: {}", place.text),
                ..place.clone()
            }));
        }
    }
    found
}

/// One arrow for each pair of sibling nodes, with its first place.
fn arrows(base: &str, sources: &[&SourceFile], nodes: &BTreeSet<String>) -> Arrows {
    let modules: Vec<ModulePath> =
        sources.iter().map(|source| module(base, &source.path)).collect();
    let known: BTreeSet<&ModulePath> = modules.iter().collect();
    let taken = sources.iter().zip(&modules);
    let exports: Exports =
        taken.map(|(source, module)| (module.clone(), exports(source, module, &known))).collect();
    let mut arrows = Arrows::new();
    for (source, module) in sources.iter().zip(&modules) {
        let mut paths = Paths { module: module.clone(), found: Vec::new() };
        source.visit(&mut paths);
        for (line, target) in paths.found {
            let target = through(&exports, target);
            let Some((from, to)) = siblings(nodes, module, &target) else { continue };
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

/// Names that a module takes from others, with their places.
fn exports(
    source: &SourceFile,
    module: &ModulePath,
    known: &BTreeSet<&ModulePath>,
) -> BTreeMap<String, ModulePath> {
    let mut all = BTreeMap::new();
    for item in &source.items {
        if let Item::Use(item) = item {
            for path in leaves(&item.tree, &ModulePath::new()) {
                let child = || -> ModulePath {
                    module.iter().cloned().chain(path.first().cloned()).collect()
                };
                let target = match path.first().map(String::as_str) {
                    Some("crate" | "self" | "super") => absolute(module, &path),
                    Some(_) if known.contains(&child()) => {
                        module.iter().chain(&path).cloned().collect()
                    }
                    _ => continue,
                };
                if let Some(name) = path.last().filter(|_| target != *module) {
                    all.insert(name.clone(), target);
                }
            }
        }
    }
    all
}

/// The place of a name that modules take from one another.
fn through(exports: &Exports, mut target: ModulePath) -> ModulePath {
    // Few names pass through more modules; a circle of names would not end.
    for _ in 0..8 {
        let taken = (0..target.len()).rev().find_map(|at| {
            let (module, rest) = target.split_at_checked(at)?;
            let (name, rest) = rest.split_first()?;
            let found = exports.get(module)?.get(name)?;
            Some(found.iter().chain(rest).cloned().collect())
        });
        match taken {
            Some(further) if further != target => target = further,
            _ => break,
        }
    }
    target
}

/// The two nodes at which the paths of two modules part.
fn siblings(
    nodes: &BTreeSet<String>,
    from: &ModulePath,
    to: &ModulePath,
) -> Option<(String, String)> {
    let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let upto = |path: &ModulePath| path.get(..=same).map(|parts| parts.join("/"));
    let (from, to) = (upto(from)?, upto(to)?);
    (nodes.contains(&from) && nodes.contains(&to)).then_some((from, to))
}

/// A path of this crate, from its root.
fn absolute(module: &ModulePath, path: &[String]) -> ModulePath {
    let mut base = match path.first().map(String::as_str) {
        Some("crate") => ModulePath::new(),
        _ => module.clone(),
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(base.pop()),
            name => base.push(name.to_owned()),
        }
    }
    base
}

/// The paths of this crate that a file names, from the crate's root.
struct Paths {
    module: ModulePath,
    found: Vec<(usize, ModulePath)>,
}

impl Paths {
    fn keep(&mut self, line: usize, path: &[String]) {
        if matches!(path.first().map(String::as_str), Some("crate" | "self" | "super")) {
            self.found.push((line, absolute(&self.module, path)));
        }
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
        circles(&tree_of(files)).found.into_iter().map(|found| found.text).collect()
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

    fn tree_of(files: &[(&str, &str)]) -> SourceTree {
        let parse = |(path, text): &(&str, &str)| {
            SourceFile::parse((*path).to_owned(), (*text).to_owned()).unwrap()
        };
        SourceTree { root: "/".into(), sources: files.iter().map(parse).collect() }
    }

    #[test]
    fn files_at_the_top_of_a_crate_are_rooms_and_a_name_stands_for_its_place() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "use crate::b::Thing;"),
            ("x/src/b.rs", "pub use crate::c::Thing;"),
            ("x/src/c.rs", "pub struct Thing; fn f() { crate::a::g(); }"),
        ];
        let found = room_circles(&tree_of(&files)).found;
        let found: Vec<_> = found.iter().map(|place| place.text.as_str()).collect();
        assert_eq!(found, ["a -> c: c::Thing", "c -> a: a::g"]);
    }

    #[test]
    fn an_import_to_a_higher_layer_or_to_no_layer_is_found() {
        let found = upward(&tree_of(&[
            ("apps/nfs/src/v4/mod.rs", "mod op; mod session; mod other; pub use op::Thing;"),
            ("apps/nfs/src/v4/op/mod.rs", "use super::session::Client;"),
            ("apps/nfs/src/v4/session/table.rs", "use crate::v4::Thing; use super::Client;"),
            ("apps/nfs/src/v4/other.rs", "use super::session::Client;"),
        ]));
        let found: Vec<_> = found.found.into_iter().map(|place| place.text).collect();
        let other = "v4/other -> v4/session: v4::session::Client";
        assert_eq!(found, [other, "v4/session -> v4/op: v4::op::Thing"]);
    }

    #[test]
    fn three_folders_in_a_ring_are_a_circle() {
        let ring = |own: &str, next: &str| format!("use crate::{next}::In{next}; struct In{own};");
        let found = circles_of(&[
            ("x/src/a/mod.rs", &ring("a", "b")),
            ("x/src/b/mod.rs", &ring("b", "c")),
            ("x/src/c/mod.rs", &ring("c", "a")),
        ]);
        assert_eq!(found.len(), 3);
    }
}
