//! Settings in a file: they take effect, flags override them, and errors are reported with file
//! and line before anything starts.

use crate::support::{Home, Server};
use std::{fs, os::unix::fs::symlink, process::Output};

const FREE: &str = "listen = [\"iwarp://127.0.0.1:0\"]\ntcp = \"127.0.0.1:0\"\ninsecure = true\n\
                    mode = \"unprivileged\"\n";

/// A home with a file of settings.
fn home(settings: &str) -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("other/data")).unwrap();
    fs::write(home.path("stag.toml"), settings).unwrap();
    home
}

fn serve(home: &Home, arguments: &[&str]) -> Server {
    let all = [&["serve", "--config", "stag.toml"], arguments].concat();
    Server::start(home, home.stag(&all))
}

fn exports(server: &Server) -> Vec<String> {
    let out = server.out();
    out.lines().filter_map(|line| line.strip_prefix("EXPORT ")).map(str::to_owned).collect()
}

/// Lists an export.
fn ls(home: &Home, server: &Server, export: &str) -> Output {
    let url = format!("tcp://{}/{export}", server.line("TCP"));
    home.run(&["call", &url, "ls"])
}

#[test]
fn a_file_says_what_is_served_under_which_names_and_to_whom() {
    let home = home(&format!(
        "{FREE}\n[limits]\nconnections = 16\nbuffers = \"32M\"\n\
         [[export]]\npath = \"data\"\nname = \"p/alpha\"\n\
         [[export]]\npath = \"other/data\"\naccess = \"ro\"\nclients = [\"10.0.0.0/8\"]\n"
    ));
    let server = serve(&home, &[]);
    assert_eq!(exports(&server), ["/p/alpha rw", "/data ro"]);
    let listed = ls(&home, &server, "p/alpha");
    assert!(listed.status.success(), "{listed:?}\n{}", server.err());
    assert!(!ls(&home, &server, "data").status.success(), "127.0.0.1 is none of its clients");
    server.wait_for_err("refused: not among the export's clients");
    assert!(server.err().contains("at most 16 RDMA connections"), "{}", server.err());
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
}

#[test]
fn flags_override_the_file() {
    let home = home(&format!(
        "{FREE}nfs = [3, 4]\nlease = 40\n[log]\nlevel = \"debug\"\n\
         [[export]]\npath = \"data\"\n"
    ));
    let server = serve(&home, &["x=other/data"]);
    assert_eq!(exports(&server), ["/x rw"], "directories of the command line are all there is");
    let output = home.run(&["config", "show", "--config", "stag.toml", "--sample", "7"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "listen = [\"iwarp://127.0.0.1:0\"]  # stag.toml:1",
        "tcp = \"127.0.0.1:0\"  # stag.toml:2",
        "sample = 7  # flag",
        "cores = 1  # default",
        "nfs = [\"3\",\"4\"]  # stag.toml:5",
        "lease = 40  # stag.toml:6",
        "level = \"debug\"  # stag.toml:8",
        "format = \"text\"  # default",
        "#metrics = \"127.0.0.1:0\"  # default",
        "#drain = 3  # default",
        "# clients is not set",
        "[[export]]  # stag.toml:9",
        "path = \"data\"  # stag.toml:10",
        "access = \"rw\"  # default",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing:\n{text}");
    }
    fs::write(home.path("shown.toml"), &text).unwrap();
    let output = home.run(&["config", "show", "--config", "shown.toml", "--json"]);
    assert!(output.status.success(), "what is shown can be read again: {output:?}");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = shown["settings"].as_array().unwrap();
    let sample = settings.iter().find(|setting| setting["key"] == "sample").unwrap();
    assert_eq!((&sample["value"], &sample["from"]["kind"]), (&7.into(), &"file".into()));
}

#[test]
fn values_of_the_environment_and_defaults_that_follow_from_others_are_shown_with_their_origin() {
    let home = home(
        "[[export]]\npath = \"data\"\nslow = true\nclients = [\n  \"::1\",\n  { \
                     networks = [\"10.0.0.0/8\"], access = \"ro\" },\n]\n\n[[export]]\npath = \
                     \"other/data\"\nname = \"x\"\ndelegations = \"exclusive\"\n",
    );
    let show = |arguments: &[&str]| {
        let all = [&["config", "show", "--config", "stag.toml"], arguments].concat();
        let output = home.stag(&all).env("STAG_LOG", "debug").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = show(&["--connections", "2000"]);
    let control = format!("#control = \"{}\"  # default", home.text("state/control.sock"));
    let state = format!("state-dir = \"{}\"  # environment STAG_STATE_DIR", home.text("state"));
    for line in [
        "level = \"debug\"  # environment STAG_LOG",
        &state,
        &control,
        "#tcp = \"127.0.0.1:2049\"  # default",
        "#metrics = \"127.0.0.1:9464\"  # default",
        "#mode = \"auto\"  # default",
        "connections = 2000  # flag",
        "#receives = 8000  # default",
        "#calls = 9024  # default",
        "#spin = 100  # default",
        "slow = true  # stag.toml:3",
        "clients = [  # stag.toml:4",
        "  { networks = [\"::1/128\"] },  # stag.toml:5",
        "  { access = \"ro\", networks = [\"10.0.0.0/8\"] },  # stag.toml:6",
        "name = \"x\"  # stag.toml:11",
        "delegations = \"exclusive\"  # stag.toml:12",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing:\n{text}");
    }
    fs::write(home.path("shown.toml"), &text).unwrap();
    let output = home.run(&["config", "show", "--config", "shown.toml", "--json"]);
    assert!(output.status.success(), "what is shown can be read again: {output:?}\n{text}");
    let shown: serde_json::Value = serde_json::from_str(&show(&["--json"])).unwrap();
    let find = |key: &str| {
        let settings = shown["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["key"] == key).unwrap().clone()
    };
    assert_eq!(find("level")["from"]["variable"], "STAG_LOG");
    assert_eq!(find("mode")["value"], "auto");
    let export = &shown["exports"][0];
    assert_eq!((&export["lines"]["slow"], &export["clients"][1]["line"]), (&3.into(), &6.into()));
    let memory = show(&["--memory", "1M"]);
    for line in ["#control = \"none\"  # default", "# mode is not set", "# state-dir is not set"] {
        assert!(memory.lines().any(|found| found == line), "{line} is missing:\n{memory}");
    }
}

#[test]
fn two_directories_of_one_last_name_and_a_symbolic_link_have_names_of_their_own() {
    let home = home("");
    symlink("other/data", home.path("link")).unwrap();
    let server = home.serve(&["data", "q/beta=other/data:ro", "link"]);
    assert_eq!(exports(&server), ["/data rw", "/q/beta ro", "/link rw"]);
    for export in ["data", "q/beta", "link"] {
        let listed = ls(&home, &server, export);
        assert!(listed.status.success(), "{export}: {listed:?}\n{}", server.err());
    }
    let said = "notice: /q/beta and /link are one directory";
    assert!(
        server.err().contains(said) || server.err().contains("/link and /q/beta"),
        "{}",
        server.err()
    );
}

#[test]
fn all_faults_of_a_file_are_listed_at_once() {
    let text = "cores = \"two\"\nclienst = []\nport = 1\n[limits]\ncredits = 0\n[[export]]\n\
                path = \"data\"\nacess = \"ro\"\n";
    let output = home(text).run(&["serve", "--config", "stag.toml", "--check"]);
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8(output.stderr).unwrap();
    for (line, part) in [
        (1, "it has to be a whole number"),
        (2, "nothing is called \"clienst\""),
        (3, "nothing is called \"port\""),
        (5, "invalid value '0' for '--credits"),
        (8, "nothing is called \"acess\""),
    ] {
        let place = format!("stag.toml:{line}: ");
        let said = err.lines().find(|said| said.contains(&place)).unwrap_or_default();
        assert!(said.contains(part), "line {line}: {err}");
    }
    assert_eq!(err.lines().count(), 5, "{err}");
    // The command line has another value for this one.
    let home = home("lease = \"x\"\n[[export]]\npath = \"data\"\n");
    let output = home.run(&["serve", "--config", "stag.toml", "--lease", "30", "--check"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_file_that_is_wrong_stops_the_start_with_its_line_and_what_to_write() {
    for (text, expected) in [
        ("clienst = []", "stag.toml:1: nothing is called \"clienst\" here: is it \"clients\"?"),
        ("\n[limits]\nconections = 1", "stag.toml:3: nothing is called \"conections\" here: is it"),
        ("credits = 1", "stag.toml:1: credits stands in the table [limits]"),
        ("log = \"debug\"", "stag.toml:1: log stands in the table [log], as level"),
        ("[log]\nlevel = \"loud\"", "stag.toml:2: --log: \"loud\" is no level: write error, warn"),
        ("[log]\nlog = \"info\"", "stag.toml:2: log stands in the table [log], as level"),
        ("[log]\nformat = \"xml\"", "stag.toml:2: invalid value 'xml' for '--log-format"),
        ("nfs = [5]", "stag.toml:1: "),
        ("lease = 5", "stag.toml:1: invalid value '5' for '--lease <SECONDS>'"),
        ("[limits]\ncores = 1", "stag.toml:2: cores stands at the top of the file"),
        ("cores = 1\ncores = 2", "stag.toml:2: duplicate key"),
        ("cores = ", "stag.toml:1: "),
        ("cores = 0", "stag.toml:1: invalid value '0' for '--cores <N>'"),
        ("cores = true", "stag.toml:1: invalid value"),
        ("stages = 1", "stag.toml:1: stages has to be true or false"),
        ("clients = [\"10.0.0.1/8\"]", "stag.toml:1: 10.0.0.1/8 in --clients has bits behind"),
        ("insecure = false", "there is nothing to serve: add an export, [[export]]"),
        ("[limits]\nbuffers = \"1M\"", "stag.toml:2: --buffers of "),
        ("[limits]\nmemory-max = \"1M\"", "stag.toml:2: this server needs "),
        ("[limits]\nconnections = 99999999", "stag.toml:2: "),
        ("export = 1", "write each export as a table of its own, [[export]]"),
        ("[[export]]\nname = \"x\"", "stag.toml:1: this export has no path"),
        ("[[export]]\npath = \"gone\"", "stag.toml:1: the directory gone does not exist"),
        ("[[export]]\npath = \"data\"\nname = \"a//b\"", "stag.toml:1: "),
        ("[[export]]\npath = \"data\"\nacess = \"ro\"", "stag.toml:3: nothing is called \"acess\""),
        ("[[export]]\npath = \"data\"\naccess = \"r\"", "stag.toml:3: write \"ro\" or \"rw\""),
        ("[[export]]\npath = \"data\"\nread-max = \"5K\"", "stag.toml:3: read-max: 5K has to be a"),
        ("[[export]]\npath = \"data\"\nclients = []", "stag.toml:3: an empty list admits nobody"),
        (
            "[[export]]\npath = \"data\"\nclients = [{ squash = \"all\" }]",
            "stag.toml:3: these clients have no networks",
        ),
        (
            "[[export]]\npath = \"data\"\nclients = [\"::1\", \"::1\"]",
            "stag.toml:3: ::1/128 is given twice",
        ),
        (
            "mode = \"unprivileged\"\n[[export]]\npath = \"data\"\nsquash = \"all\"",
            "stag.toml:4: squash of an export means nothing with --mode unprivileged",
        ),
        (
            "mode = \"unprivileged\"\n[[export]]\npath = \"data\"\nanongid = 7",
            "stag.toml:4: anongid of an export means nothing",
        ),
        (
            "mode = \"unprivileged\"\n[[export]]\npath = \"data\"\n\
             clients = [{ networks = [\"::1\"], anonuid = 7 }]",
            "stag.toml:4: anonuid of an export means nothing",
        ),
        ("[[export]]\npath = \"data\"\n\n[[export]]\npath = \"other/data\"", "stag.toml:4: "),
        (
            "[[listen]]\nurl = \"iwarp://127.0.0.1:0\"\ncores = 1\n[[listen]]\nurl = \
             \"iwarp://127.0.0.1:0\"\ncores = 2\n[[export]]\npath = \"data\"",
            "stag.toml:4: all listeners of iwarp:// share its cores, and line 1 says 1",
        ),
    ] {
        let needs_export = text.starts_with("[limits]") || text.starts_with("clients");
        let rest = if needs_export { "\n[[export]]\npath = \"data\"\n" } else { "" };
        let home = home(&format!("{text}{rest}"));
        for more in [&[][..], &["--check"]] {
            let sentence = home.refused(&[&["serve", "--config", "stag.toml"], more].concat());
            assert!(sentence.contains(expected), "{text}: {sentence}");
        }
    }
    let home = home("");
    let sentence = home.refused(&["serve", "--config", "none.toml"]);
    assert!(sentence.contains("'stag config example' prints a file"), "{sentence}");
}

#[test]
fn what_this_host_cannot_give_is_found_by_a_check_as_by_a_start() {
    const OTHER: &str = "clients = [\"10.0.0.0/8\"]\n";
    for (text, expected) in [
        ("metrics = \"here\"", "stag.toml:1: --metrics \"here\": write IP:PORT, or none"),
        (
            "metrics = \"192.0.2.1:9464\"",
            "stag.toml:1: cannot listen at 192.0.2.1:9464: it is no address of this host; choose \
             another with --metrics",
        ),
        (
            "control = \"data\"",
            "stag.toml:1: cannot make the control socket data: it exists and is no socket",
        ),
        ("control = \"no/x\"", "stag.toml:1: cannot make the control socket no/x: no such file"),
        ("control-group = \"no:such\"", "stag.toml:1: --control-group \"no:such\""),
        (
            &format!("{OTHER}listen = [\"iwarp://127.0.0.1:0\", \"iwarp://192.0.2.1:20049\"]"),
            "stag.toml:2: cannot listen at iwarp://192.0.2.1:20049: it is no address of this host",
        ),
        (
            &format!(
                "{OTHER}[[listen]]\nurl = \"iwarp://127.0.0.1:0\"\n[[listen]]\nurl = \
                 \"iwarp://192.0.2.1:20049\""
            ),
            "stag.toml:4: cannot listen at iwarp://192.0.2.1:20049: it is no address of this host",
        ),
        (
            &format!("{OTHER}tcp = \"192.0.2.1:2049\""),
            "stag.toml:2: cannot listen at 192.0.2.1:2049: it is no address of this host; choose \
             another with --tcp",
        ),
        ("listen = [\"shm:///no/such/x\"]", "stag.toml:1: cannot listen at shm:///no/such/x: "),
        // Without privileges it is the mode that cannot be had.
        ("mode = \"privileged\"\nshm-allow = [4711]", "stag.toml:"),
        ("exit-with = 2147483647", "stag.toml:1: --exit-with 2147483647: there is no such process"),
        ("listen = [\"udp://127.0.0.1:1\"]", "stag.toml:1: --listen \"udp://127.0.0.1:1\": this"),
        ("stats = \"no/x\"", "stag.toml:1: --stats: cannot write statistics to no/x: "),
        ("ready-file = \"no/x\"", "stag.toml:1: --ready-file: cannot write the READY block to"),
        (
            "tls-key = \"key.pem\"\ntls-cert = \"no.pem\"",
            "stag.toml:2: --tls-cert: cannot read no.pem",
        ),
        ("tcp = \"0.0.0.0:0\"", "stag.toml:1: --tcp 0.0.0.0:0 can be reached from other hosts"),
        (
            "listen = [\"iwarp://0.0.0.0:0\"]",
            "stag.toml:1: --listen 0.0.0.0:0 can be reached from other hosts: say who may connect",
        ),
        ("state-dir = \"stag.toml/x\"", "stag.toml:1: cannot make the state directory"),
        ("rpcbind = true", "stag.toml:1: --rpcbind: cannot ask rpcbind at"),
        ("[limits]\nbuffers = \"100T\"", "stag.toml:2: --buffers of 104857"),
        ("[limits]\nconnections = 99999999", "stag.toml:2: --connections 99999999 is more than"),
        ("nfs = [4]\ndelegations = [\"gone=exclusive\"]", "stag.toml:2: --delegations gone="),
    ] {
        let home = home(&format!("{text}\n[[export]]\npath = \"data\"\n"));
        for more in [&[][..], &["--check"]] {
            let mut command = home.stag(&[&["serve", "--config", "stag.toml"], more].concat());
            let output = command.env("STAG_RPCBIND_SOCKET", home.path("none")).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(output.stdout.is_empty() && !output.status.success(), "{text}: {said}");
            let expected = format!("stag: {expected}");
            assert!(said.starts_with(&expected), "{text}: {said} instead of {expected}");
        }
    }
    let home = home("[[export]]\npath = \"data\"\n");
    for more in [&[][..], &["--check"]] {
        let mut command = home.stag(&[&["serve", "--config", "stag.toml"], more].concat());
        let output = command.env("STAG_LOG", "bogus").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("stag: STAG_LOG: \"bogus\" is no level: write error"), "{said}");
    }
}

#[test]
fn a_server_that_runs_stands_in_no_way_of_a_check_of_its_settings() {
    let home = home(&format!("{FREE}[[export]]\npath = \"data\"\n"));
    let server = serve(&home, &[]);
    let (control, metrics) = (server.line("CONTROL"), server.line("METRICS"));
    let metrics = metrics.trim_start_matches("http://").trim_end_matches("/metrics");
    let settings = format!(
        "listen = [\"{}\"]\ntcp = \"{}\"\nmetrics = \"{metrics}\"\ncontrol = \
         \"{control}\"\nmode = \"unprivileged\"\ninsecure = true\n[[export]]\npath = \"data\"\n",
        server.line("LISTEN"),
        server.line("TCP")
    );
    fs::write(home.path("same.toml"), settings).unwrap();
    let output = home.run(&["serve", "--config", "same.toml", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = home.run(&["ctl", "status"]);
    assert_eq!(output.status.code(), Some(0), "the socket is there: {output:?}");
}

#[test]
fn an_export_says_itself_that_nobody_else_changes_it() {
    let export = "[[export]]\npath = \"data\"\ndelegations = \"exclusive\"\n";
    let check = |text: &str| {
        let home = home(text);
        let output = home.run(&["serve", "--config", "stag.toml", "--check"]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(check(&format!("{FREE}nfs = [4]\n{export}")).0, Some(0));
    let same = "nfs = [4]\ndelegations = [\"data=exclusive\"]\n";
    assert_eq!(check(&format!("{FREE}{same}{export}")).0, Some(0), "both say the same");
    for (text, expected) in [
        (
            "nfs = [3]\n",
            "stag.toml:4: --delegations are of version 4: leave --nfs 3 out, or write --nfs 3,4",
        ),
        (
            "nfs = [4]\ndelegations = [\"data=none\"]\n",
            "stag.toml:2: --delegations data=none: the export says otherwise at stag.toml:5: leave \
             one of them out",
        ),
    ] {
        let (code, said) = check(&format!("{text}{export}"));
        assert_eq!((code, said.contains(expected)), (Some(2), true), "{text}: {said}");
    }
    let watched = export.replace("exclusive", "watched");
    assert_eq!(check(&format!("{FREE}nfs = [4]\n{watched}")).0, Some(0));
    let (code, said) = check(&format!("nfs = [4]\n{watched}slow = true\n"));
    let expected = "stag.toml:4: an export whose calls wait (slow) cannot be watched";
    assert_eq!((code, said.contains(expected)), (Some(2), true), "{said}");
    let (_, said) = check(&format!("nfs = [4]\n{}", export.replace("exclusive", "some")));
    assert!(
        said.contains("stag.toml:4: write \"exclusive\", \"watched\" or \"none\" instead of"),
        "{said}"
    );
}

#[test]
fn a_check_changes_nothing_and_says_what_would_be_served() {
    let home = home(&format!("{FREE}[[export]]\npath = \"data\"\n"));
    let output = home.run(&["serve", "--config", "stag.toml", "--check"]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(out.contains("export /data = ") && out.ends_with("without a start\n"), "{out}");
    assert!(!home.path("state").exists());
}

#[test]
fn the_example_is_a_file_that_a_server_could_be_started_with() {
    let home = home("");
    let example = home.run(&["config", "example"]).stdout;
    let text = String::from_utf8(example).unwrap().replace("/srv/data", &home.text("data"));
    fs::write(home.path("stag.toml"), text).unwrap();
    let output = home.run(&["serve", "--config", "stag.toml", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
