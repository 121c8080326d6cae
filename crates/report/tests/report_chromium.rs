//! Reports in a real browser: what people are to see is there, at its place and legible; and
//! nothing that comes from outside gets to run or to load.

#[path = "report/sample.rs"]
mod sample;

use std::path::PathBuf;

use report::{Block, Document};
use serde_json::{Value, json};
use testkit::chromium::{self, Colours};

/// A desk and a telephone.
const WIDTHS: [u32; 2] = [1280, 390];
/// Contrast of words to what they stand on that accessibility asks for.
const CONTRAST_MIN: f64 = 4.5;
/// Letters smaller than this are not read.
const LETTER_PIXELS_MIN: f64 = 9.0;

/// Looks at a document on a desk and on a telephone, and finds nothing to complain of that holds
/// for every page. Nothing where there is no browser; a machine of continuous integration has one.
fn looked_at(document: &Document, colours: Colours) -> Vec<Value> {
    let Some(browser) = chromium::installed() else {
        testkit::lacks("Chromium", "scripts/bootstrap.sh test");
        return Vec::new();
    };
    let answers = chromium::probed(&browser, &[&document.to_html()], &WIDTHS, colours);
    for (said, width) in answers.iter().zip(WIDTHS) {
        assert_eq!(said["complaints"], json!([]));
        assert_eq!(said["loaded"], json!([]), "the page asked for something");
        assert_eq!(said["images"], 0, "text became markup");
        assert_eq!(said["title"], document.title.as_str());
        assert_eq!(said["headings"], 1);
        assert_eq!(said["width"], width);
        assert_eq!(said["dark"], colours == Colours::Dark);
        assert!(
            said["overflow"].as_f64() <= Some(0.0),
            "too wide for {width}: {said:#}"
        );
        assert!(said["contrast"].as_f64() >= Some(CONTRAST_MIN));
        for chart in said["charts"].as_array().expect("a list of charts") {
            chart_is_sound(chart);
        }
    }
    answers
}

/// Every chart has marks in its frame and words that can be read, or says that it has none.
fn chart_is_sound(chart: &Value) {
    if chart["words"] == 1 {
        assert_eq!(chart["pictures"], 0, "{chart:#}");
        return;
    }
    assert_eq!(
        chart["pictures"], 1,
        "one picture for each screen: {chart:#}"
    );
    assert_eq!(chart["named"], true, "{chart:#}");
    for none in ["outside", "overlapping", "faint"] {
        assert_eq!(chart[none], json!([]), "{none}: {chart:#}");
    }
    assert!(chart["rows"].as_u64() > Some(0), "no table: {chart:#}");
    assert!(
        chart["smallest"].as_f64() >= Some(LETTER_PIXELS_MIN),
        "{chart:#}"
    );
}

fn ordinary_is_seen(colours: Colours) {
    for said in looked_at(&sample::ordinary(), colours) {
        let charts = said["charts"].as_array().expect("a list of charts");
        let number = |chart: &Value, name: &str| chart[name].as_u64().unwrap_or(0);
        let marks: Vec<(u64, u64)> = charts
            .iter()
            .map(|chart| (number(chart, "marks"), number(chart, "points")))
            .collect();
        // Twelve bars; three dots with their intervals; lines and curves with all of their points.
        let least = [(12, 12), (6, 9), (3, 900), (6, 1400), (4, 388), (6, 6)];
        assert_eq!(marks.len(), least.len());
        for (found, wanted) in marks.iter().zip(least) {
            assert!(found.0 >= wanted.0 && found.1 >= wanted.1, "{marks:?}");
        }
        // 1,800 points were given for one line.
        assert!(marks[3].1 < 2000, "{marks:?}");
    }
}

#[test]
fn an_ordinary_report_is_legible_in_the_light() {
    ordinary_is_seen(Colours::Light);
}

#[test]
fn an_ordinary_report_is_legible_in_the_dark() {
    ordinary_is_seen(Colours::Dark);
}

#[test]
fn the_worst_report_stays_text_and_within_its_frames() {
    looked_at(&sample::worst(), Colours::Light);
}

#[test]
fn pages_hold_no_script_and_forbid_to_load_anything() {
    let directory = std::env::var_os("NAGAYA_SAMPLES")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    for (name, document) in [("ordinary", sample::ordinary()), ("worst", sample::worst())] {
        let page = document.to_html();
        assert!(!page.contains("<script"), "text became markup in {name}");
        assert!(page.contains("default-src 'none'"), "{name}");
        // Kept to be looked at by a person.
        std::fs::write(directory.join(format!("{name}.html")), page).expect("write the page");
        let charts = document.sections.iter().flat_map(|section| &section.blocks);
        let charts = charts.filter_map(|block| match block {
            Block::Chart(chart) => Some(chart),
            _ => None,
        });
        for (index, chart) in charts.enumerate() {
            let picture = chart.to_svg();
            assert!(
                !picture.contains("<script") && !picture.contains("<img"),
                "{picture}"
            );
            let file = directory.join(format!("{name}-{index}.svg"));
            std::fs::write(file, picture).expect("write the picture");
        }
    }
}
