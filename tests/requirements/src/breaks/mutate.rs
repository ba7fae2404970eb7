//! The ways to break a line: small changes of its text, found in its syntax tree and applied to its
//! octets.
//!
//! Order: changes that remove the line's effect (a condition that never holds, a statement or an
//! arm that is gone), then operators, constants and calls within it from the outside to the
//! inside, and last changes that only the compiler can judge.

use super::operators;
use proc_macro2::Span;
use std::ops::Range;
use syn::{
    Arm, Expr, ExprIf, ExprMacro, ExprMatch, FieldValue, ImplItem, Item, Local, Macro, Pat, Stmt,
    TraitItem, Variant, punctuated::Punctuated, spanned::Spanned, visit, visit::Visit,
};

/// One change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The octets that go.
    pub range: Range<usize>,
    /// The text in their place.
    pub to: String,
    /// The kind of change, in a few words.
    pub why: &'static str,
}

impl Mutation {
    /// The file's text with the change in it.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        let before = text.get(..self.range.start).unwrap_or_default();
        let after = text.get(self.range.end..).unwrap_or_default();
        format!("{before}{}{after}", self.to)
    }

    /// The change in one line: the text before, and the text after.
    #[must_use]
    pub fn describe(&self, text: &str) -> String {
        let from = shorten(text.get(self.range.clone()).unwrap_or_default());
        if self.to.is_empty() || self.to == "{}" {
            return format!("without `{from}`");
        }
        format!("`{from}` → `{}`", shorten(&self.to))
    }
}

/// Text in one line, of at most 80 characters.
fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= 80 {
        return line;
    }
    line.chars()
        .take(60)
        .chain(" … ".chars())
        .chain(line.chars().skip(line.chars().count() - 17))
        .collect()
}

/// Ways to break what begins at `line` (counted from 1) of a file, the most telling first.
///
/// # Errors
///
/// A file that is no Rust, with the compiler's words.
pub fn mutations(text: &str, line: usize) -> Result<Vec<Mutation>, String> {
    let file = syn::parse_file(text).map_err(|error| error.to_string())?;
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = text.get(before..).unwrap_or_default();
    let at = before + (rest.len() - rest.trim_start().len());
    let mut finder = Finder { at, ways: Ways::new(text), is_found: false };
    finder.visit_file(&file);
    Ok(finder.ways.in_order())
}

/// Changes found so far.
pub(super) struct Ways<'t> {
    text: &'t str,
    found: Vec<Mutation>,
    last: Vec<Mutation>,
}

impl<'t> Ways<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, found: Vec::new(), last: Vec::new() }
    }

    /// The text of a part of the tree.
    pub(super) fn text(&self, part: &impl Spanned) -> &'t str {
        self.text.get(part.span().byte_range()).unwrap_or_default()
    }

    /// The text of the whole file.
    pub(super) fn file(&self) -> &'t str {
        self.text
    }

    /// `part` becomes `to`.
    pub(super) fn put(&mut self, part: &impl Spanned, to: impl Into<String>, why: &'static str) {
        self.cut(part.span().byte_range(), to, why);
    }

    /// From the start of one part to the end of another becomes `to`.
    pub(super) fn span(
        &mut self,
        from: Span,
        until: Span,
        to: impl Into<String>,
        why: &'static str,
    ) {
        self.cut(from.byte_range().start..until.byte_range().end, to, why);
    }

    fn cut(&mut self, range: Range<usize>, to: impl Into<String>, why: &'static str) {
        self.found.push(Mutation { range, to: to.into(), why });
    }

    /// As [`Ways::put`], for changes that are tried when no others are left.
    fn put_last(&mut self, part: &impl Spanned, to: impl Into<String>, why: &'static str) {
        self.last.push(Mutation { range: part.span().byte_range(), to: to.into(), why });
    }

    fn in_order(self) -> Vec<Mutation> {
        let mut all: Vec<Mutation> = Vec::new();
        for way in self.found.into_iter().chain(self.last) {
            let is_change = self.text.get(way.range.clone()).is_some_and(|old| old != way.to);
            if is_change && !all.iter().any(|other| other.range == way.range && other.to == way.to)
            {
                all.push(way);
            }
        }
        all
    }
}

/// Looks for the outermost part of the tree that begins at an octet, and asks it for its ways to
/// break.
struct Finder<'t> {
    at: usize,
    ways: Ways<'t>,
    is_found: bool,
}

impl Finder<'_> {
    /// Says if a part begins at `at` and is the first that does.
    fn is_it(&mut self, span: Span) -> bool {
        let start = span.byte_range().start;
        let is_it =
            !self.is_found && start <= self.at && (start == self.at || self.bare(start) == self.at);
        self.is_found |= is_it;
        is_it
    }

    /// The place at which a part begins after its documentation and attributes, which belong to
    /// it.
    fn bare(&self, start: usize) -> usize {
        let mut rest = self.ways.file().get(start..self.at).unwrap_or_default();
        if !rest.starts_with(['/', '#']) {
            return start;
        }
        while rest.starts_with("//") || rest.starts_with("#[") {
            let end = if rest.starts_with("//") {
                rest.find('\n')
            } else {
                rest.find("]\n").map(|at| at + 1)
            };
            rest = end.and_then(|end| rest.get(end..)).unwrap_or_default().trim_start();
        }
        self.at - rest.len()
    }

    /// Says if `at` is within a part.
    fn is_around(&self, part: &impl Spanned) -> bool {
        !self.is_found && part.span().byte_range().contains(&self.at)
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item(&mut self, item: &'ast Item) {
        if self.is_it(item.span()) {
            self.ways.visit_item(item);
        } else if self.is_around(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if self.is_it(item.span()) {
            self.ways.visit_impl_item(item);
        } else if self.is_around(item) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if self.is_it(item.span()) {
            self.ways.visit_trait_item(item);
        } else if self.is_around(item) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_variant(&mut self, variant: &'ast Variant) {
        if self.is_it(variant.span()) {
            self.ways.visit_variant(variant);
        } else {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if self.is_it(statement.span()) {
            self.ways.visit_stmt(statement);
            self.ways.value_of_statement(statement);
        } else if self.is_around(statement) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_expr_match(&mut self, table: &'ast ExprMatch) {
        for arm in &table.arms {
            if self.is_it(arm.span()) {
                self.ways.arm_of(table, arm);
                self.ways.value(&arm.body);
            }
        }
        visit::visit_expr_match(self, table);
    }

    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        if self.is_it(field.span()) {
            self.ways.visit_expr(&field.expr);
            self.ways.value(&field.expr);
        } else {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let begins_inside = match expression {
            Expr::MethodCall(call) => Some(call.dot_token.span()),
            Expr::Binary(binary) => Some(binary.op.span()),
            _ => None,
        };
        if self.is_it(expression.span()) {
            self.ways.visit_expr(expression);
            self.ways.value(expression);
        } else if begins_inside.is_some_and(|span| self.is_it(span)) {
            // The rest of a chain that is broken into lines: the part before belongs to
            // another line.
            operators::expression(&mut self.ways, expression);
            match expression {
                Expr::MethodCall(call) => {
                    call.args.iter().for_each(|part| self.ways.visit_expr(part))
                }
                Expr::Binary(binary) => self.ways.visit_expr(&binary.right),
                _ => {}
            }
        } else if self.is_around(expression) {
            visit::visit_expr(self, expression);
        }
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        for part in parts_of(invoked) {
            part.visit(self);
        }
        if self.is_around(invoked) {
            let rest = self.ways.file().get(self.at..).unwrap_or_default();
            let line = self.at..self.at + rest.find('\n').unwrap_or(rest.len());
            operators::tokens(&mut self.ways, invoked.tokens.clone(), &line);
        }
    }
}

/// An argument of a macro that is Rust by itself.
enum MacroArgument {
    Expr(Expr),
    Pat(Pat),
}

impl MacroArgument {
    fn visit<V>(&self, visitor: &mut V)
    where
        V: for<'a> Visit<'a>,
    {
        match self {
            Self::Expr(part) => visitor.visit_expr(part),
            Self::Pat(part) => visitor.visit_pat(part),
        }
    }
}

/// Expressions with commas between them, or an expression and a pattern as `matches!` has them, or
/// nothing.
fn parts_of(invoked: &Macro) -> Vec<MacroArgument> {
    if invoked.path.is_ident("matches") {
        let matches = |input: syn::parse::ParseStream<'_>| {
            let value: Expr = input.parse()?;
            input.parse::<syn::Token![,]>()?;
            let pattern = Pat::parse_multi_with_leading_vert(input)?;
            let mut parts = vec![MacroArgument::Expr(value), MacroArgument::Pat(pattern)];
            if input.parse::<Option<syn::Token![if]>>()?.is_some() {
                parts.push(MacroArgument::Expr(input.parse()?));
            }
            input.parse::<Option<syn::Token![,]>>()?;
            Ok(parts)
        };
        return invoked.parse_body_with(matches).unwrap_or_default();
    }
    let list = Punctuated::<Expr, syn::Token![,]>::parse_terminated;
    invoked
        .parse_body_with(list)
        .map_or_else(|_| Vec::new(), |list| list.into_iter().map(MacroArgument::Expr).collect())
}

impl Ways<'_> {
    /// Adds changes that fit some types only, which the compiler sorts out: the opposite of a
    /// truth, the next number, a type's default.
    fn value(&mut self, expression: &Expr) {
        let text = self.text(expression);
        if matches!(
            expression,
            Expr::Block(_) | Expr::If(_) | Expr::Match(_) | Expr::Return(_) | Expr::Lit(_)
        ) {
            return;
        }
        self.put_last(expression, format!("!({text})"), "the opposite");
        self.put_last(expression, "Default::default()", "the usual value instead");
        // The same where nothing but the expression says what type it has.
        let typed = format!("{{ let mut it = {text}; it = Default::default(); it }}");
        self.put_last(expression, typed, "the usual value instead");
    }

    fn value_of_statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Expr(expression, None) => self.value(expression),
            Stmt::Local(Local { init: Some(init), .. }) => self.value(&init.expr),
            _ => {}
        }
    }

    /// An arm: its guard never holds, it is gone, or it does what another arm does.
    fn arm_of(&mut self, table: &ExprMatch, arm: &Arm) {
        if let Pat::Guard(guarded) = &arm.pat {
            let guard = self.text(&guarded.guard);
            self.put(&guarded.guard, format!("false && ({guard})"), "a guard that never holds");
        }
        self.put(arm, "", "an arm less");
        let others = table
            .arms
            .iter()
            .rev()
            .filter(|other| other.span().byte_range() != arm.span().byte_range());
        let bodies: Vec<_> = others.map(|other| self.text(&other.body)).collect();
        for body in bodies.into_iter().take(2) {
            self.put(&arm.body, body, "another arm's answer");
        }
        self.visit_arm(arm);
    }

    fn condition(&mut self, choice: &ExprIf) {
        let mut has_let = HasLet(false);
        has_let.visit_expr(&choice.cond);
        if has_let.0 {
            if choice.else_branch.is_none() {
                self.put(choice, "{}", "a branch less");
            }
            return;
        }
        let condition = self.text(&*choice.cond);
        self.put(&*choice.cond, format!("false && ({condition})"), "a condition that never holds");
        self.put(&*choice.cond, format!("true || ({condition})"), "a condition that always holds");
    }
}

/// Set when a condition binds names.
struct HasLet(bool);

impl<'ast> Visit<'ast> for HasLet {
    fn visit_expr_let(&mut self, _: &'ast syn::ExprLet) {
        self.0 = true;
    }
}

impl<'ast> Visit<'ast> for Ways<'_> {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        match statement {
            Stmt::Expr(Expr::Try(tried), Some(_)) => {
                let inner = self.text(&*tried.expr);
                self.put(statement, format!("let _ = {inner};"), "an error dropped");
                self.put(statement, "", "a statement less");
            }
            Stmt::Expr(
                Expr::Return(_)
                | Expr::Assign(_)
                | Expr::Binary(_)
                | Expr::Call(_)
                | Expr::MethodCall(_)
                | Expr::Break(_)
                | Expr::Continue(_)
                | Expr::Macro(_),
                Some(_),
            )
            | Stmt::Expr(Expr::ForLoop(_) | Expr::While(_), _) => {
                self.put(statement, "", "a statement less")
            }
            Stmt::Macro(invoked) if invoked.semi_token.is_some() => {
                self.put(statement, "", "a statement less")
            }
            Stmt::Local(local) => operators::swap_in_pattern(self, &local.pat),
            _ => {}
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        if let Expr::If(choice) = expression {
            self.condition(choice);
        }
        operators::expression(self, expression);
        visit::visit_expr(self, expression);
    }

    fn visit_expr_match(&mut self, table: &'ast ExprMatch) {
        self.visit_expr(&table.expr);
        table.arms.iter().for_each(|arm| self.arm_of(table, arm));
    }

    fn visit_pat(&mut self, pattern: &'ast Pat) {
        if let Pat::Lit(number) = pattern {
            operators::literal(self, &number.lit);
        }
        visit::visit_pat(self, pattern);
    }

    fn visit_expr_macro(&mut self, called: &'ast ExprMacro) {
        if called.mac.path.is_ident("matches") {
            let text = self.text(called);
            self.put(called, format!("!{text}"), "the opposite");
        }
        visit::visit_expr_macro(self, called);
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        for part in parts_of(invoked) {
            part.visit(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with each change of its marked line applied.
    fn ways(text: &str) -> Vec<String> {
        let line = 1 + text.lines().position(|line| line.ends_with("//!!")).unwrap();
        let text = text.replace("//!!", "");
        let applied = |way: &Mutation| {
            let whole = way.apply(&text);
            let (before, after) =
                (text.get(..way.range.start).unwrap(), text.get(way.range.end..).unwrap());
            assert!(whole.starts_with(before) && whole.ends_with(after), "{way:?}");
            whole
        };
        let all = mutations(&text, line).unwrap();
        let found: Vec<String> = all.iter().map(applied).collect();
        found.iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    /// Ways to break one statement in a function.
    fn of(statement: &str) -> Vec<String> {
        let (first, rest) = statement.split_once('\n').unwrap_or((statement, ""));
        let found = ways(&format!("fn f() {{\n{first} //!!\n{rest}\n}}\n"));
        let inner = |text: &String| {
            text.strip_prefix("fn f() { ").unwrap().strip_suffix('}').unwrap().trim().to_owned()
        };
        found.iter().map(inner).collect()
    }

    fn has(statement: &str, broken: &[&str]) {
        let found = of(statement);
        for one in broken {
            assert!(found.iter().any(|way| way == one), "{statement}: no '{one}' in {found:#?}");
        }
    }

    fn first(statement: &str, broken: &str) {
        assert_eq!(of(statement).first().map(String::as_str), Some(broken), "{statement}");
    }

    #[test]
    fn a_condition_never_holds_or_always_or_turns() {
        first("if a { b() }", "if false && (a) { b() }");
        has(
            "if a < 3 { b() }",
            &["if true || (a < 3) { b() }", "if a <= 3 { b() }", "if a >= 3 { b() }"],
        );
        has("if !a { b() }", &["if a { b() }"]);
    }

    #[test]
    fn a_branch_that_binds_a_name_goes_as_a_whole() {
        first("if let Some(a) = b {\nc(a);\n}", "{}");
        has("if let Some(a) = b && a > 1 { c(a) }", &["if let Some(a) = b { c(a) }"]);
    }

    #[test]
    fn statements_go() {
        first("a.b(1);", "");
        first("return Err(c);", "");
        first("a += 1;", "");
        first("assert!(a == 1);", "");
        has("assert!(a == 1);", &["assert!(a != 1);"]);
        has("for a in b { c(a); }", &["", "for a in b { }"]);
    }

    #[test]
    fn an_error_is_dropped() {
        first("a.b()?;", "let _ = a.b();");
    }

    #[test]
    fn operators_become_others_or_lose_a_side() {
        for (from, to) in [
            ("==", "!="),
            ("!=", "=="),
            ("<", "<="),
            ("<=", "<"),
            (">", ">="),
            (">=", ">"),
            ("+", "-"),
            ("-", "+"),
            ("*", "+"),
            ("/", "*"),
            ("%", "/"),
            ("&", "|"),
            ("|", "&"),
            ("<<", ">>"),
            (">>", "<<"),
        ] {
            has(&format!("let c = a {from} b;"), &[&format!("let c = a {to} b;")]);
        }
        for (from, to) in [("+=", "-="), ("-=", "+="), ("&=", "|="), ("|=", "&=")] {
            has(&format!("a {from} b;"), &[&format!("a {to} b;"), ""]);
        }
        for sided in ["&&", "||", "&", "|", "%"] {
            has(&format!("let c = a {sided} b;"), &["let c = a ;", "let c = b;"]);
        }
    }

    #[test]
    fn constants_move_and_truths_turn() {
        has("let a = 0x10u8;", &["let a = 17u8;", "let a = 15u8;"]);
        assert!(!of("let a = 0;").iter().any(|way| way.contains('-')), "nothing is below zero");
        has("let a = true;", &["let a = false;"]);
        has("let a = b\"key\";", &["let a = b\"~ey\";"]);
        has("let a = LEN;", &["let a = (LEN + 1);", "let a = (LEN - 1);"]);
        has("let a = b(Kind::One, Kind::Two);", &["let a = b(Kind::Two, Kind::Two);"]);
    }

    #[test]
    fn calls_become_their_opposites_or_go() {
        has("let a = b.min(c);", &["let a = b.max(c);", "let a = b;"]);
        has("let a = b.to_be_bytes();", &["let a = b.to_le_bytes();"]);
        has("let a = b.is_empty();", &["let a = !b.is_empty();"]);
        has(
            "let a = b.then_some(c);",
            &["let a = (true || b).then_some(c);", "let a = (false && b).then_some(c);"],
        );
        has("let a = u16::from_be_bytes(b);", &["let a = u16::from_le_bytes(b);"]);
        has("let a = Some(b);", &["let a = None;", "let a = Some(b).filter(|_| false);"]);
        has(
            "let a = b(c);",
            &[
                "let a = Default::default();",
                "let a = { let mut it = b(c); it = Default::default(); it };",
            ],
        );
        has(
            "let a = b[1..c];",
            &["let a = b[1..(c + 1)];", "let a = b[(1 + 1)..c];", "let a = b[2..c];"],
        );
        has("let a = b[1..=c];", &["let a = b[1..c];"]);
    }

    #[test]
    fn neighbours_change_places() {
        has("let a = [b, c, d];", &["let a = [b, d, c];", "let a = [c, b, d];"]);
        has("let [a, b] = c;", &["let [b, a] = c;"]);
        has("let (a, b) = c;", &["let (b, a) = c;"]);
    }

    #[test]
    fn an_arm_goes_or_answers_as_another() {
        let found = ways("fn f() {\nmatch a {\n1 if b => c, //!!\n_ => d,\n}\n}\n");
        let inner = |text: &str| format!("fn f() {{ match a {{ {text} _ => d, }} }}");
        for way in ["1 if false && (b) => c,", "", "1 if b => d,", "2 if b => c,"] {
            let way = if way.is_empty() {
                "fn f() { match a { _ => d, } }".to_owned()
            } else {
                inner(way)
            };
            assert!(found.contains(&way), "no '{way}' in {found:#?}");
        }
    }

    #[test]
    fn parts_of_macros_fields_and_chains_are_found() {
        has(
            "matches!(a, 3 | 4 if b > c)",
            &["!matches!(a, 3 | 4 if b > c)", "matches!(a, 3 | 4 if b >= c)"],
        );
        let field = ways("fn f() -> A {\nA {\nb: c || d, //!!\n}\n}\n");
        assert!(field.contains(&"fn f() -> A { A { b: c , } }".to_owned()), "{field:#?}");
        let chain = ways("fn f() {\na\n.filter(b) //!!\n.c();\n}\n");
        assert!(chain.contains(&"fn f() { a .c(); }".to_owned()), "{chain:#?}");
        let side = ways("fn f() -> bool {\na\n&& b //!!\n}\n");
        assert!(side.contains(&"fn f() -> bool { a }".to_owned()), "{side:#?}");
    }

    #[test]
    fn constants_and_comparisons_are_found_in_a_text_that_only_its_macro_understands() {
        let found = ways("causes! {\nONE = 1, 0: \"one\"; //!!\nTWO = 2;\n}\n");
        assert!(
            found.contains(&"causes! { ONE = 2, 0: \"one\"; TWO = 2; }".to_owned()),
            "{found:#?}"
        );
        assert!(!found.iter().any(|way| way.contains("TWO = 3")), "another line: {found:#?}");
        let found =
            ways("macro_rules! m {\n($a:ident) => {\nif ($a > 0) != $a::B { c } //!!\n};\n}\n");
        assert!(found.iter().any(|way| way.contains("if ($a > 0) == $a::B")), "{found:#?}");
        assert!(found.iter().any(|way| way.contains("if ($a <= 0) != $a::B")), "{found:#?}");
    }

    #[test]
    fn items_are_found_behind_their_documentation() {
        let found =
            ways("/// The limit.\n// Why.\n#[allow(dead_code)]\npub const LIMIT: u32 = 7; //!!\n");
        assert!(found.iter().any(|way| way.ends_with("pub const LIMIT: u32 = 8;")), "{found:#?}");
        let head = ways("//! A file.\n\n// Why.\npub const LIMIT: u32 = 7; //!!\n");
        assert!(head.iter().any(|way| way.ends_with("pub const LIMIT: u32 = 8;")), "{head:#?}");
        let function = ways("/// Does it.\npub fn f(a: u8) -> u8 { //!!\na | 1\n}\n");
        assert!(function.iter().any(|way| way.ends_with("{ a & 1 }")), "{function:#?}");
        let variant = ways("enum A {\n/// Three.\nB = 3, //!!\n}\n");
        assert!(variant.iter().any(|way| way.contains("B = 4")), "{variant:#?}");
    }

    #[test]
    fn a_change_is_told_in_one_line() {
        let text = "a();\nlet b = c == d;\n";
        let way = |range: Range<usize>, to: &str| Mutation { range, to: to.to_owned(), why: "" };
        assert_eq!(way(0..4, "").describe(text), "without `a();`");
        assert_eq!(way(15..17, "!=").describe(text), "`==` → `!=`");
    }

    #[test]
    fn what_is_no_rust_is_told() {
        assert!(mutations("fn f( {", 1).is_err());
    }
}
