//! The source of this workspace stays within the limits of its figures.

use stag_tidy::{Figure, SourceTree};

#[test]
fn every_figure_is_within_its_limit() {
    let figures = stag_tidy::all(&SourceTree::read(&stag_tidy::root()).unwrap());
    let told = |figure: &Figure| {
        let places = figure.found.iter().take(10);
        let places = places.map(|f| format!("\n  {}:{}: {}", f.file, f.line, f.text));
        format!(
            "{}: {:.2} {}, above {} ({}); all places: cargo run -p stag-tidy -- --list {}{}",
            figure.name,
            figure.value,
            figure.unit,
            figure.limit,
            figure.about,
            figure.name,
            places.collect::<String>()
        )
    };
    let above: Vec<String> = figures.iter().filter(|f| !f.is_met()).map(told).collect();
    assert!(above.is_empty(), "{}", above.join("\n"));
}
