//! What Debian's packages put onto this machine, where they are.

use std::path::Path;

use import::{Fate, ImportOptions, apache, nginx};

/// The files as `nginx -T` prints them.
fn printed(files: &[&str]) -> Option<String> {
    let mut text = String::new();
    for file in files {
        let content = std::fs::read_to_string(Path::new(file)).ok()?;
        text.push_str(&format!("# configuration file {file}:\n{content}\n"));
    }
    Some(text)
}

#[test]
fn debians_nginx_is_a_site() {
    let files = [
        "/etc/nginx/nginx.conf",
        "/etc/nginx/mime.types",
        "/etc/nginx/sites-enabled/default",
    ];
    let Some(text) = printed(&files) else {
        return testkit::lacks("Debian's nginx", "its configuration is read");
    };
    let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
    crate::properties::passes(&imported);
    let lost: Vec<_> = imported
        .lines
        .iter()
        .filter(|line| line.fate > Fate::Different)
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
    assert!(
        imported
            .files
            .iter()
            .any(|file| file.text.contains("root = \"/var/www/html\""))
    );
}

#[test]
fn debians_snippets_of_apache_are_classified_and_a_configuration() {
    let Ok(entries) = std::fs::read_dir("/etc/apache2/conf-available") else {
        return testkit::lacks("Debian's apache2", "its snippets are read");
    };
    let mut seen = 0;
    for entry in entries.flatten() {
        let Ok(snippet) = std::fs::read_to_string(entry.path()) else {
            continue;
        };
        let host = "<VirtualHost *:80>\nServerName a.example\nDocumentRoot /var/www/html\n</VirtualHost>\n";
        let imported = apache(
            format!("{snippet}\n{host}").as_bytes(),
            &ImportOptions::default(),
        )
        .unwrap();
        crate::properties::passes(&imported);
        let is_said =
            |line: &import::SourceLine| !line.note.is_empty() || line.fate == Fate::Carried;
        assert!(imported.lines.iter().all(is_said), "{:#?}", imported.lines);
        seen += 1;
    }
    assert!(seen > 0 || !Path::new("/etc/apache2/conf-available").exists());
}
