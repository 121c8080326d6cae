//! Texts of the source in what is written.

use import::{ImportOptions, nginx};

#[test]
fn no_text_of_the_source_becomes_more_than_a_text() {
    let hostile = "server { listen 80; server_name a.example; root \"/srv/a\\\"]\n[[sites]]\nhosts = [\\\"evil\"; \
        add_header X-A \"b\\\" }\\n[tenants.evil]\\n\" always; # x\n location \"/a\n[x]\" { deny all; } }";
    let imported = nginx(hostile.as_bytes(), &ImportOptions::default()).unwrap();
    crate::properties::passes(&imported);
    for file in &imported.files {
        let sites = file
            .text
            .lines()
            .filter(|line| *line == "[[sites]]")
            .count();
        assert!(
            sites <= 1 && !file.text.lines().any(|line| line.starts_with("[tenants")),
            "{}",
            file.text
        );
    }
}
