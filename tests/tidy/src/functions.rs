//! Lengths of functions: lines with code, from the signature to the closing brace.

use crate::{Figure, FoundPlace, SourceFile, SourceTree};
use syn::{
    Block, ImplItemFn, ItemFn, ItemMod, Signature, TraitItemFn, spanned::Spanned, visit::Visit,
};

/// A function and its length.
#[derive(Debug)]
pub struct Function {
    /// Place and name.
    pub found: FoundPlace,
    /// Lines with code.
    pub lines: usize,
}

/// Every function of the code, tests left out.
#[must_use]
pub fn of(tree: &SourceTree) -> Vec<Function> {
    let mut all = Vec::new();
    for source in tree.code().filter(|source| !is_table(&source.path)) {
        let mut visitor = Functions { source, all: &mut all };
        source.visit(&mut visitor);
    }
    all
}

/// True for tables of cases, in which a function is as long as it has rows.
pub(crate) fn is_table(path: &str) -> bool {
    TABLES.iter().any(|table| path.starts_with(table))
}

const TABLES: [&str; 2] = ["tests/hostile/src/defects/", "tests/hostile/src/requester/"];

/// The length that `percent` of all functions do not exceed.
#[must_use]
pub fn percentile(functions: &[Function], percent: usize) -> Figure {
    let mut lengths: Vec<usize> = functions.iter().map(|function| function.lines).collect();
    lengths.sort_unstable();
    let last = lengths.len().saturating_sub(1);
    let at = (lengths.len() * percent).div_ceil(100).saturating_sub(1).min(last);
    let value = lengths.get(at).copied().unwrap_or_default();
    Figure {
        name: "function-length",
        about: "95 % of all functions are not longer",
        value: crate::figure::count(value),
        unit: "lines",
        limit: 30.0,
        found: listed(functions.iter().filter(|function| function.lines > 30)),
    }
}

/// The share of functions of more than 70 lines, and the number of those above 80, of which there
/// are none.
#[must_use]
pub fn long(functions: &[Function]) -> [Figure; 2] {
    let over = |lines| listed(functions.iter().filter(move |function| function.lines > lines));
    let (some, all) = ("functions of more than 70 lines", functions.len());
    [
        Figure::share("long-functions", some, 0.15, over(70), all),
        Figure::count("longest-functions", "functions of more than 80 lines", 0.0, over(80)),
    ]
}

fn listed<'a>(functions: impl Iterator<Item = &'a Function>) -> Vec<FoundPlace> {
    let mut found: Vec<&Function> = functions.collect();
    found.sort_by_key(|function| std::cmp::Reverse(function.lines));
    let named = |function: &&Function| {
        let text = format!("{} ({} lines)", function.found.text, function.lines);
        FoundPlace { text, ..function.found.clone() }
    };
    found.iter().map(named).collect()
}

struct Functions<'a> {
    source: &'a SourceFile,
    all: &'a mut Vec<Function>,
}

impl Functions<'_> {
    fn keep(&mut self, signature: &Signature, block: &Block) {
        let first = signature.span().start().line;
        let last = block.span().end().line;
        let text = self.source.text.lines().skip(first.saturating_sub(1));
        let is_code = |line: &&str| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        };
        let lines = text.take(last + 1 - first).filter(is_code).count();
        let found = FoundPlace {
            file: self.source.path.clone(),
            line: first,
            text: signature.ident.to_string(),
        };
        self.all.push(Function { found, lines });
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.keep(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.keep(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.keep(&function.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !crate::types::is_test_module(module) {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_do_not_count() {
        let text = "fn a(\n    b: u8,\n) {\n    // why\n\n    b;\n}\nfn c() {}\n";
        let source = SourceFile::parse("a.rs".to_owned(), text.to_owned()).unwrap();
        let tree = SourceTree { root: "/".into(), sources: vec![source] };
        let lengths: Vec<usize> = of(&tree).iter().map(|function| function.lines).collect();
        assert_eq!(lengths, [5, 1]);
        assert_eq!(percentile(&of(&tree), 95).value, 5.0);
        assert_eq!(percentile(&[], 95).value, 0.0);
    }
}
