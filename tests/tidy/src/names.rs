//! Paths and items that pages about the code name: each exists.

use crate::{Figure, FoundPlace, SourceFile, SourceTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};
use syn::{
    Field, ImplItemConst, ImplItemFn, Item, ItemImpl, ItemMacro, ItemTrait, Meta, TraitItemFn,
    Type, Variant, visit::Visit,
};

/// Pages whose paths and items are looked up.
const PAGES: [&str; 4] =
    ["docs/ARCHITECTURE.md", "docs/how-to-add.md", "CONTRIBUTING.md", "README.md"];

/// Paths that do not exist and items that are not defined, in the pages about the code.
#[must_use]
pub fn lost(tree: &SourceTree) -> Figure {
    let items = Items::of(tree);
    let mut found = Vec::new();
    for page in PAGES {
        let Ok(text) = fs::read_to_string(tree.root.join(page)) else { continue };
        for (line, code) in spans(&text) {
            let is_there = paths(code).map_or_else(
                || items.have(code),
                |paths| paths.iter().all(|path| tree.root.join(path).exists()),
            );
            if !is_there {
                found.push(FoundPlace { file: page.to_owned(), line, text: code.to_owned() });
            }
        }
    }
    Figure::count("lost", "paths and items that a page names and nobody has", 0.0, found)
}

/// Inline code outside of fenced blocks, with its line.
fn spans(page: &str) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let mut found = Vec::new();
    for (at, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            found.extend(line.split('`').skip(1).step_by(2).map(|code| (at + 1, code)));
        }
    }
    found
}

/// The paths that a piece of code stands for, if it looks like one: `engine/src/{a,b}.rs` is two,
/// and `apps/NAME/src/main.rs` is a template, which is none.
fn paths(code: &str) -> Option<Vec<String>> {
    let roots = ["apps/", "bench/", "docs/", "engine/", "pools/", "protocol/", "tests/"];
    let is_path = roots.iter().any(|root| code.starts_with(root));
    let is_pattern = code.contains(['*', ' ']) || code.split(['/', '.']).any(|part| part == "NAME");
    if !is_path || is_pattern {
        return None;
    }
    let Some((before, rest)) = code.split_once('{') else { return Some(vec![code.to_owned()]) };
    let (inner, after) = rest.split_once('}')?;
    Some(inner.split(',').map(|part| format!("{before}{}{after}", part.trim())).collect())
}

/// Every name that the code defines, with the types that have it.
#[derive(Default)]
struct Items {
    /// Types, traits, macros, functions, constants, modules.
    names: BTreeSet<String>,
    /// Functions, constants, variants and fields of a type, trait or module.
    members: BTreeMap<String, BTreeSet<String>>,
}

impl Items {
    fn of(tree: &SourceTree) -> Self {
        let mut all = Self::default();
        for source in &tree.sources {
            let owner = module_name(&source.path);
            source.visit(&mut ItemDefinitions { items: &mut all, owner });
            all.names.extend(words_of_macros(source));
        }
        all
    }

    /// True if the code names an item that exists, or names no item of ours.
    fn have(&self, code: &str) -> bool {
        let path = code.split(['(', '<', ' ']).next().unwrap_or_default();
        let parts: Vec<&str> = path.split("::").collect();
        let is_word =
            |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
        if code.contains(' ') || !parts.iter().all(is_word) {
            return true;
        }
        match parts.as_slice() {
            [.., owner, name] => {
                let is_foreign =
                    ["std", "core", "alloc", "clap"].contains(parts.first().unwrap_or(&""));
                is_foreign || self.members.get(*owner).is_some_and(|all| all.contains(*name))
            }
            [name] => !is_type_name(name) || self.names.contains(*name) || FOREIGN.contains(name),
            [] => true,
        }
    }
}

/// Names of types of others, which pages may use.
const FOREIGN: [&str; 9] =
    ["Clone", "Debug", "Display", "FromStr", "PartialEq", "Option", "Result", "Vec", "Future"];

fn is_type_name(name: &str) -> bool {
    name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

/// The last module of a file: `a/b.rs` and `a/b/mod.rs` are b, `src/lib.rs` the crate's folder.
fn module_name(path: &str) -> String {
    let parts = path.trim_end_matches(".rs").rsplit('/');
    let mut named = parts.filter(|part| !["mod", "lib", "main", "src"].contains(part));
    named.next().unwrap_or_default().to_owned()
}

/// Names after words like `struct`, `enum` or `trait`: inside macros they are no items yet.
fn words_of_macros(source: &SourceFile) -> impl Iterator<Item = String> {
    let words: Vec<&str> = source
        .text
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|w| !w.is_empty())
        .collect();
    let pairs = words.windows(2).filter_map(|pair| match pair {
        ["struct" | "enum" | "trait" | "type" | "program" | "macro_rules", name] => Some(*name),
        _ => None,
    });
    pairs.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

struct ItemDefinitions<'a> {
    items: &'a mut Items,
    /// The type, trait or module around the place that is visited.
    owner: String,
}

impl ItemDefinitions<'_> {
    fn keep(&mut self, name: String) {
        self.items.members.entry(self.owner.clone()).or_default().insert(name.clone());
        self.items.names.insert(name);
    }

    fn inside(&mut self, owner: String, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = before;
    }
}

impl<'ast> Visit<'ast> for ItemDefinitions<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let ident = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Mod(item) => &item.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            _ => return syn::visit::visit_item(self, item),
        };
        self.keep(ident.to_string());
        self.inside(ident.to_string(), |inner| syn::visit::visit_item(inner, item));
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.keep(item.ident.to_string());
        self.inside(item.ident.to_string(), |inner| syn::visit::visit_item_trait(inner, item));
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let Type::Path(path) = &*item.self_ty else { return };
        let Some(last) = path.path.segments.last() else { return };
        self.inside(last.ident.to_string(), |inner| syn::visit::visit_item_impl(inner, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.keep(item.sig.ident.to_string());
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.keep(item.sig.ident.to_string());
    }

    fn visit_impl_item_const(&mut self, item: &'ast ImplItemConst) {
        self.keep(item.ident.to_string());
    }

    fn visit_variant(&mut self, item: &'ast Variant) {
        self.keep(item.ident.to_string());
    }

    fn visit_field(&mut self, item: &'ast Field) {
        if let Some(ident) = &item.ident {
            self.keep(ident.to_string());
        }
    }

    fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
        if let Some(ident) = &item.ident {
            self.keep(ident.to_string());
        }
    }

    fn visit_meta(&mut self, _: &'ast Meta) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Items {
        let text = "struct Shard; impl Shard { fn pass(&self) {} } enum Form { Short } \
                    mod plan { fn call() {} } trait App { fn on_call(&self); }";
        let source =
            SourceFile::parse("engine/src/shard/mod.rs".to_owned(), text.to_owned()).unwrap();
        Items::of(&SourceTree { root: "/".into(), sources: vec![source] })
    }

    #[test]
    fn items_are_found_by_their_owner() {
        let items = items();
        for there in ["Shard::pass", "Form::Short", "plan::call", "App::on_call", "shard::Shard"] {
            assert!(items.have(there), "{there}");
        }
        for lost in ["Shard::on_call", "Form::Long", "Nothing", "plan::pass", "shard::Nothing"] {
            assert!(!items.have(lost), "{lost}");
        }
    }

    #[test]
    fn commands_and_numbers_are_no_items() {
        let items = items();
        for other in
            ["cargo test", "--listen", "AUTH_SYS", "0x20", "std::mem::drop", "Shard::pass()"]
        {
            assert!(items.have(other), "{other}");
        }
    }

    #[test]
    fn a_path_with_braces_is_several() {
        let both = paths("engine/src/{a,b}.rs").unwrap();
        assert_eq!(both, ["engine/src/a.rs", "engine/src/b.rs"]);
        assert_eq!(paths("engine/src/*.rs"), None);
        assert_eq!(paths("apps/NAME/src/NAME.rs"), None);
        assert_eq!(paths("docs/README"), Some(vec!["docs/README".to_owned()]));
        assert_eq!(paths("Shard::pass"), None);
    }

    #[test]
    fn code_in_fences_is_left_out() {
        let page = "a `b`\n```\n`c`\n```\n`d` and `e`\n";
        assert_eq!(spans(page), [(1, "b"), (5, "d"), (5, "e")]);
    }
}
