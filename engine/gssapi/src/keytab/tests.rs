//! Keytabs by hand: whole ones, cut ones, changed ones.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// An entry as MIT writes it.
fn entry(principal: &[&str], enctype: u16, version: u32) -> Vec<u8> {
    let (realm, components) = principal.split_last().unwrap();
    let mut body = (components.len() as u16).to_be_bytes().to_vec();
    for text in [realm].into_iter().chain(components) {
        body.extend((text.len() as u16).to_be_bytes());
        body.extend(text.as_bytes());
    }
    body.extend([0, 0, 0, 1, 0x6a, 0, 0, 0, version as u8]);
    body.extend(enctype.to_be_bytes());
    body.extend([0, 16]);
    body.extend([0x5a; 16]);
    body.extend(version.to_be_bytes());
    [&(body.len() as i32).to_be_bytes()[..], &body].concat()
}

fn keytab(entries: &[Vec<u8>]) -> Vec<u8> {
    [&[5, 2][..], &entries.concat()].concat()
}

fn usual() -> Vec<u8> {
    let hole = [&(-20_i32).to_be_bytes()[..], &[0; 20]].concat();
    keytab(&[
        entry(&["nfs", "a.example", "REALM"], 20, 3),
        hole,
        entry(&["nfs", "a.example", "REALM"], 18, 300),
        entry(&["host", "a.example", "REALM"], 17, 1),
        entry(&["nfs", "b.example", "REALM"], 23, 1),
    ])
}

fn inspected(content: &[u8]) -> Result<ServicePrincipals, String> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("keytab");
    fs::write(&path, content).unwrap();
    let named =
        |problem: KeytabProblem| problem.to_string().replace(&path.display().to_string(), "FILE");
    inspect(&path, "nfs").map_err(named)
}

#[test]
fn principals_and_accepted_types_are_listed_and_holes_are_skipped() {
    let entries = parse(&usual()).unwrap();
    let listed: Vec<_> = entries.iter().map(|e| (e.principal(), e.version, e.enctype)).collect();
    assert_eq!(
        listed,
        [
            ("nfs/a.example@REALM".to_owned(), 3, 20),
            ("nfs/a.example@REALM".to_owned(), 300, 18),
            ("host/a.example@REALM".to_owned(), 1, 17),
            ("nfs/b.example@REALM".to_owned(), 1, 23),
        ]
    );
    let found = inspected(&usual()).unwrap();
    let expected = [("nfs/a.example@REALM".to_owned(), BTreeSet::from([18, 20]))];
    assert_eq!(found, ServicePrincipals::from(expected));
}

#[test]
fn an_entry_of_old_writers_has_its_version_in_one_octet() {
    let mut old = entry(&["nfs", "a", "R"], 20, 7);
    old.truncate(old.len() - 4);
    let len = (old.len() - 4) as i32;
    old[..4].copy_from_slice(&len.to_be_bytes());
    assert_eq!(parse(&keytab(&[old])).unwrap()[0].version, 7);
}

#[test]
fn separators_and_control_characters_in_names_are_escaped() {
    let entries = parse(&keytab(&[entry(&["a/b", "c@d\\", "R\n"], 20, 1)])).unwrap();
    assert_eq!(entries[0].principal(), r"a\/b/c\@d\\@R\n");
    assert!(!entries[0].is_of("a"));
}

#[test]
fn every_cut_keytab_is_whole_entries_or_a_defect_and_no_changed_octet_panics() {
    let whole = usual();
    let ends: Vec<usize> = (2..=whole.len()).filter(|len| parse(&whole[..*len]).is_ok()).collect();
    // The two octets of the format, and the end of each entry and of the hole.
    assert_eq!(ends.len(), 6, "{ends:?}");
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, whole[at] ^ 1] {
            let mut changed = whole.clone();
            changed[at] = value;
            let _ = parse(&changed);
        }
    }
}

#[test]
fn limits_hold() {
    assert_eq!(parse(b"\x05\x01"), Err(KeytabDefect::Version));
    assert_eq!(parse(b""), Err(KeytabDefect::Version));
    assert_eq!(parse(b"\x05\x02\x80\0\0\0"), Err(KeytabDefect::Cut), "a hole of 2 GiB");
    let many = keytab(&vec![entry(&["n", "R"], 20, 1); KEYTAB_ENTRIES_MAX + 1]);
    assert_eq!(parse(&many), Err(KeytabDefect::Entries));
    let mut names = vec!["n"; 17];
    names.push("R");
    assert_eq!(parse(&keytab(&[entry(&names, 20, 1)])), Err(KeytabDefect::Components));
    let ended = [&usual()[..], &[0; 4], b"rest"].concat();
    assert_eq!(parse(&ended).unwrap().len(), 4, "a length of 0 is the end");
}

#[test]
fn each_problem_is_a_sentence_with_its_fix() {
    let other = keytab(&[entry(&["host", "a", "R"], 20, 1), entry(&["host", "a", "R"], 18, 1)]);
    for (content, sentence) in [
        (&other[..], "keytab FILE has no nfs/ principal (it has host/a@R); fix: `kadmin ktadd"),
        (b"\x05\x02", "keytab FILE has no principals; fix: `kadmin ktadd -k FILE nfs/NAME`"),
        (b"text", "keytab FILE is damaged (it is no keytab of format 0x502); fix: delete it"),
        (&keytab(&[entry(&["nfs", "a", "R"], 23, 1)]), "keytab FILE has no AES key of nfs/ (en"),
    ] {
        let problem = inspected(content).unwrap_err();
        assert!(problem.starts_with(sentence), "{problem}");
    }
}

#[test]
fn files_that_are_missing_or_no_files_are_sentences() {
    let home = tempfile::tempdir().unwrap();
    let missing = inspect(&home.path().join("none"), "nfs").unwrap_err().to_string();
    assert!(missing.contains("is missing; fix: `kadmin ktadd"), "{missing}");
    let folder = inspect(home.path(), "nfs").unwrap_err().to_string();
    assert!(folder.contains("cannot be read (not a regular file"), "{folder}");
}

#[test]
fn a_file_that_this_user_may_not_read_is_a_sentence_with_the_mode() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("keytab");
    fs::write(&path, usual()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    match inspect(&path, "nfs") {
        Ok(_) => println!("skipped: root reads all files"),
        Err(problem) => {
            let problem = problem.to_string();
            assert!(problem.contains("cannot be read (Permission denied"), "{problem}");
            assert!(problem.ends_with("with mode 0600"), "{problem}");
        }
    }
}

#[test]
fn the_default_is_the_file_of_the_variable_or_the_usual_one() {
    for (name, path) in [
        (None, "/etc/krb5.keytab"),
        (Some("/k"), "/k"),
        (Some("FILE:/k:1"), "/k:1"),
        (Some("WRFILE:/k"), "/k"),
    ] {
        assert_eq!(named(name.map(OsStr::new)), Path::new(path));
    }
}
