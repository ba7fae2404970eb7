//! Files that programs make. Without O_EXCL or O_NOFOLLOW, a link that another user planted leads
//! the program of an administrator to any file of the system.

use crate::{Figure, FoundPlace, SourceFile, SourceTree};

/// Calls of the standard library that follow a link which exists.
const FOLLOWING: [&str; 2] = ["File::create(", "fs::write("];
/// Crates that administrators run.
const FOLDERS: [&str; 4] = ["apps/", "engine/", "pools/", "tuning/"];
/// Code for tests, which writes within the checkout alone.
const OF_THE_CHECKOUT: [&str; 1] = ["apps/nfs/ceph/fake/"];
/// Lines after `.create(true)` in which a flag against links is looked for.
const NEAR: usize = 8;

/// Places in the code of programs where a file is made and a link would be followed.
#[must_use]
pub fn planted_links(tree: &SourceTree) -> Figure {
    let is_ours = |source: &&SourceFile| {
        FOLDERS.iter().any(|folder| source.path.starts_with(folder))
            && !OF_THE_CHECKOUT.iter().any(|folder| source.path.starts_with(folder))
    };
    let found = tree.code().filter(is_ours).flat_map(places).collect();
    let about = "files that are made without O_EXCL or O_NOFOLLOW";
    Figure::count("planted-links", about, 0.0, found)
}

fn places(source: &SourceFile) -> Vec<FoundPlace> {
    let text = source.text.split_once("\n#[cfg(test)]\n").map_or(&*source.text, |(code, _)| code);
    let lines: Vec<&str> = text.lines().collect();
    let follows = |(at, line): &(usize, &str)| {
        let is_code = !line.trim_start().starts_with("//");
        let mut near = lines.iter().skip(*at).take(NEAR);
        let is_open = line.contains(".create(true)")
            && !near.any(|line| line.contains("NOFOLLOW") || line.contains("NO_FOLLOW"));
        is_code && (is_open || FOLLOWING.iter().any(|call| line.contains(call)))
    };
    let found = lines.iter().copied().enumerate().filter(follows);
    found
        .map(|(at, line)| FoundPlace {
            file: source.path.clone(),
            line: at + 1,
            text: line.trim().to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_follow_a_link_are_found_and_others_are_not() {
        let text = "fn a() {\n    File::create(&x);\n    // fs::write(y)\n    o.create(true);\n}\n\
                    #[cfg(test)]\nmod tests { fn b() { fs::write(z, \"\"); } }\n";
        let source =
            |path: &str, text: &str| SourceFile::parse(path.to_owned(), text.to_owned()).unwrap();
        let guarded = "fn a() {\n    o.create(true)\n        .custom_flags(NO_FOLLOW);\n}\n";
        let sources = vec![source("apps/a.rs", text), source("engine/b.rs", guarded)];
        let figure = planted_links(&SourceTree { root: "/".into(), sources });
        let lines: Vec<usize> = figure.found.iter().map(|found| found.line).collect();
        assert_eq!(lines, [2, 4]);
    }
}
