//! Replies of a server as text of at most 80 columns, but for exports, the lines that mount them,
//! and states of version 4.

use super::{
    cells::{WIDTH, cut, list, micros, octets, table, table_spaced, table_whole, uptime, word},
    contexts, sessions, states,
};
use serde_json::Value;
use stag_operate::control::wire::Request;
use std::fmt::Write;

/// The reply `value` to `request`.
pub fn text(request: &Request, value: &Value) -> String {
    match request {
        Request::Status => status(value),
        Request::Exports => exports(value),
        Request::Mounts { .. } => mounts(value),
        Request::Clients => clients(value),
        Request::Contexts => contexts::text(value),
        Request::Clients4 { .. } => states::clients(value),
        Request::Expire { .. } => format!("ended {}\n", word(value, "/expired")),
        Request::Grace { .. } => states::grace(value),
        Request::Opens(_) => states::opens(value),
        Request::Locks(_) => states::locks(value),
        Request::Delegations(_) => states::delegations(value),
        Request::Hist => hist(value),
        Request::Trace { .. } => trace(value),
        Request::Memory => memory(value),
        Request::Stats => stats(value),
        Request::Drop { .. } => dropped(value),
        Request::Log { .. } => format!("log {}\n", word(value, "/filter")),
        Request::Drain => draining(value),
        Request::Resume => "serving\n".to_owned(),
        Request::Reload => format!("settings read again: {}\n", word(value, "/summary")),
    }
}

fn draining(value: &Value) -> String {
    let of = |pointer: &str| word(value, pointer);
    let Some(seconds) = value.pointer("/drained/seconds").and_then(Value::as_f64) else {
        return format!(
            "draining: {} connections are left; ask again for the end\n",
            of("/connections")
        );
    };
    let cut = value.pointer("/drained/cut") == Some(&Value::Bool(true));
    let end = if cut { "; --drain ended it" } else { "" };
    format!("drained in {seconds:.3} s, {} calls unanswered{end}\n", of("/drained/unanswered"))
}

fn status(value: &Value) -> String {
    let mut text = format!(
        "stag {} ({}), pid {}, {}, up {}\n",
        word(value, "/version"),
        word(value, "/commit"),
        word(value, "/pid"),
        word(value, "/state"),
        uptime(value.get("uptime_s")),
    );
    for at in list(value, "/listen") {
        let _ = writeln!(text, "listen       {}", at.as_str().unwrap_or("-"));
    }
    for (name, pointer) in [
        ("tcp", "/tcp"),
        ("metrics", "/metrics"),
        ("log", "/log"),
        ("exports", "/exports"),
        ("connections", "/connections"),
        ("waiting", "/waiting_calls"),
    ] {
        let _ = writeln!(text, "{name:<12} {}", word(value, pointer));
    }
    text += &kerberos(value);
    let row = |(index, shard): (usize, &Value)| {
        let numbers = ["core", "node", "connections", "passes", "sleeps"];
        let numbers = numbers.map(|name| word(shard, &format!("/{name}")));
        [index.to_string()].into_iter().chain(numbers).collect::<Vec<_>>()
    };
    for (index, shard) in list(value, "/shards").enumerate() {
        let at = list(shard, "/listen").filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        let device = shard.get("device").and_then(Value::as_str);
        let device = device.map_or_else(String::new, |name| format!(" on {name}"));
        let _ = writeln!(text, "{:<12} {at}{device}", format!("shard {index}"));
    }
    let rows: Vec<_> = list(value, "/shards").enumerate().map(row).collect();
    text + &table(&["shard", " core", " node", " connections", " passes", " sleeps"], &rows)
}

/// The line of contexts, where clients have set any up.
fn kerberos(value: &Value) -> String {
    let counts = ["contexts", "waiting", "crowded", "displaced"].map(|count| {
        let of = value.pointer(&format!("/kerberos/{count}")).and_then(Value::as_u64);
        (count, of.unwrap_or(0))
    });
    if counts.iter().all(|(_, of)| *of == 0) {
        return String::new();
    }
    let counts: Vec<_> = counts.map(|(count, of)| format!("{of} {count}")).into();
    format!("{:<12} {}\n", "kerberos", counts.join(", "))
}

fn exports(value: &Value) -> String {
    let row = |export: &Value| {
        let clients: Vec<_> = list(export, "/clients").filter_map(Value::as_str).collect();
        let clients = if clients.is_empty() { "all".to_owned() } else { clients.join(" ") };
        let of = |pointer: &str| word(export, pointer);
        let space =
            |name| octets(export.pointer(&format!("/space/{name}")).unwrap_or(&Value::Null));
        let [size, available] = ["size_bytes", "available_bytes"].map(space);
        vec![of("/name"), of("/mode"), size, available, of("/source"), clients, of("/options")]
    };
    let rows = list(value, "/exports").map(row).collect::<Vec<_>>();
    let heads = ["export", "mode", " size", " available", "from", "clients", "options"];
    table_whole(&heads, &rows, "  ")
}

/// The lines of each export, which are not cut: they are copied.
fn mounts(value: &Value) -> String {
    let mut text = String::new();
    for export in list(value, "/exports") {
        let _ = writeln!(text, "# {}", word(export, "/export"));
        for mount in list(export, "/mounts") {
            let (command, fstab) = (word(mount, "/command"), word(mount, "/fstab"));
            let _ = writeln!(text, "{command}\n{fstab}");
        }
    }
    text
}

/// The heads of the table of clients.
pub const CLIENT_HEADS: [&str; 9] =
    ["id", "peer", "via", "ver", " credits", " inline", "inv", " calls", " octets"];

/// One row of the table of clients.
pub fn client_row(client: &Value) -> Vec<String> {
    let of = |pointer: &str| word(client, pointer);
    let is_rdma = client.pointer("/rdma").is_some_and(Value::is_object);
    let credits = ["used", "granted", "requested"];
    let credits = credits.map(|name| of(&format!("/rdma/credits/{name}"))).join("/");
    let inline = ["send", "receive"].map(|name| of(&format!("/rdma/inline/{name}"))).join("/");
    let dash = |text: String| if is_rdma { text } else { "-".to_owned() };
    let calls = match client.pointer("/oldest_ms").and_then(Value::as_f64) {
        Some(oldest) if oldest >= 1.0 => format!("{} {oldest:.0}ms", of("/calls")),
        _ => of("/calls"),
    };
    vec![
        of("/id"),
        cut(&of("/peer"), 21),
        of("/via"),
        of("/rdma/version"),
        dash(credits),
        dash(inline),
        of("/rdma/invalidation"),
        calls,
        octets(client.get("octets").unwrap_or(&Value::Null)),
    ]
}

fn clients(value: &Value) -> String {
    let rows: Vec<_> = list(value, "/clients").map(client_row).collect();
    match rows.is_empty() {
        true => "no connections\n".to_owned(),
        false => table(&CLIENT_HEADS, &rows) + &sessions::text(value),
    }
}

/// The operation of a call, or else its procedure.
pub fn procedure_of(timed: &Value) -> String {
    let operation = timed.get("operation").and_then(Value::as_str);
    operation.map_or_else(|| word(timed, "/procedure"), str::to_owned)
}

fn hist(value: &Value) -> String {
    let mut rows = Vec::new();
    for timed in list(value, "/procedures").chain(list(value, "/operations")) {
        for stage in list(timed, "/stages") {
            rows.push(vec![
                word(timed, "/program"),
                procedure_of(timed),
                word(stage, "/stage"),
                word(stage, "/samples"),
                micros(stage.get("p50_us")),
                micros(stage.get("p99_us")),
            ]);
        }
    }
    if rows.is_empty() {
        return "no watched calls: see --sample in 'stag serve --help'\n".to_owned();
    }
    let every = word(value, "/every");
    let note = format!("1 call in {every} is watched; p50 and p99 are ends of buckets\n");
    note + &table(&["program", "procedure", "stage", " samples", " p50", " p99"], &rows)
}

/// Microseconds in six columns at most.
fn narrow(micros: f64) -> String {
    match micros {
        ..100.0 => format!("{micros:.1}"),
        100.0..100_000.0 => format!("{micros:.0}"),
        _ => format!("{:.1}s", micros / 1e6),
    }
}

fn trace(value: &Value) -> String {
    let stage_names = ["recv", "parse", "pull", "app", "emit", "push", "send"];
    let row = |call: &Value| {
        let spent = |stage: &&str| {
            let spent = call.pointer(&format!("/stages_us/{stage}")).and_then(Value::as_f64);
            spent.map_or_else(|| "-".to_owned(), narrow)
        };
        let peer = word(call, "/peer");
        let host = peer.rsplit_once(':').map_or(peer.as_str(), |(host, _)| host);
        let total = call.get("total_us").and_then(Value::as_f64).unwrap_or(0.0);
        let own = [cut(host, 15), cut(&procedure_of(call), 11)];
        let all = own.into_iter().chain(stage_names.iter().map(spent));
        all.chain([narrow(total)]).collect::<Vec<_>>()
    };
    let rows: Vec<_> = list(value, "/calls").map(row).collect();
    if rows.is_empty() {
        return "no watched calls: see --sample in 'stag serve --help'\n".to_owned();
    }
    let stages = [" recv", " parse", " pull", " app", " emit", " push", " send", " us"];
    let head: Vec<_> = ["peer", "procedure"].into_iter().chain(stages).collect();
    "microseconds by stage; --json has ports and transactions, too\n".to_owned()
        + &table_spaced(&head, &rows, " ")
}

fn memory(value: &Value) -> String {
    let process = value.get("process").unwrap_or(&Value::Null);
    let of = |name: &str| octets(process.get(name).unwrap_or(&Value::Null));
    let limit = value.get("memlock_limit_bytes").filter(|limit| limit.is_number());
    let limit = limit.map_or_else(|| "unlimited".to_owned(), octets);
    let mut text = format!(
        "resident     {}\nlocked       {} of {limit} (ulimit -l)\ndescriptors  {} of {} (ulimit \
         -n)\nreplies kept {}\n",
        of("resident_bytes"),
        of("locked_bytes"),
        word(process, "/open_fds"),
        word(process, "/max_fds"),
        word(value, "/duplicates_kept"),
    );
    let row = |(index, shard): (usize, &Value)| {
        let of = |name: &str| octets(shard.get(name).unwrap_or(&Value::Null));
        vec![index.to_string(), of("buffers"), of("receives"), of("files")]
    };
    let rows: Vec<_> = list(value, "/shards").enumerate().map(row).collect();
    text.push_str(&table(&["shard", " buffers", " receives", " files"], &rows));
    text
}

/// Each number that is not zero, by its place in the total.
fn stats(value: &Value) -> String {
    let total = value.get("total").unwrap_or(&Value::Null);
    let mut text = String::new();
    for (keys, number) in stag_operate::metrics::path::numbers(total) {
        if number != 0.0 {
            let _ =
                writeln!(text, "{}", cut(&format!("{:<58} {number:>21}", keys.join(".")), WIDTH));
        }
    }
    text
}

fn dropped(value: &Value) -> String {
    list(value, "/dropped")
        .fold(String::new(), |text, id| format!("{text}dropped {}\n", id.as_str().unwrap_or("-")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn exports_are_shown_whole() {
        let (source, options) = ("/srv/".repeat(20), "squash=all sec=krb5p,krb5i".to_owned());
        let export = json!({
            "name": "/data", "mode": "rw", "source": source, "clients": ["10.0.0.0/8"],
            "options": options,
        });
        let text = text(&Request::Exports, &json!({ "exports": [export] }));
        assert!(widest(&text) > WIDTH && text.ends_with(&format!("{options}\n")), "{text}");
    }

    #[test]
    fn clients_fit_80_columns_whoever_they_are() {
        let longest = json!({
            "id": "12.1023.4294967295", "peer": "[2001:db8:1111:2222:3333:4444:5555:6666]:65535",
            "via": "iwarp",
            "rdma": {
                "version": 1, "credits": {"requested": 1024, "granted": 64, "used": 64},
                "inline": {"send": 4096, "receive": 4096}, "invalidation": "named",
            },
            "calls": 64, "oldest_ms": 12_345.6, "octets": 123_456_789_012_u64,
        });
        let over_tcp = json!({
            "id": "0.1.1", "peer": "10.0.0.1:700", "via": "tcp", "rdma": null, "calls": 0,
            "oldest_ms": null, "octets": 7,
        });
        let text = text(&Request::Clients, &json!({ "clients": [longest, over_tcp] }));
        assert!(widest(&text) <= WIDTH, "{text}");
        assert!(text.contains("64/64/1024") && text.contains("10.0.0.1:700"), "{text}");
        let empty = super::text(&Request::Clients, &json!({ "clients": [] }));
        assert_eq!(empty, "no connections\n");
    }

    #[test]
    fn each_shard_says_its_core_its_node_and_its_device() {
        let shard = |core: u64, device: Value| {
            json!({
                "core": core, "node": 1, "listen": ["rdma://10.0.0.1:20049"], "device": device,
                "connections": 64, "passes": 18_446_744_073_709_551_615_u64, "sleeps": 7,
            })
        };
        let shards = json!([shard(12, json!("mlx5_0")), shard(13, Value::Null)]);
        let text = text(&Request::Status, &json!({ "shards": shards }));
        assert!(widest(&text) <= WIDTH, "{text}");
        for line in [
            "shard 0      rdma://10.0.0.1:20049 on mlx5_0",
            "shard 1      rdma://10.0.0.1:20049",
            "0        12     1           64  18446744073709551615       7",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is in {text}");
        }
    }

    #[test]
    fn the_status_counts_contexts_of_kerberos_where_there_were_any() {
        let status = |contexts: u64, crowded: u64| {
            let counts = json!({
                "contexts": contexts, "waiting": 0, "crowded": crowded, "displaced": 16_384,
            });
            text(&Request::Status, &json!({ "kerberos": counts }))
        };
        let line = "kerberos     16384 contexts, 0 waiting, 7 crowded, 16384 displaced";
        let text_of_some = status(16_384, 7);
        assert!(text_of_some.lines().any(|shown| shown == line), "{text_of_some}");
        assert!(widest(&text_of_some) <= WIDTH);
        let none = json!({ "contexts": 0, "waiting": 0, "crowded": 0, "displaced": 0 });
        let none = text(&Request::Status, &json!({ "kerberos": none }));
        assert!(!none.contains("kerberos"), "{none}");
    }

    #[test]
    fn calls_with_long_times_fit_80_columns() {
        let call = json!({
            "xid": "ffffffff", "peer": "255.255.255.255:65535", "procedure": "READDIRPLUS",
            "stages_us": {"recv": 1.5, "parse": 0.2, "app": 12_345.67, "emit": 0.1, "send": 3.0},
            "total_us": 12_350.0,
        });
        let text = text(&Request::Trace { last: 1 }, &json!({ "calls": [call] }));
        assert!(widest(&text) <= WIDTH && text.contains("12346"), "{text}");
        assert!(!text.contains('…') && text.contains("\n255.255.255.255 READDIRPLUS "), "{text}");
    }

    #[test]
    fn compounds_are_shown_by_their_operation() {
        let total = json!([{"stage": "total", "samples": 7, "p50_us": 8.0, "p99_us": 16.0}]);
        let hist = json!({
            "every": 64,
            "procedures": [{"program": "nfs4", "procedure": "COMPOUND", "stages": total}],
            "operations": [{"program": "nfs4", "operation": "OpenDowngrade", "stages": total}],
        });
        let text = super::text(&Request::Hist, &hist);
        let rows: Vec<Vec<_>> = text.lines().map(|it| it.split_whitespace().collect()).collect();
        let times = |name| vec!["nfs4", name, "total", "7", "8.0", "us", "16.0", "us"];
        assert_eq!(rows[2..], [times("COMPOUND"), times("OpenDowngrade")], "{text}");
        let call = json!({
            "peer": "10.0.0.1:700", "procedure": "COMPOUND", "operation": "OpenDowngrade",
            "stages_us": {"app": 1.5}, "total_us": 1.5,
        });
        let text = super::text(&Request::Trace { last: 1 }, &json!({ "calls": [call] }));
        assert!(text.contains("\n10.0.0.1") && text.contains(" OpenDowngr… "), "{text}");
    }

    #[test]
    fn quantities_have_units_that_people_read() {
        let cases =
            [(0_u64, "0 B"), (999, "999 B"), (1_000, "1.0 KiB"), (53_687_091_200, "50 GiB")];
        for (count, written) in cases {
            assert_eq!(octets(&json!(count)), written);
        }
        assert_eq!(octets(&Value::Null), "-");
        assert_eq!(micros(Some(&json!(12.34))), "12.3 us");
        assert_eq!(micros(Some(&json!(2_500.0))), "2.5 ms");
        assert_eq!(uptime(Some(&json!(93_784.5))), "1 d 02:03:04");
    }
}
