//! Values of the file: their kinds, and their form on a command line.

use std::ops::Range;
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

/// A value with its place.
pub type Placed<'i> = Spanned<DeValue<'i>>;

/// A fault, with the octets of the file that contain it.
#[derive(Debug)]
pub struct FileFault {
    pub span: Range<usize>,
    pub why: String,
}

impl FileFault {
    pub fn new(span: Range<usize>, why: impl Into<String>) -> Self {
        Self { span, why: why.into() }
    }
}

/// A text.
pub fn text<'a>(value: &'a Placed<'_>, key: &str) -> Result<&'a str, FileFault> {
    let fault = || FileFault::new(value.span(), format!("{key} has to be a text in quotes"));
    value.get_ref().as_str().ok_or_else(fault)
}

/// `true` or `false`.
pub fn boolean(value: &Placed<'_>, key: &str) -> Result<bool, FileFault> {
    let fault = || FileFault::new(value.span(), format!("{key} has to be true or false"));
    value.get_ref().as_bool().ok_or_else(fault)
}

/// A number that some field of 32 bits holds.
pub fn number(value: &Placed<'_>, key: &str) -> Result<u32, FileFault> {
    let found = value.get_ref().as_integer();
    let found = found.and_then(|it| u32::from_str_radix(it.as_str(), it.radix()).ok());
    let fault =
        || FileFault::new(value.span(), format!("{key} has to be a number from 0 to {}", u32::MAX));
    found.ok_or_else(fault)
}

/// A list.
pub fn list<'a, 'i>(value: &'a Placed<'i>, key: &str) -> Result<&'a DeArray<'i>, FileFault> {
    let fault = || FileFault::new(value.span(), format!("{key} has to be a list, [ … ]"));
    value.get_ref().as_array().ok_or_else(fault)
}

/// A table.
pub fn table<'a, 'i>(value: &'a Placed<'i>, key: &str) -> Result<&'a DeTable<'i>, FileFault> {
    let fault = || FileFault::new(value.span(), format!("{key} has to be a table, [{key}]"));
    value.get_ref().as_table().ok_or_else(fault)
}

/// A value as one word of a command line; none for a kind that no flag takes.
pub fn word(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// The sentence about an unknown key, with the nearest known one.
pub fn unknown(key: &str, known: &[String]) -> String {
    let near = known.iter().map(|other| (strsim::damerau_levenshtein(key, other), other));
    match near.min().filter(|(distance, other)| *distance <= 2 || other.contains(key)) {
        Some((_, other)) => format!("nothing is called {key:?} here: is it {other:?}?"),
        None => format!("nothing is called {key:?} here, only {}", known.join(", ")),
    }
}
