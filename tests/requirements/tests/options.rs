//! Every option of version 2 has a page with the items that draft 000 §3.2 requires.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::fs;

#[test]
fn every_option_has_its_page() {
    let mut options = 0;
    for entry in
        fs::read_dir(stag_requirements::root().join("protocol/src/rpcrdma/option")).unwrap()
    {
        let file = entry.unwrap().path();
        let source = fs::read_to_string(&file).unwrap();
        let types = source.lines().filter_map(|line| line.trim().strip_prefix("pub const RE"));
        let types: Vec<String> = types
            .filter_map(|line| Some(line.split_once("0x")?.1.replace(['_', ';'], "")))
            .collect();
        if types.is_empty() {
            continue; // The registry, and what options have in common.
        }
        options += 1;
        assert_eq!(types.len(), 2, "{}: a type for the request, one for the reply", file.display());
        let page = format!("docs/options/{}.md", file.file_stem().unwrap().to_string_lossy());
        let text = fs::read_to_string(stag_requirements::root().join(&page)).unwrap_or_default();
        for heading in ["Purpose and use", "XDR", "Payload", "Errors", "With other features"] {
            assert!(text.contains(&format!("\n## {heading}\n")), "{page} has no part '{heading}'");
        }
        for number in types {
            assert!(text.contains(&number), "{page} does not have the type 0x{number}");
        }
        assert!(
            text.contains("MUST NOT follow") || text.contains("MUST follow"),
            "{page}: does a payload follow?"
        );
    }
    assert!(options > 0);
}
