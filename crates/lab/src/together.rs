//! Several results in one Markdown file, and in short for a README.

use std::fmt::Write;

use super::draw;
use super::figures;
use super::judge;
use super::record::Record;
use report::units;

/// The main figure of the short table.
const FIGURE: &str = "per_cpu_second";

/// All reports, one after another, with one heading.
pub(crate) fn text(records: &[Record]) -> String {
    let mut text = format!("# Figures\n\n{}", setting(records));
    for record in records {
        let mut document = draw::document(record);
        document
            .facts
            .retain(|(name, _)| name == "Run" || name == "Seed" || name == "Not measured");
        let markdown = document.to_markdown();
        for line in markdown.lines() {
            // Headings go one step down, below the one of this file.
            let more = if line.starts_with('#') { "#" } else { "" };
            let _ = writeln!(text, "{more}{line}");
        }
        text.push('\n');
    }
    text + &missed(records)
}

/// The main figures: a line a row, a column a variant, each with what was wanted of it; then all
/// misses.
pub(crate) fn short(records: &[Record]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    let judged: Vec<_> = records
        .iter()
        .flat_map(judge::all)
        .filter(|judged| is_short(judged))
        .collect();
    for name in judged.iter().flat_map(|judged| &judged.row.variants) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let aims: Vec<_> = records.iter().flat_map(judge::aims).collect();
    let mut text = setting(records);
    let title = figures::figure(FIGURE).title;
    let _ = writeln!(
        text,
        "| {title} | {} |\n|---|{}",
        columns.join(" | "),
        "--:|".repeat(columns.len())
    );
    for judged in &judged {
        let cell = |name: &&str| {
            let variant = judged.variants.iter().find(|variant| variant.name == *name);
            variant.map_or_else(
                || units::NONE.to_owned(),
                |variant| {
                    let wanted = draw::wanted(judged, variant, &aims).text;
                    let ratio = variant.beside.map_or_else(String::new, |(ratio, _)| {
                        let words = format!("{:.2} {wanted}", ratio.estimate);
                        format!(" ({})", words.trim_end())
                    });
                    judged.figure.write(variant.summary.median) + &ratio
                },
            )
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", judged.row.name, cells.join(" | "));
    }
    text + &missed(records)
}

/// Rows with the main figure and no log; those with a log are in the whole table.
fn is_short(judged: &judge::Judged<'_>) -> bool {
    judged.name == FIGURE && !judged.row.name.contains("log")
}

fn setting(records: &[Record]) -> String {
    let mut versions: Vec<&str> = Vec::new();
    let known = records.iter().flat_map(|record| &record.head.versions);
    for (_, version) in known {
        if !versions.contains(&version.as_str()) {
            versions.push(version);
        }
    }
    let mut text = format!("Programs: {}.\n", versions.join(" · "));
    let mut missing: Vec<&str> = records
        .iter()
        .flat_map(|record| &record.head.missing)
        .map(String::as_str)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        let _ = writeln!(text, "Not measured: {}.", missing.join("; "));
    }
    let mut machines: Vec<(String, Vec<&str>)> = Vec::new();
    for record in records {
        let machine = &record.head.machine;
        let named = format!(
            "{}, {} cores, Linux {}",
            machine.processor, machine.cores, machine.kernel
        );
        let title = record.head.title.as_str();
        match machines.iter_mut().find(|(known, _)| *known == named) {
            Some((_, titles)) => titles.push(title),
            None => machines.push((named, vec![title])),
        }
    }
    let of_some = machines.len() > 1;
    for (machine, titles) in machines {
        let of = if of_some {
            format!(" ({})", titles.join(", "))
        } else {
            String::new()
        };
        let _ = writeln!(text, "Machine{of}: {machine}.");
    }
    let loads = records.iter().flat_map(|record| record.head.rows.first());
    let mut loads: Vec<&str> = loads.map(|row| row.load.as_str()).collect();
    loads.dedup();
    let _ = writeln!(
        text,
        "\nOne worker each on core 0; generator and back end on core 1 ({}); every server once in each block, in random order.\n\
         The figure is requests per second of server CPU time, the median of the blocks. In parentheses ours over theirs, block by block, and what was wanted of it.\n",
        loads.join("; ")
    );
    text
}

fn missed(records: &[Record]) -> String {
    let misses: Vec<String> = records
        .iter()
        .flat_map(|record| draw::misses(&judge::aims(record)))
        .collect();
    if misses.is_empty() {
        return "\nEverything wanted was reached.\n".to_owned();
    }
    format!("\nNot reached:\n\n- {}\n", misses.join("\n- "))
}

#[cfg(test)]
mod tests {
    use super::super::record::example;
    use super::*;

    #[test]
    fn the_short_table_has_a_column_a_variant_and_every_miss() {
        let mut record = example();
        record.head.rows[0].targets[0].at_least = Some(1.3);
        let text = short(&[record]);
        assert!(
            text.contains("| requests per CPU second | one | two |"),
            "{text}"
        );
        assert!(
            text.contains("| row | 50,500 | 40,400 (1.25 ✗ ≥ 1.30 ×) |"),
            "{text}"
        );
        assert!(
            text.contains("- row: requests per CPU second of one beside two"),
            "{text}"
        );
    }

    #[test]
    fn all_reports_stand_below_one_heading() {
        let text = text(&[example(), example()]);
        assert_eq!(
            text.lines().filter(|line| line.starts_with("# ")).count(),
            1
        );
        assert_eq!(text.lines().filter(|line| *line == "## Example").count(), 2);
    }
}
