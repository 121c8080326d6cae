//! Reports in a real browser.

#[path = "report/sample.rs"]
mod sample;

use std::path::PathBuf;

#[test]
fn pages_are_made_of_the_ordinary_and_of_the_worst() {
    let directory = std::env::var_os("NAGAYA_SAMPLES")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    for (name, document) in [("ordinary", sample::ordinary()), ("worst", sample::worst())] {
        let page = document.to_html();
        assert!(!page.contains("<script"), "text became markup in {name}");
        std::fs::write(directory.join(format!("{name}.html")), page).expect("write the page");
    }
}
