//! What the documents say of experiments is what their stored results give, misses among them; and
//! the Japanese documents say all that the English ones do.

use std::fs;

use testkit::TempDir;

use crate::readme::{blocks, nagaya_lab, read, root, run};

#[test]
fn the_figures_of_the_readme_are_what_the_results_give() {
    let here = TempDir::new();
    let readme = here.write("README.md", read(&root().join("README.md")));
    let mut words: Vec<String> = vec!["draw".into()];
    for name in IN_SHORT {
        let data = read(&root().join("lab/results").join(name).join("summary.jsonl"));
        here.write(&format!("{name}/summary.jsonl"), data);
        words.push(here.path().join(name).display().to_string());
    }
    words.extend(["--readme".into(), readme.display().to_string()]);
    let output = run(
        &nagaya_lab(),
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert!(output.0, "{}", output.1);
    let shown = read(&root().join("README.md"));
    assert_eq!(shown, read(&readme), "run make readme-figures");
    let demo = read(&root().join("lab/results/demo.txt"));
    for document in ["README.md", "README.ja.md"] {
        let shown = blocks(document, "text").remove(0);
        assert_eq!(shown, demo, "{document}: run make readme-figures");
    }
}

#[test]
fn every_figure_of_an_experiment_stands_in_its_report() {
    let rows = experiments();
    assert!(rows.len() >= 20, "only {} rows", rows.len());
    for (row, reports) in rows {
        let known = figures(&reports.concat());
        let cells: Vec<&str> = row.split('|').skip(3).take(2).collect();
        for figure in figures(&cells.join(" ")) {
            assert!(
                known.contains(&figure),
                "{figure} is not in the report: {row}"
            );
        }
    }
}

#[test]
fn what_the_results_missed_stands_in_the_readme_or_the_figures() {
    let rows = experiments();
    let readme = read(&root().join("README.md"));
    let mut misses = 0;
    for entry in fs::read_dir(root().join("lab/results")).expect("there are results") {
        let directory = entry.expect("an entry").path();
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let report = directory.join("report.md");
        if !report.exists() {
            continue;
        }
        let text = read(&report);
        for line in text
            .lines()
            .filter(|line| line.starts_with("**Not reached: "))
        {
            misses += 1;
            if IN_SHORT.contains(&name.as_ref()) {
                let line = line
                    .trim_start_matches("**Not reached: ")
                    .trim_end_matches(".**");
                assert!(readme.contains(&format!("\n- {line}\n")), "{name}: {line}");
                continue;
            }
            let (before, _) = line
                .split_once(" (wanted")
                .expect("it says what was wanted");
            let got = figures(before).pop().expect("it says what was seen");
            let link = format!("](../lab/results/{name}/report.md)");
            let told = |row: &str| row.contains(&link) && row.contains('✗');
            let is_told = rows
                .iter()
                .any(|(row, _)| told(row) && figures(row).contains(&got));
            assert!(is_told, "{FIGURES} does not say: {name}: {line}");
        }
    }
    assert!(misses >= 20, "only {misses} misses found");
}

#[test]
fn the_japanese_documents_say_all_that_the_english_ones_do() {
    for name in ["README", "docs/guide/tour", "docs/figures"] {
        let texts = ["md", "ja.md"].map(|end| read(&root().join(format!("{name}.{end}"))));
        let [english, japanese] = texts.each_ref().map(|text| outline(text));
        assert_eq!(
            english.len(),
            japanese.len(),
            "{name}: headings, rows, lists and code"
        );
        for (english, japanese) in english.iter().zip(&japanese) {
            assert_eq!(english, japanese, "{name}");
        }
        let [english, japanese] = texts.each_ref().map(|text| links(text));
        assert_eq!(english, japanese, "{name}");
    }
}

#[test]
fn the_readme_is_a_front_page() {
    for name in ["README.md", "README.ja.md"] {
        let lines = read(&root().join(name)).lines().count();
        assert!(lines <= 200, "{name}: {lines} lines, at most 200");
    }
}

/// Results whose figures stand in the README in short, with all that they missed.
const IN_SHORT: [&str; 4] = ["proxy", "static", "respond", "fastcgi"];

/// The document that has what the README leaves out.
const FIGURES: &str = "docs/figures.md";

/// The rows of the figures that tell of an experiment, each with the reports it names.
fn experiments() -> Vec<(String, Vec<String>)> {
    let report =
        |link: &String| link.starts_with("../lab/results/") && link.ends_with("/report.md");
    let rows = read(&root().join(FIGURES));
    let rows = rows.lines().filter(|line| line.starts_with("| ["));
    rows.map(|row| {
        let reports = links(row).into_iter().filter(report);
        let texts = reports
            .map(|link| read(&root().join("docs").join(link)))
            .collect();
        (row.to_owned(), texts)
    })
    .filter(|(_, reports): &(_, Vec<String>)| !reports.is_empty())
    .collect()
}

/// Numbers, as they are written.
fn figures(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    text.split(|c| !is_part(c))
        .map(|figure| figure.trim_matches(['.', ',']).to_owned())
        .filter(|figure| !figure.is_empty())
        .collect()
}

/// Which documents a text links to, in alphabetical order, whatever their language.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1);
    let mut found: Vec<String> = targets
        .filter_map(|rest| rest.split([')', '#']).next())
        .map(|target| target.replace(".ja.md", ".md"))
        .collect();
    found.sort();
    found
}

/// What two languages have in common: headings by their depth, code less its comments, and the
/// figures of rows and of points.
fn outline(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        let fence = line.starts_with("```");
        is_code ^= fence;
        if is_code || fence {
            let code = line.split("  # ").next().unwrap_or(line).trim_end();
            let comment = code.starts_with("# ") && !code.ends_with(".rb");
            found.extend((!comment).then(|| code.to_owned()));
        } else if let Some((marks, _)) = line.split_once(' ')
            && marks.bytes().all(|byte| byte == b'#')
        {
            found.push(marks.to_owned());
        } else if line.starts_with("| ") || line.starts_with("- ") {
            // What is said of an experiment or a status is words; languages count in their own.
            let has_words = line.starts_with("| [") || line.starts_with("| `");
            let cells = line.split(" | ").enumerate();
            let cells = cells.filter(|(at, _)| !(has_words && *at == 1));
            let mut told: Vec<String> = cells.flat_map(|(_, cell)| figures(cell)).collect();
            told.sort();
            found.push(format!("{} {}", &line[..1], told.join(" ")));
        }
    }
    found
}
