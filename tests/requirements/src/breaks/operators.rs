//! Ways to break one expression: its operator, its constant, its call.

use super::mutate::Ways;
use proc_macro2::{Punct, Spacing, TokenStream, TokenTree};
use std::ops::Range;
use syn::{
    BinOp, Expr, ExprBinary, ExprCall, ExprMethodCall, ExprPath, ExprRange, Lit, Pat, RangeLimits,
    UnOp, spanned::Spanned,
};

/// Ways to break an expression itself; those of its parts are found when they are visited.
pub(super) fn expression(ways: &mut Ways<'_>, expression: &Expr) {
    match expression {
        Expr::Binary(binary) => operator(ways, binary),
        Expr::Unary(unary) if !matches!(unary.op, UnOp::Deref(_)) => {
            let inner = ways.text(&*unary.expr);
            ways.put(unary, inner, "the opposite");
        }
        Expr::Lit(value) => literal(ways, &value.lit),
        Expr::Path(path) => constant(ways, path),
        Expr::MethodCall(call) => method(ways, call),
        Expr::Call(call) => function(ways, call),
        Expr::Range(range) => bounds(ways, range),
        Expr::Array(array) => swap(ways, &array.elems.iter().collect::<Vec<_>>()),
        Expr::Tuple(tuple) => swap(ways, &tuple.elems.iter().collect::<Vec<_>>()),
        _ => {}
    }
}

fn operator(ways: &mut Ways<'_>, binary: &ExprBinary) {
    let others: &[&str] = match binary.op {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) | BinOp::Mul(_) => &["+"],
        BinOp::Div(_) => &["*"],
        BinOp::Rem(_) => &["/"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        _ => &[],
    };
    let has_spare_side = matches!(
        binary.op,
        BinOp::And(_)
            | BinOp::Or(_)
            | BinOp::BitAnd(_)
            | BinOp::BitOr(_)
            | BinOp::BitXor(_)
            | BinOp::Rem(_)
    );
    if has_spare_side {
        ways.span(binary.op.span(), binary.right.span(), "", "one side less");
        ways.span(binary.left.span(), binary.op.span(), "", "one side less");
    }
    for other in others {
        ways.put(&binary.op, *other, "another operator");
    }
}

/// Constants and comparisons among the tokens that begin in `line`, for a macro's text that is
/// nothing else.
pub(super) fn tokens(ways: &mut Ways<'_>, tokens: TokenStream, line: &Range<usize>) {
    let mut before: Option<Punct> = None;
    for token in tokens {
        let is_here = line.contains(&token.span().byte_range().start);
        match &token {
            TokenTree::Group(group) => self::tokens(ways, group.stream(), line),
            TokenTree::Literal(found) if is_here => literal(ways, &Lit::new(found.clone())),
            TokenTree::Punct(last) if is_here && last.as_char() == '=' => {
                match before.as_ref().map(Punct::as_char) {
                    Some('!') => ways.span(before.span(), last.span(), "==", "another operator"),
                    Some('=') => ways.span(before.span(), last.span(), "!=", "another operator"),
                    _ => {}
                }
            }
            TokenTree::Punct(only)
                if is_here && only.spacing() == Spacing::Alone && before.is_none() =>
            {
                match only.as_char() {
                    '<' => ways.put(only, ">=", "another operator"),
                    '>' => ways.put(only, "<=", "another operator"),
                    _ => {}
                }
            }
            _ => {}
        }
        before = match token {
            TokenTree::Punct(joint) if joint.spacing() == Spacing::Joint => Some(joint),
            _ => None,
        };
    }
}

/// Numbers move by one, truths turn, the first character of a text changes.
pub(super) fn literal(ways: &mut Ways<'_>, literal: &Lit) {
    match literal {
        Lit::Int(number) => {
            let Ok(value) = number.base10_parse::<u128>() else { return };
            let suffix = number.suffix();
            ways.put(number, format!("{}{suffix}", value.wrapping_add(1)), "a constant moved");
            if let Some(less) = value.checked_sub(1) {
                ways.put(number, format!("{less}{suffix}"), "a constant moved");
            }
        }
        Lit::Bool(truth) => ways.put(truth, (!truth.value).to_string(), "the opposite"),
        Lit::Byte(octet) => {
            ways.put(octet, format!("{}", octet.value().wrapping_add(1)), "a constant moved")
        }
        Lit::Str(_) | Lit::ByteStr(_) => {
            let text = ways.text(literal);
            if let Some((open, rest)) = text.split_once('"')
                && rest.starts_with(|first: char| first.is_ascii_alphanumeric())
            {
                let rest = rest.get(1..).unwrap_or_default();
                ways.put(literal, format!("{open}\"~{rest}"), "a constant changed");
            }
        }
        _ => {}
    }
}

/// A named constant moves by one; `Type::NAME` becomes another name of the same type that the file
/// knows.
fn constant(ways: &mut Ways<'_>, path: &ExprPath) {
    let text = ways.text(path);
    let (prefix, name) = text.rsplit_once("::").unwrap_or(("", text));
    let is_constant = name.len() > 1
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    if prefix.starts_with(char::is_uppercase) && name.starts_with(char::is_uppercase) {
        for other in siblings(ways.file(), prefix, name) {
            ways.put(path, format!("{prefix}::{other}"), "another of its kind");
        }
    }
    if is_constant {
        ways.put(path, format!("({text} + 1)"), "a constant moved");
        ways.put(path, format!("({text} - 1)"), "a constant moved");
    }
}

/// At most two other names after `prefix::` in a file, with the same case as `name`.
fn siblings(file: &str, prefix: &str, name: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let is_constant = |name: &str| !name.contains(char::is_lowercase);
    let lead = format!("{prefix}::");
    let mut names: Vec<String> = Vec::new();
    for (at, _) in file.match_indices(&lead) {
        let is_whole =
            !file.get(..at).unwrap_or_default().ends_with(|c: char| is_word(c) || c == ':');
        let rest = file.get(at + lead.len()..).unwrap_or_default();
        let other: String = rest.chars().take_while(|c| is_word(*c)).collect();
        let is_kin =
            other.starts_with(char::is_uppercase) && is_constant(&other) == is_constant(name);
        if is_whole && is_kin && other != name && !names.contains(&other) {
            names.push(other);
        }
    }
    names.truncate(2);
    names
}

/// Methods with an opposite, both ways.
const OPPOSITES: [(&str, &str); 16] = [
    ("min", "max"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("is_some_and", "is_none_or"),
    ("all", "any"),
    ("first", "last"),
    ("split_first", "split_last"),
    ("push_back", "push_front"),
    ("pop_back", "pop_front"),
    ("to_be_bytes", "to_le_bytes"),
    ("take", "skip"),
    ("take_while", "skip_while"),
    ("saturating_add", "saturating_sub"),
    ("checked_add", "checked_sub"),
    ("wrapping_add", "wrapping_sub"),
    ("start", "end"),
];

/// Methods whose result has the type of what they are called on, mostly.
const DROPPABLE: [&str; 18] = [
    "filter",
    "min",
    "max",
    "clamp",
    "take",
    "skip",
    "rev",
    "take_while",
    "skip_while",
    "or",
    "or_else",
    "wrapping_add",
    "wrapping_sub",
    "wrapping_neg",
    "saturating_add",
    "saturating_sub",
    "to_be",
    "next_multiple_of",
];

fn method(ways: &mut Ways<'_>, call: &ExprMethodCall) {
    let name = call.method.to_string();
    if DROPPABLE.contains(&name.as_str()) {
        ways.span(call.dot_token.span(), call.paren_token.span.close(), "", "a call less");
    }
    for (one, other) in OPPOSITES {
        if name == one {
            ways.put(&call.method, other, "the opposite");
        } else if name == other {
            ways.put(&call.method, one, "the opposite");
        }
    }
    if name == "then_some" || name == "then" {
        let condition = ways.text(&*call.receiver);
        ways.put(
            &*call.receiver,
            format!("(true || {condition})"),
            "a condition that always holds",
        );
        ways.put(
            &*call.receiver,
            format!("(false && {condition})"),
            "a condition that never holds",
        );
    }
    let is_question =
        ["is_", "has_", "may_", "can_", "wants_", "starts_with", "ends_with", "contains"];
    if is_question.iter().any(|start| name.starts_with(start)) {
        let text = ways.text(call);
        ways.put(call, format!("!{text}"), "the opposite");
    }
}

fn function(ways: &mut Ways<'_>, call: &ExprCall) {
    match ways.text(&*call.func) {
        "Some" => {
            let text = ways.text(call);
            ways.put(call, "None", "nothing instead");
            // The same where `None` alone says too little about its type.
            ways.put(call, format!("{text}.filter(|_| false)"), "nothing instead");
        }
        "u16::from_be_bytes" => {
            ways.put(&*call.func, "u16::from_le_bytes", "the other order of octets")
        }
        "u32::from_be_bytes" => {
            ways.put(&*call.func, "u32::from_le_bytes", "the other order of octets")
        }
        "u64::from_be_bytes" => {
            ways.put(&*call.func, "u64::from_le_bytes", "the other order of octets")
        }
        "u32::from_le_bytes" => {
            ways.put(&*call.func, "u32::from_be_bytes", "the other order of octets")
        }
        _ => {}
    }
}

fn bounds(ways: &mut Ways<'_>, range: &ExprRange) {
    if let Some(end) = &range.end {
        match range.limits {
            RangeLimits::HalfOpen(_) => {
                let text = ways.text(&**end);
                ways.put(&**end, format!("({text} + 1)"), "a bound moved");
            }
            RangeLimits::Closed(_) => ways.put(&range.limits, "..", "a bound moved"),
        }
    }
    if let Some(start) = &range.start {
        let text = ways.text(&**start);
        ways.put(&**start, format!("({text} + 1)"), "a bound moved");
    }
}

/// Two neighbours change places: the last two that differ, then the first two.
fn swap(ways: &mut Ways<'_>, parts: &[&Expr]) {
    let pairs: Vec<_> = parts.windows(2).collect();
    for pair in [pairs.last(), pairs.first()].into_iter().flatten() {
        if let [one, other] = pair {
            exchange(ways, *one, *other);
        }
    }
}

/// Names of a pattern of several change places.
pub(super) fn swap_in_pattern(ways: &mut Ways<'_>, pattern: &Pat) {
    let parts = match pattern {
        Pat::Slice(slice) => &slice.elems,
        Pat::Tuple(tuple) => &tuple.elems,
        _ => return,
    };
    let names: Vec<_> = parts.iter().filter(|part| matches!(part, Pat::Ident(_))).collect();
    let pairs: Vec<_> = names.windows(2).collect();
    for pair in [pairs.last(), pairs.first()].into_iter().flatten() {
        if let [one, other] = pair {
            exchange(ways, *one, *other);
        }
    }
}

fn exchange(ways: &mut Ways<'_>, one: &impl Spanned, other: &impl Spanned) {
    let [first, second] = [one.span().byte_range(), other.span().byte_range()];
    let between = ways.file().get(first.end..second.start).unwrap_or_default();
    let to = format!("{}{between}{}", ways.text(other), ways.text(one));
    ways.span(one.span(), other.span(), to, "two change places");
}
