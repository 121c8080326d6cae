//! A table by itself, for other programs: CSV and JSON, with figures as figures.
//!
//! The idea: a spreadsheet takes a text for a formula by its first character, so that such a text
//! gets a mark before it; everything else is what the page shows. What is missing of it is told at the end.

use ipc::console::ConsoleAnswer;
use report::{Table, harmless};
use serde_json::{Value, json};

use super::address::Format;
use super::{Asking, NoPage, frame};
use crate::salts::civil;

/// What a formula may begin with.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// Gives a list of a document in the format that is asked for.
pub(super) fn answer(
    asking: &Asking<'_>,
    format: Format,
    document: &report::Document,
    of: &str,
    (from, to): (i32, i32),
) -> Result<ConsoleAnswer, NoPage> {
    let wanted = &*asking.address.asked.list;
    let tables = document.sections.iter().filter_map(|section| {
        let table = section.blocks.iter().find_map(|block| match block {
            report::Block::Table(table) => Some(table),
            _ => None,
        });
        Some((section.id, table?))
    });
    let mut tables = tables.filter(|(id, _)| wanted.is_empty() || *id == wanted);
    let (id, table) = tables.next().ok_or(NoPage::Unknown)?;
    let missing = asking.missing.as_deref().unwrap_or_default();
    let (content_type, ending, body) = match format {
        Format::Csv => ("text/csv; charset=utf-8", "csv", csv(table, missing)),
        Format::Json => {
            let [from, to] = [from, to].map(|day| civil(day).to_string());
            let mut head = json!({ "of": of, "list": id, "from": from, "to": to });
            if asking.is_of_archive() {
                head["machine"] = asking.address.asked.machine.id().into();
                head["missing"] = missing.into();
            }
            ("application/json", "json", json_text(head, table))
        }
    };
    let mut answer = frame::answer(200, content_type, body);
    let file = format!("attachment; filename=\"{of}-{id}.{ending}\"");
    answer.fields.push(("Content-Disposition".to_owned(), file));
    Ok(answer)
}

/// Why there is none.
pub(super) fn refusal(format: Format, status: u16, why: &str) -> ConsoleAnswer {
    let why = &*harmless(why);
    match format {
        Format::Csv => frame::answer(status, "text/plain; charset=utf-8", format!("{why}\n")),
        Format::Json => {
            let body = format!("{}\n", json!({ "error": why }));
            frame::answer(status, "application/json", body)
        }
    }
}

fn csv(table: &Table, missing: &[&str]) -> String {
    let mut out = String::new();
    let titles = table.columns.iter().map(|column| match column.unit {
        "" => field(&column.title),
        unit => field(&format!("{} ({unit})", column.title)),
    });
    line(&mut out, titles);
    for row in &table.rows {
        let cells = row.iter().map(|cell| match cell.value {
            Some(value) if value.is_finite() => value.to_string(),
            Some(_) => String::new(),
            None => field(&cell.text),
        });
        line(&mut out, cells);
    }
    for it in missing {
        line(&mut out, std::iter::once(format!("# {}", harmless(it))));
    }
    out
}

fn line(out: &mut String, fields: impl Iterator<Item = String>) {
    out.push_str(&fields.collect::<Vec<_>>().join(","));
    out.push_str("\r\n");
}

/// A text that is nothing but one.
fn field(text: &str) -> String {
    let mark = if text.starts_with(FORMULA) { "'" } else { "" };
    let text = format!("{mark}{}", harmless(text));
    match text.contains(['"', ',', '\n', '\r', ';']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

fn json_text(mut head: Value, table: &Table) -> String {
    let columns = table.columns.iter();
    head["columns"] = columns
        .map(|column| json!({ "title": column.title, "unit": column.unit }))
        .collect();
    let row = |cells: &Vec<report::Cell>| -> Value {
        let cells = cells.iter().map(|cell| match cell.value {
            Some(value) => number(value),
            None => Value::from(&*cell.text),
        });
        cells.collect()
    };
    head["rows"] = table.rows.iter().map(row).collect();
    format!("{head}\n")
}

/// Whole where it is; null where it is no number.
fn number(value: f64) -> Value {
    match value.fract() == 0.0 && value.abs() < 9e15 {
        // It is whole and fits, as was just seen.
        true => Value::from(value as i64),
        false => Value::from(value),
    }
}

#[cfg(test)]
mod tests {
    use report::{Cell, Column};

    use super::*;

    fn table() -> Table {
        let mut table = Table::new([Column::left("page"), Column::right("sent").in_unit("bytes")]);
        table.row([
            Cell::name("=cmd|' /C calc'!A0"),
            Cell::figure("1.5 KiB", 1_536.0),
        ]);
        table.row([Cell::name("a,\"b\"\u{1b}[31m"), Cell::figure("–", f64::NAN)]);
        table
    }

    #[test]
    fn figures_are_figures_and_texts_no_formulas() {
        let expected = "page,sent (bytes)\r\n'=cmd|' /C calc'!A0,1536\r\n\"a,\"\"b\"\"·[31m\",\r\n";
        assert_eq!(csv(&table(), &[]), expected);
        assert_eq!(csv(&table(), &["a, b"]), format!("{expected}# a, b\r\n"));
        for begun in FORMULA {
            assert!(
                field(&format!("{begun}1"))
                    .trim_start_matches('"')
                    .starts_with('\'')
            );
        }
        let told: Value = serde_json::from_str(&json_text(json!({}), &table())).expect("JSON");
        assert_eq!(told["rows"][0], json!(["=cmd|' /C calc'!A0", 1_536]));
        assert_eq!(told["rows"][1][1], Value::Null);
        assert_eq!(told["columns"][1]["unit"], "bytes");
    }
}
