//! Settings as text, a settings file with a comment after each value, and as JSON.

use super::options::ShowSettings;
use crate::{
    rpcbind,
    serve::{ComputedDefault, computed},
    settings::{
        ClientPlace, ExportEntry, ListenEntry, Merged, Origins, ValueOrigin, key_of, section_of,
    },
};
use clap::{Arg, ArgAction, Command};
use serde_json::{Value, json};
use stag_nfs_store::exports::client_rules::{ClientOptions, ClientRule, Squash};
use std::fmt::Write as _;

/// Flags that are not settings: they say what to do with the settings.
const COMMANDS: [&str; 4] = ["config", "check", "name", "help"];

/// Flags that are settings.
pub fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_shown = |flag: &&Arg| {
        flag.get_long().is_some_and(|name| !COMMANDS.contains(&name)) && !flag.is_hide_set()
    };
    command.get_arguments().filter(is_shown)
}

/// One setting.
struct Setting {
    key: String,
    section: Option<String>,
    /// None: it was not given, and has no default.
    value: Option<Value>,
    origin: ValueOrigin,
    /// The value is a default that follows from other settings and from this host.
    is_computed: bool,
}

fn settings(merged: &Merged<ShowSettings>, command: &Command) -> Vec<Setting> {
    let defaults = computed(&merged.options.serve, &merged.listen, &merged.origins);
    let mut all: Vec<Setting> =
        shown(command).map(|flag| setting(merged, flag, &defaults)).collect();
    // Those at the top come first, as in a file.
    all.sort_by_key(|setting| setting.section.clone());
    all
}

fn setting(merged: &Merged<ShowSettings>, flag: &Arg, defaults: &[ComputedDefault]) -> Setting {
    let name = flag.get_long().unwrap_or_default();
    let id = flag.get_id().as_str();
    let value = if name == "listen" && !merged.listen.is_empty() {
        Some(merged.listen.iter().map(listener).collect())
    } else if matches!(flag.get_action(), ArgAction::SetTrue) {
        Some(Value::Bool(merged.matches.get_flag(id)))
    } else {
        let raw = merged.matches.get_raw(id);
        let words = raw.map(|words| words.map(|word| word.to_string_lossy().into_owned()));
        words.map(|words| match flag.get_action() {
            ArgAction::Append => words.map(Value::String).collect(),
            _ => scalar(&words.collect::<Vec<_>>().join(",")),
        })
    };
    let (origin, section, key) = (merged.origins.of_flag(name), section_of(flag), key_of(flag));
    let default = defaults.iter().find(|it| it.flag == name).filter(|_| value.is_none());
    match default {
        None => Setting { origin, section, key, value, is_computed: false },
        Some(default) => Setting {
            origin: default
                .variable
                .map_or(origin, |variable| merged.origins.of_variable(name, variable)),
            section,
            key,
            value: Some(scalar(&default.value)),
            is_computed: default.variable.is_none(),
        },
    }
}

/// A listener with its cores, if it says how many.
fn listener(entry: &ListenEntry) -> Value {
    match entry.cores {
        Some(cores) => json!({ "url": entry.url, "cores": cores }),
        None => json!({ "url": entry.url }),
    }
}

/// A number where it is one.
fn scalar(text: &str) -> Value {
    let number = text.parse::<u64>().map(Value::from);
    number.unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The settings as a file, with the place of each value as a comment.
pub fn text(merged: &Merged<ShowSettings>, command: &Command) -> String {
    let mut text = String::new();
    let mut section = None;
    for setting in settings(merged, command) {
        if setting.section != section {
            section.clone_from(&setting.section);
            let _ = writeln!(text, "\n[{}]", section.as_deref().unwrap_or_default());
        }
        let place = place(&merged.origins, setting.origin);
        let _ = match &setting.value {
            // JSON's texts, numbers and lists are TOML's; its tables are not.
            Some(Value::Array(all)) if all.iter().any(Value::is_object) => {
                let all: Vec<_> = all.iter().map(inline).collect();
                writeln!(text, "{} = [{}]  # {place}", setting.key, all.join(", "))
            }
            Some(value) if setting.is_computed => {
                // Not in force: what it follows from may change.
                writeln!(text, "#{} = {value}  # {place}", setting.key)
            }
            Some(value) => writeln!(text, "{} = {value}  # {place}", setting.key),
            None => writeln!(text, "# {} is not set", setting.key),
        };
    }
    if let Some(socket) = rpcbind::named_socket().filter(|_| merged.options.serve.rpcbind) {
        let place = place(&merged.origins, ValueOrigin::Variable(rpcbind::SOCKET_VARIABLE));
        let _ = writeln!(text, "\n# rpcbind is asked at {}  # {place}", socket.display());
    }
    for directory in &merged.options.serve.directories {
        let shown = Value::String(directory.to_string_lossy().into_owned());
        let _ = writeln!(text, "\n[[export]]  # flag\npath = {shown}");
    }
    for export in &merged.exports {
        let _ = write!(text, "\n{}", export_text(&merged.origins, export));
    }
    text
}

fn place(origins: &Origins, origin: ValueOrigin) -> String {
    match origin {
        ValueOrigin::Default => "default".to_owned(),
        ValueOrigin::Flag => "flag".to_owned(),
        ValueOrigin::Line(line) => origins.at(line),
        ValueOrigin::Variable(name) => format!("environment {name}"),
    }
}

fn export_text(origins: &Origins, export: &ExportEntry) -> String {
    let mut text = format!("[[export]]  # {}\n", origins.at(export.line));
    let Value::Object(fields) = export_json(origins, export) else { return text };
    for (key, value) in fields.iter().filter(|(key, _)| !["from", "lines"].contains(&&***key)) {
        let line = export.keys.iter().find(|(known, _)| known == key);
        let place = place(origins, line.map_or(ValueOrigin::Default, |it| ValueOrigin::Line(it.1)));
        let _ = match value {
            Value::Array(_) if key == "clients" => {
                let clients = client_lines(origins, export);
                writeln!(text, "{key} = [  # {place}\n{clients}]")
            }
            other => writeln!(text, "{key} = {other}  # {place}"),
        };
    }
    text
}

/// Clients of an export, each on a line of its own with its place.
fn client_lines(origins: &Origins, export: &ExportEntry) -> String {
    let mut text = String::new();
    for (rule, place) in export.rules.clients.iter().zip(&export.client_places) {
        let client = inline(&Value::Object(client_fields(rule)));
        let elsewhere =
            place.keys.iter().filter(|(key, at)| key != "networks" && *at != place.line);
        let elsewhere: String =
            elsewhere.map(|(key, line)| format!(", {key} {}", origins.at(*line))).collect();
        let _ = writeln!(text, "  {client},  # {}{elsewhere}", origins.at(place.line));
    }
    text
}

/// A table on one line.
fn inline(value: &Value) -> String {
    let Value::Object(fields) = value else { return value.to_string() };
    let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", fields.join(", "))
}

/// The settings as one JSON object.
pub fn json(merged: &Merged<ShowSettings>, command: &Command) -> String {
    let origins = &merged.origins;
    let settings: Vec<_> = settings(merged, command)
        .into_iter()
        .map(|setting| {
            json!({
                "key": setting.key,
                "section": setting.section,
                "value": setting.value,
                "from": from(origins, setting.origin),
            })
        })
        .collect();
    let directories = merged.options.serve.directories.iter().map(|directory| {
        json!({ "path": directory.to_string_lossy(), "from": from(origins, ValueOrigin::Flag) })
    });
    let exports = merged.exports.iter().map(|export| export_json(origins, export));
    let exports: Vec<_> = directories.chain(exports).collect();
    format!("{:#}\n", json!({ "version": 1, "settings": settings, "exports": exports }))
}

fn from(origins: &Origins, origin: ValueOrigin) -> Value {
    match origin {
        ValueOrigin::Default => json!({ "kind": "default" }),
        ValueOrigin::Flag => json!({ "kind": "flag" }),
        ValueOrigin::Line(line) => json!({ "kind": "file", "file": origins.file(), "line": line }),
        ValueOrigin::Variable(name) => json!({ "kind": "environment", "variable": name }),
    }
}

fn export_json(origins: &Origins, export: &ExportEntry) -> Value {
    let rules = &export.rules;
    let mut fields = options_json(&rules.options);
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            fields.insert(key.to_owned(), value);
        }
    };
    put("path", json!(export.path));
    put("name", json!(export.name));
    put("access", json!(access(export.read_only)));
    put("slow", if export.is_slow { json!(true) } else { Value::Null });
    put("mountpoint", if export.is_mountpoint { json!(true) } else { Value::Null });
    put("read-max", json!(rules.read_max));
    put("write-max", json!(rules.write_max));
    put("delegations", json!(export.delegations.map(|it| it.rule.word())));
    let clients = rules.clients.iter().zip(&export.client_places);
    let clients: Vec<_> = clients.map(|(rule, place)| client_json(rule, place)).collect();
    put("clients", if clients.is_empty() { Value::Null } else { json!(clients) });
    put("from", from(origins, ValueOrigin::Line(export.line)));
    put("lines", lines_json(&export.keys));
    Value::Object(fields)
}

/// Keys of a table, with their lines.
fn lines_json(keys: &[(String, usize)]) -> Value {
    Value::Object(keys.iter().map(|(key, line)| (key.clone(), json!(line))).collect())
}

fn client_json(rule: &ClientRule, place: &ClientPlace) -> Value {
    let mut fields = client_fields(rule);
    fields.insert("line".to_owned(), json!(place.line));
    fields.insert("lines".to_owned(), lines_json(&place.keys));
    Value::Object(fields)
}

fn client_fields(rule: &ClientRule) -> serde_json::Map<String, Value> {
    let mut fields = options_json(&rule.options);
    fields.insert("networks".to_owned(), json!([rule.network.to_string()]));
    fields
}

/// Options that are set.
fn options_json(options: &ClientOptions) -> serde_json::Map<String, Value> {
    let ClientOptions { read_only, squash, anon_uid, anon_gid, insecure, security } = *options;
    let word = |squash| match squash {
        Squash::Root => "root",
        Squash::None => "none",
        Squash::All => "all",
    };
    let fields = [
        ("access", read_only.map(|it| json!(access(it)))),
        ("squash", squash.map(|it| json!(word(it)))),
        ("anonuid", anon_uid.map(|it| json!(it))),
        ("anongid", anon_gid.map(|it| json!(it))),
        ("insecure", insecure.map(|it| json!(it))),
        ("sec", security.map(|it| it.list().iter().map(|flavor| flavor.word()).collect())),
    ];
    let set = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    set.collect()
}

const fn access(is_read_only: bool) -> &'static str {
    if is_read_only { "ro" } else { "rw" }
}
