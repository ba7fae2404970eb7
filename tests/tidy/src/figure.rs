//! The figures, one line each.

use crate::{
    SourceTree, comments, dependencies, dialect, functions, imports, lines, made_files, names,
    pages, types,
};
use serde::Serialize;

/// One place that a figure counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundPlace {
    /// Path below the root.
    pub file: String,
    /// Line from 1; 0 where the place is a file or a folder.
    pub line: usize,
    /// The name or the text that was found there.
    pub text: String,
}

/// A figure of the source.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// Name for `--list`.
    pub name: &'static str,
    /// Meaning and unit, for the table.
    pub about: &'static str,
    /// The value as `unit` says it.
    pub value: f64,
    /// `%`, `lines`, or nothing for a count.
    pub unit: &'static str,
    /// Highest value that the test accepts.
    pub limit: f64,
    /// The places that it counts.
    pub found: Vec<FoundPlace>,
}

impl Figure {
    /// True if the figure is within its limit.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.value <= self.limit
    }

    /// A figure that counts places.
    pub(crate) fn count(
        name: &'static str,
        about: &'static str,
        limit: f64,
        found: Vec<FoundPlace>,
    ) -> Self {
        Self { name, about, value: count(found.len()), unit: "", limit, found }
    }

    /// A figure that is the share of places among `all` things, in percent.
    pub(crate) fn share(
        name: &'static str,
        about: &'static str,
        limit: f64,
        found: Vec<FoundPlace>,
        all: usize,
    ) -> Self {
        let value = if all == 0 { 0.0 } else { 100.0 * count(found.len()) / count(all) };
        Self { name, about, value, unit: "%", limit, found }
    }
}

/// A count as a number that can be divided.
pub(crate) fn count(places: usize) -> f64 {
    u32::try_from(places).map_or(f64::INFINITY, f64::from)
}

/// Every figure of a checkout, in the order of the table.
#[must_use]
pub fn all(tree: &SourceTree) -> Vec<Figure> {
    let functions = functions::of(tree);
    let mut figures = vec![functions::percentile(&functions, 95)];
    figures.extend(functions::long(&functions));
    figures.extend([
        lines::long_files(tree),
        lines::wide(tree),
        types::shared_names(tree),
        types::packed_parameters(tree),
        types::refound(tree),
        comments::riddles(tree),
        comments::bare_marks(tree),
        imports::circles(tree),
        imports::room_circles(tree),
        imports::upward(tree),
        made_files::planted_links(tree),
        names::lost(tree),
        pages::broken_links(tree),
    ]);
    figures.extend(dialect::all(tree));
    figures.extend(dependencies::all(tree));
    figures
}
