use super::*;
use crate::{
    Arrivals, CallRecord, Times, Workload,
    report::model::{ClientSide, HostFacts, RunSetup, SCHEMA, SecondFigures},
    stages::{ServerStages, StageTimes, Stages},
};

/// Makes a plausible outcome of a run of three seconds.
fn outcome(rate: Option<f64>, size: usize) -> RunOutcome {
    let mut all = CallRecord::default();
    let mut seconds = Vec::new();
    for number in 0..3 {
        let mut record = CallRecord::default();
        for call in 0..5_000_u64 {
            record.service.record(1_000 + call * 7).unwrap();
            record.response.record(1_500 + call * call).unwrap();
        }
        (record.calls, record.octets) = (5_000, 5_000 * size as u64);
        all.add(&record);
        seconds.push(SecondFigures::new(number, &record, None));
    }
    let setup = RunSetup {
        url: "iwarp://127.0.0.1:20049/data".to_owned(),
        workload: if size > 0 { Workload::Read } else { Workload::Null },
        size,
        connections: 1,
        depth: 4,
        cores: 1,
        rate,
        arrivals: rate.map(|_| Arrivals::Poisson),
        warm_up_s: 0.5,
        duration_s: Some(3.0),
        calls: None,
        verified: size > 0,
        seed: 1,
        names: None,
        rdma_version: Some("1".to_owned()),
        sec: None,
    };
    RunOutcome {
        schema: SCHEMA.to_owned(),
        version: "0".to_owned(),
        began_unix_s: 0.0,
        setup,
        rdma_version: Some(1),
        host: HostFacts { cores: 2, ..HostFacts::default() },
        elapsed_s: 3.0,
        stopped: false,
        calls: all.calls,
        failed: 0,
        failure: None,
        unsent: 0,
        gave_up_s: None,
        left_behind: None,
        calls_per_s: 5_000.0,
        octets_per_s: 5_000.0 * size as f64,
        service: Times::new(&all.service),
        response: Times::new(&all.response),
        connected: None,
        check: None,
        server_cores: None,
        outages: Vec::new(),
        gaps: Vec::new(),
        turns: None,
        contexts: None,
        client: ClientSide { pinned: 1, ..ClientSide::default() },
        stages: None,
        seconds,
    }
}

/// One of each kind that looks different.
fn kinds() -> Vec<Vec<RunOutcome>> {
    let rates = |count: u32| {
        (1..=count).map(|step| outcome(Some(f64::from(step) * 1_000.0), 4_096)).collect()
    };
    let sizes: Vec<_> = [64, 4_096, 1 << 20].map(|size| outcome(None, size)).into();
    let mut both = sizes.clone();
    both.extend([64, 4_096].map(|size| outcome(Some(9e5), size)));
    let mut empty = outcome(None, 0);
    (empty.calls, empty.elapsed_s, empty.calls_per_s) = (0, 0.0, 0.0);
    (empty.service, empty.response) =
        (Times::new(&CallRecord::default().service), Times::new(&CallRecord::default().service));
    empty.seconds = vec![SecondFigures::new(0, &CallRecord::default(), None)];
    let mut odd = outcome(Some(5.0), 1);
    odd.setup.url = "tcp://<script>alert(\"1\")</script>&".to_owned();
    odd.host.name = "</title></style><img src=x>".to_owned();
    odd.failure = Some("<b>".to_owned());
    let (mut staged, mut unasked) = (outcome(None, 4_096), outcome(None, 4_096));
    let stage = |name: &str| StageTimes { stage: name.to_owned(), times: staged.service.clone() };
    let client = vec![stage("queue"), stage("reply")];
    let server = Some(ServerStages {
        every: 64,
        shards: 1,
        stages: vec![stage("recv"), StageTimes::default()],
    });
    unasked.stages =
        Some(Stages { every: 64, unasked: Some("<i>".to_owned()), ..Stages::default() });
    staged.stages = Some(Stages { every: 64, client, server, unasked: None });
    vec![
        vec![outcome(None, 0)],
        vec![outcome(Some(2e4), 4_096)],
        vec![outcome(None, 0), outcome(None, 0)],
        rates(3),
        rates(40),
        sizes,
        both,
        vec![empty.clone()],
        vec![empty.clone(), outcome(None, 0), empty],
        vec![odd],
        vec![staged.clone()],
        vec![unasked.clone()],
        vec![staged, unasked, outcome(None, 1)],
        vec![],
    ]
}

/// Elements that have no end.
const VOID: [&str; 3] = ["meta", "link", "br"];
/// The others. None of them loads anything or runs.
const KNOWN: &str = "html head title style body h1 h2 p div ul li table tr th td span b i code \
                     section figure figcaption footer svg path text circle";

/// Checks that elements nest correctly; the error says what is wrong.
fn nesting(page: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut rest = page.strip_prefix("<!doctype html>").ok_or("it does not say what it is")?;
    while let Some((_, behind)) = rest.split_once('<') {
        let (tag, after) = behind.split_once('>').ok_or("a tag does not end")?;
        rest = after;
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap_or_default();
        if !VOID.contains(&name) && !KNOWN.split(' ').any(|known| known == name) {
            return Err(format!("{name} is not one of ours"));
        }
        if tag.starts_with('/') {
            let opened = open.pop();
            if opened != Some(name) {
                return Err(format!("{opened:?} is ended by {name}"));
            }
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} do not end")) }
}

#[test]
fn every_page_is_whole_and_needs_nothing_from_elsewhere() {
    for outcomes in kinds() {
        let page = page(&outcomes).unwrap();
        assert_eq!(nesting(&page), Ok(()), "{} runs", outcomes.len());
        for foreign in ["url(", "@import", "NaN", "inf "] {
            assert!(!page.contains(foreign), "{foreign} in a page of {} runs", outcomes.len());
        }
        assert_eq!(
            page.matches("class=\"wide\"").count(),
            page.matches("class=\"narrow\"").count()
        );
    }
}

#[test]
fn charts_are_those_that_say_something() {
    let titles = |outcomes: &[RunOutcome]| {
        let page = page(outcomes).unwrap();
        let parts = page.split("<h2>").skip(1);
        parts.map(|part| part.split_once("</h2>").unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    let always = ["Response time by percentile", "Response time over time", "Throughput over time"];
    let with = |first: &[&str]| -> Vec<String> {
        let all = first.iter().chain(&always).chain(&["How and where it was measured"]);
        all.map(|title| (*title).to_owned()).collect()
    };
    let kinds = kinds();
    assert_eq!(titles(&kinds[0]), with(&[]));
    assert_eq!(titles(&kinds[2]), with(&[]));
    assert_eq!(titles(&kinds[4]), with(&["Response time against throughput"]));
    assert_eq!(titles(&kinds[5]), with(&["Response time by size", "Payload by size"]));
    assert_eq!(titles(&kinds[7]), ["How and where it was measured"]);
}

#[test]
fn chance_alone_makes_no_point_hollow() {
    let hollow = |rate: f64, made: f64, arrivals, unsent| {
        let runs = [(rate, made), (rate * 2.0, rate * 2.0)].map(|(rate, calls_per_s)| {
            let mut run = outcome(Some(rate), 64);
            (run.setup.arrivals, run.elapsed_s, run.calls_per_s, run.unsent) =
                (Some(arrivals), 10.0, calls_per_s, unsent);
            run
        });
        page(&runs).unwrap().contains("Hollow: the rate that was meant was not kept")
    };
    // A thousand calls are meant: Poisson times bring that many within 32 or so.
    assert!(!hollow(100.0, 95.0, Arrivals::Poisson, 0));
    assert!(hollow(100.0, 80.0, Arrivals::Poisson, 0));
    assert!(hollow(100.0, 100.0, Arrivals::Poisson, 1));
    assert!(hollow(100.0, 95.0, Arrivals::Uniform, 0));
    assert!(!hollow(5.0, 4.9, Arrivals::Uniform, 0), "one call of fifty lies at an end");
    assert!(hollow(1e6, 0.97e6, Arrivals::Poisson, 0));
}

#[test]
fn a_long_name_of_a_run_leaves_the_figures_in_sight() {
    let [one, mut other] = [64, 4_096].map(|size| outcome(None, size));
    other.setup.url = format!("iwarp://{}:20049/data", "long.".repeat(40));
    let page = page(&[one, other]).unwrap();
    let cells = page.matches("<td class=\"run\">").count();
    assert_eq!(cells, 2, "{page}");
    let rule = STYLE.lines().find(|line| line.starts_with("td.run")).unwrap();
    assert!(
        rule.contains("white-space: normal") && rule.contains("overflow-wrap: anywhere"),
        "{rule}"
    );
}

#[test]
fn an_open_loop_shows_service_and_response_side_by_side() {
    let page = |rate| page(&[outcome(rate, 0)]).unwrap();
    assert!(
        page(Some(1e3)).contains("</svg>service p99</li>")
            && page(Some(1e3)).contains("</svg>service</li>")
    );
    assert!(!page(None).contains("</svg>service"));
}

#[test]
fn stages_are_shown_when_they_are_known() {
    let kinds = kinds();
    let page = |kind: usize| page(&kinds[kind]).unwrap();
    let (staged, unasked, several) = (page(10), page(11), page(12));
    assert!(
        staged.contains("<td>recv</td>") && staged.contains("style=\"width:100.0%\""),
        "{staged}"
    );
    assert!(unasked.contains("<li>&lt;i&gt;</li>"), "{unasked}");
    assert!(several.contains("<th>recv</th>") && several.contains("<th>reply</th>"), "{several}");
    assert!(!page(0).contains("stage"), "nobody asked for them");
}

#[test]
fn runs_are_named_by_what_they_differ_in() {
    let [small, large] = [64, 4_096].map(|size| outcome(None, size));
    let (common, named) = names(&[small.clone(), large]);
    assert_eq!(named, ["64 octets", "4K octets"]);
    assert_eq!(common[..2], ["nfs3:read", "iwarp://127.0.0.1:20049/data"]);
    let (_, named) = names(&[small.clone(), small.clone(), outcome(Some(7.0), 64)]);
    assert_eq!(named, ["closed loop, run 1", "closed loop, run 2", "7/s"]);
    let (_, named) = names(&[small.clone(), small]);
    assert_eq!(named, ["run 1", "run 2"]);
}

#[test]
fn what_casts_doubt_is_said_once_and_of_whom() {
    let mut runs = vec![outcome(Some(1e3), 64), outcome(Some(2e3), 64)];
    runs[1].unsent = 9;
    for run in &mut runs {
        run.setup.verified = false;
    }
    let page = page(&runs).unwrap();
    assert!(
        page.contains("<li>the payload was not compared (2 of 2 runs, the first: 1000/s)</li>"),
        "{page}"
    );
    assert!(
        page.contains("<li>9 calls were due and could not be made in time (2000/s): "),
        "{page}"
    );
    assert_eq!(page.matches("<li>the payload").count(), 1);
    assert!(!super::page(&[outcome(None, 0)]).unwrap().contains("class=\"notes\""));
}

#[test]
fn an_outage_has_a_chart_of_its_gap_with_its_beginning_and_end() {
    use crate::report::model::{Outage, OutageGap};
    let mut interrupted = outcome(Some(1_000.0), 0);
    interrupted.outages = vec![Outage { at_s: 1.25, lasted_s: 0.5 }];
    let calls = (0..100).map(|step| if (25..75).contains(&step) { 0 } else { 10 }).collect();
    interrupted.gaps = vec![OutageGap { from_s: 1.0, step_s: 0.01, calls }];
    let text = serde_json::to_string(&interrupted).unwrap();
    assert_eq!(RunOutcome::parse(&text).unwrap().gaps, interrupted.gaps);
    let page = page(std::slice::from_ref(&interrupted)).unwrap();
    assert_eq!(page.matches("<h2>Calls answered around an outage</h2>").count(), 1);
    let (_, chart) = page.split_once("<h2>Calls answered around an outage</h2>").unwrap();
    // Once on each of two renditions: the loss, and the next answer.
    for words in [">lost</text>", ">answered</text>"] {
        assert_eq!(chart.matches(words).count(), 2, "{words}: {chart}");
    }
    assert!(chart.contains(">1.2</text>") && chart.contains("Steps of 10 ms."), "{chart}");
    let well = outcome(Some(1_000.0), 0);
    assert!(!super::page(std::slice::from_ref(&well)).unwrap().contains("around an outage"));
    // Several runs: whose it is stands below.
    assert!(super::page(&[well, interrupted]).unwrap().contains("Steps of 10 ms. run 2."));
}
