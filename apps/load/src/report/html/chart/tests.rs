//! Tests of axes and frames.

use super::*;

/// Values as runs have them, and odd ones.
fn sets() -> Vec<Vec<f64>> {
    vec![
        vec![],
        vec![0.0],
        vec![5.0],
        vec![0.003, 70_000.0],
        vec![10.0, 10.0],
        vec![2.0],
        vec![0.9],
        vec![3_000_000.0],
        vec![1.4, 1.6, 4_640.8],
        vec![1.0, 60_000_000.0],
    ]
}

#[test]
fn axes_hold_what_they_show() {
    for values in sets() {
        for axis in [Axis::log, Axis::linear].map(|axis| axis("", values.iter().copied())) {
            assert!((2..=20).contains(&axis.ticks.len()), "{values:?}: {:?}", axis.ticks);
            let labels: std::collections::BTreeSet<_> =
                axis.ticks.iter().map(|(_, label)| label).collect();
            assert_eq!(labels.len(), axis.ticks.len(), "{values:?}: {labels:?}");
            let (low, high) = axis.range;
            let shown = values.iter().filter(|value| **value > 0.0 || !axis.is_log);
            let reach = low * (1.0 - 1e-9)..=high * (1.0 + 1e-9);
            assert!(shown.clone().all(|value| reach.contains(value)), "{values:?} {low} {high}");
            assert!(
                shown.map(|value| axis.place(*value)).all(|place| (0.0..=1.0).contains(&place))
            );
        }
    }
}

#[test]
fn an_axis_is_not_much_longer_than_what_it_shows() {
    let range = |values: &[f64]| Axis::log("", values.iter().copied()).range;
    assert_eq!(range(&[1.4, 1.9]), (1.0, 2.0));
    assert_eq!(range(&[2.0, 5.0]), (2.0, 5.0));
    assert_eq!(range(&[3.0, 3.0]), (2.0, 5.0));
    assert_eq!(range(&[0.7, 4_640.0]), (0.5, 5_000.0));
    let ticks = |most: f64| Axis::linear("", [most].into_iter()).range.1;
    assert_eq!([633_495.0, 10.0, 1.0, 0.25].map(ticks), [800_000.0, 10.0, 1.0, 0.25]);
}

#[test]
fn percentiles_are_named_by_their_nines() {
    let axis = Axis::nines([1.0, 2_000.0].into_iter());
    let labels: Vec<_> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
    assert_eq!(labels, ["min", "50", "90", "99", "99.9", "99.99"]);
    let axis = Axis::nines([1e7].into_iter());
    assert_eq!(axis.ticks.last().unwrap().1, "99.99999");
}

#[test]
fn labels_lie_beside_each_other_and_inside() {
    for count in [1, 2, 7, 40, 500] {
        for text in [11.0, 12.0] {
            let labels: Vec<_> = (0..count)
                .map(|place| (f64::from(place) * 360.0 / f64::from(count), "1 000 000"))
                .collect();
            let placed = placed(labels.into_iter(), text, 0.0..=360.0);
            assert!(!placed.is_empty());
            let half = 9.0 * text * CHARACTER / 2.0;
            assert!(
                placed.iter().all(|(at, _)| at - half >= 0.0 && at + half <= 360.0),
                "{placed:?}"
            );
            assert!(
                placed.windows(2).all(|pair| pair[0].0 + half < pair[1].0 - half),
                "{placed:?}"
            );
        }
    }
}

#[test]
fn numbers_have_the_digits_that_they_need() {
    let numbers = [0.0, 0.5, 1.5, 10.0, 1_000.0, 0.001, 10_000.0, 1_234_567.5].map(number);
    let expected =
        ["0", "0.5", "1.5", "10", "1000", "0.001", "10\u{202f}000", "1\u{202f}234\u{202f}567.5"];
    assert_eq!(numbers, expected);
    assert_eq!(
        [0, 64, 1_000, 1_024, 4_096, 1 << 20].map(size),
        ["0", "64", "1000", "1K", "4K", "1M"]
    );
}

#[test]
fn a_name_from_elsewhere_is_only_text() {
    assert_eq!(plain("<script>\"&\"\0"), "&lt;script&gt;&quot;&amp;&quot;\u{fffd}");
}
