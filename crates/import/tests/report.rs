//! The account of an import.

use import::{Fate, ImportOptions, nginx};

const TEXT: &str = "server {\n listen 80;\n server_name a.example;\n root /srv/a;\n fastcgi_cache one;\n\
    modsecurity on;\n nonsense 1;\n tcp_nodelay on;\n}\n";

#[test]
fn what_people_rely_on_heads_the_page_and_every_line_is_counted() {
    let options = ImportOptions {
        name: "a.conf".to_owned(),
        ..ImportOptions::default()
    };
    let imported = nginx(TEXT.as_bytes(), &options).unwrap();
    let page = imported.page();
    assert!(
        page.starts_with("1 rules of ModSecurity: no such rules are run here"),
        "{page}"
    );
    assert!(
        page.contains("\n1 lines of a cache: there is no cache"),
        "{page}"
    );
    assert!(page.contains("8 lines: 3 carried, 1 carried with a difference, 1 not needed, 3 not carried, 0 refused"), "{page}");
    assert!(
        page.contains("  a.conf:7: nonsense 1\n      it is not known here"),
        "{page}"
    );
    assert!(!page.contains("tcp_nodelay"), "{page}");
    assert!(imported.asks_for_a_look());
    assert_eq!(imported.totals().values().sum::<usize>(), 8);
}

#[test]
fn the_account_for_programs_has_every_line() {
    let imported = nginx(TEXT.as_bytes(), &ImportOptions::default()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&imported.json()).unwrap();
    assert_eq!(json["lines"].as_array().unwrap().len(), 8);
    assert_eq!(json["totals"]["not carried"], 3);
    assert_eq!(json["lines"][7]["class"], "not needed");
    assert_eq!(json["files"][1], "a.example");
}

#[test]
fn what_is_left_out_is_not_carried() {
    let mut imported = nginx(TEXT.as_bytes(), &ImportOptions::default()).unwrap();
    let why = (
        "a.example".to_owned(),
        "there is no such directory".to_owned(),
    );
    imported.leave_out(&[why].into());
    let root = imported
        .lines
        .iter()
        .find(|line| line.text == "root /srv/a")
        .unwrap();
    assert_eq!(
        (root.fate, root.note.as_str()),
        (Fate::NotCarried, "there is no such directory")
    );
    assert!(!imported.files.iter().any(|file| file.name == "a.example"));
}

#[test]
fn a_text_that_is_none_is_refused_with_its_place() {
    for (text, line, why) in [
        ("server {", 1, "a block is not closed"),
        ("a b;\n}", 2, "`}` closes nothing"),
        ("a\nb", 2, "`a` is not ended"),
        ("a \"b;", 1, "a quote is not closed"),
        ("{}", 1, "a block without a name"),
    ] {
        let wrong = nginx(text.as_bytes(), &ImportOptions::default()).unwrap_err();
        assert_eq!(wrong.line, line, "{text}: {wrong}");
        assert!(wrong.text.contains(why), "{text}: {wrong}");
    }
    let deep = "a {".repeat(80);
    assert!(nginx(deep.as_bytes(), &ImportOptions::default()).is_err());
}
