//! Names and shapes of types: names with two meanings, parameters packed into tuples, and lookups
//! that cannot fail because the entry was found just before.

use crate::{Figure, FoundPlace, SourceFile, SourceTree};
use std::collections::BTreeMap;
use syn::{
    Expr, ExprMethodCall, FnArg, Ident, Item, ItemMod, Signature, Type, spanned::Spanned,
    visit::Visit,
};

/// Definitions of types and traits whose name is defined elsewhere too.
#[must_use]
pub fn shared_names(tree: &SourceTree) -> Figure {
    let mut by_name: BTreeMap<String, Vec<FoundPlace>> = BTreeMap::new();
    for source in tree.code() {
        let mut visitor = TypeDefinitions { source, by_name: &mut by_name };
        source.visit(&mut visitor);
    }
    let all = by_name.values().map(Vec::len).sum();
    let shared = by_name.into_values().filter(|places| places.len() > 1).flatten().collect();
    let about = "definitions of types whose name is defined elsewhere too";
    Figure::share("shared-names", about, 15.0, shared, all)
}

/// Parameters of functions that are tuples.
#[must_use]
pub fn packed_parameters(tree: &SourceTree) -> Figure {
    let mut found = Vec::new();
    for source in tree.code() {
        source.visit(&mut Packed { source, found: &mut found });
    }
    Figure::count("packed", "functions with a tuple as parameter", 0.0, found)
}

/// `expect`s directly after a lookup: the entry could have been kept when it was found.
#[must_use]
pub fn refound(tree: &SourceTree) -> Figure {
    let mut found = Vec::new();
    for source in tree.code() {
        source.visit(&mut Refound { source, found: &mut found });
    }
    Figure::count("refound", "lookups with `expect` behind them", REFOUND_MAX, found)
}

/// Lookups whose entry another structure promises; each has the promise as its text.
const REFOUND_MAX: f64 = 86.0;

/// True for `#[cfg(test)] mod …`.
pub(crate) fn is_test_module(module: &ItemMod) -> bool {
    module.attrs.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

fn found(source: &SourceFile, ident: &Ident) -> FoundPlace {
    FoundPlace {
        file: source.path.clone(),
        line: ident.span().start().line,
        text: ident.to_string(),
    }
}

struct TypeDefinitions<'a> {
    source: &'a SourceFile,
    by_name: &'a mut BTreeMap<String, Vec<FoundPlace>>,
}

impl<'ast> Visit<'ast> for TypeDefinitions<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let ident = match item {
            Item::Struct(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            Item::Mod(module) if is_test_module(module) => return,
            _ => None,
        };
        if let Some(ident) = ident {
            let place = found(self.source, ident);
            self.by_name.entry(ident.to_string()).or_default().push(place);
        }
        syn::visit::visit_item(self, item);
    }
}

struct Packed<'a> {
    source: &'a SourceFile,
    found: &'a mut Vec<FoundPlace>,
}

impl<'ast> Visit<'ast> for Packed<'_> {
    fn visit_signature(&mut self, signature: &'ast Signature) {
        let is_packed = |input: &FnArg| match input {
            FnArg::Typed(typed) => is_tuple(&typed.ty),
            FnArg::Receiver(_) => false,
        };
        if signature.inputs.iter().any(is_packed) {
            self.found.push(found(self.source, &signature.ident));
        }
        syn::visit::visit_signature(self, signature);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test_module(module) {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

fn is_tuple(ty: &Type) -> bool {
    match ty {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

struct Refound<'a> {
    source: &'a SourceFile,
    found: &'a mut Vec<FoundPlace>,
}

impl<'ast> Visit<'ast> for Refound<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method == "expect"
            && let Expr::MethodCall(inner) = &*call.receiver
            && ["get", "get_mut"].iter().any(|name| inner.method == name)
        {
            let text = call.args.first().map_or_else(String::new, |text| {
                let mut lines = self.source.text.lines();
                let line = lines.nth(text.span().start().line.saturating_sub(1));
                line.unwrap_or_default().trim().to_owned()
            });
            let line = call.method.span().start().line;
            self.found.push(FoundPlace { file: self.source.path.clone(), line, text });
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test_module(module) {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> SourceTree {
        let parse = |(path, text): &(&str, &str)| {
            SourceFile::parse((*path).to_owned(), (*text).to_owned()).unwrap()
        };
        SourceTree { root: "/".into(), sources: files.iter().map(parse).collect() }
    }

    #[test]
    fn a_name_that_stands_twice_counts_twice_and_tests_do_not_count() {
        let figure = shared_names(&tree(&[
            ("a/src/lib.rs", "struct Place; enum Kind {} mod inner { struct Place; }"),
            ("b/src/lib.rs", "trait Kind {} type Own = u8; #[cfg(test)] struct Own;"),
            ("b/tests/x.rs", "struct Own;"),
        ]));
        assert_eq!(figure.value, 80.0);
        assert_eq!(figure.found.len(), 4);
    }

    #[test]
    fn a_tuple_among_the_parameters_is_found_and_a_slice_of_tuples_is_none() {
        let text = "fn a((x, y): (u8, u8)) {} fn b(x: &(u8, u8)) {} fn c(x: &[(u8, u8)], y: ()) {}";
        let figure = packed_parameters(&tree(&[("a/src/lib.rs", text)]));
        assert_eq!(figure.found.iter().map(|f| f.text.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn an_expect_behind_a_lookup_is_found() {
        let text = "fn a() { t.get(1).expect(\"found above\"); s.parse().expect(\"a number\"); }";
        assert_eq!(refound(&tree(&[("a/src/lib.rs", text)])).found.len(), 1);
    }
}
