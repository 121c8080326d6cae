//! Rows: what is asked of which variants, and what is wanted of the figures.

use std::time::Duration;

use super::super::model::{
    Alike, Ask, Background, Better, Control, Load, Measure, Rate, Read, Reported, Row, Service,
    Step, Target, Than,
};
use super::super::source::{Table, Value};
use super::service::{named, unknown};
use super::{command, commands, limited, loads};
use load::client::{Numbers, REQUESTS_MAX};

const ROW: &str = "\
    name note variants path method headers body label weight numbers patience_ms tenant requests hold \
    settle_seconds command command_seconds figures better targets reported reported_of alike \
    status load background read before_slice after_slice control scale fresh cross_check";
const ASK: &str = "label method path headers body weight numbers patience_ms tenant share repeat";
const BACKGROUND: &str = "\
    label method path headers body weight numbers patience_ms tenant share backend connections \
    keep_alive rate clients tls_names";
const TARGET: &str = "of variant than row at_least at_most more_at_most";
/// Longest body of a request.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;
const READS: [(&str, Read); 7] = [
    ("memory", Read::Memory),
    ("processes", Read::Processes),
    ("switches", Read::Switches),
    ("run_queue", Read::RunQueue),
    ("throttling", Read::Throttling),
    ("sockets", Read::Sockets),
    ("load", Read::Load),
];

/// What rows lean on.
struct Known<'a> {
    variants: Vec<&'a str>,
    backends: &'a [&'a str],
    load: &'a Load,
    read: Vec<Read>,
}

pub(super) fn rows(
    top: &Table<'_>,
    variants: &[Service],
    backends: &[&str],
    load: &Load,
) -> Vec<Row> {
    let Some(value) = top.required("rows", "[[rows]]") else {
        return Vec::new();
    };
    let known = Known {
        variants: variants
            .iter()
            .map(|variant| variant.name.as_str())
            .collect(),
        backends,
        load,
        read: reads(top),
    };
    let mut found: Vec<Row> = Vec::new();
    for value in limited(top, "rows", value.list()) {
        let table = value.table("[[rows]]", ROW);
        let Some((row, table)) = table.and_then(|table| Some((row(&table, &known)?, table))) else {
            continue;
        };
        if found.iter().any(|other| other.name == row.name) {
            table.report(format!("two rows are called `{}`", row.name));
        }
        found.push(row);
    }
    check_targets(&value, &found);
    found
}

fn row(table: &Table<'_>, known: &Known<'_>) -> Option<Row> {
    let name = table.required("name", "name = \"13 bytes\"")?.text()?;
    let indices = indices(table, known);
    let measure = measure(table, &name);
    let figures = figures(table, &measure);
    let named = indices
        .iter()
        .filter_map(|index| known.variants.get(*index));
    let names: Vec<&str> = named.copied().collect();
    let read = reads(table);
    let control = match table.flag("control") {
        Some(false) => Control::None,
        _ => Control::Again,
    };
    let is_load = matches!(measure, Measure::Load(_));
    Some(Row {
        note: table.text("note"),
        targets: targets(table, &names, figures.first()),
        reported: reported(table, &names),
        alike: alike(table),
        load: row_load(table, known.load),
        background: background(table, known),
        read: if table.has("read") {
            read
        } else {
            known.read.clone()
        },
        before_slice: commands(table, "before_slice"),
        after_slice: commands(table, "after_slice"),
        better: table
            .get("better")
            .and_then(|value| value.one_of(&[("more", Better::More), ("less", Better::Less)]))
            .unwrap_or(Better::ByName),
        control: if is_load && indices.len() > 1 {
            control
        } else {
            Control::None
        },
        fresh: table
            .flag("fresh")
            .unwrap_or(matches!(measure, Measure::Hold { .. })),
        cross_check: table.flag("cross_check").unwrap_or(false),
        scale: scale(table),
        variants: indices,
        name,
        measure,
        figures,
    })
}

/// `scale = { condition = 100 }`.
fn scale(table: &Table<'_>) -> Option<Step> {
    let value = table.get("scale")?;
    let entries = value.entries();
    let [(of, count)] = entries.as_slice() else {
        value.report("`scale` says how many of what: { condition = 100 }");
        return None;
    };
    let count = count.number(0.0, 1e15)?;
    Some(Step {
        of: of.clone(),
        count,
    })
}

/// The row's variants by number; all where none are named.
fn indices(table: &Table<'_>, known: &Known<'_>) -> Vec<usize> {
    if !table.has("variants") {
        return (0..known.variants.len()).collect();
    }
    let names = named(table, "variants", &known.variants, "variant");
    let index = |name: &String| known.variants.iter().position(|variant| variant == name);
    let mut found: Vec<usize> = Vec::new();
    for index in names.iter().filter_map(index) {
        if found.contains(&index) {
            table.report("`variants` names one twice; the control is added by itself");
        } else {
            found.push(index);
        }
    }
    found
}

fn row_load(table: &Table<'_>, base: &Load) -> Load {
    let given = table.get("load");
    let given = given.and_then(|value| value.table("`load` of the row", loads::KEYS));
    given.map_or_else(|| base.clone(), |given| loads::load(&given, base))
}

fn measure(table: &Table<'_>, name: &str) -> Measure {
    let nothing = || Measure::Load(Vec::new());
    if let Some(value) = table.get("command") {
        if table.has("path") || table.has("requests") || table.has("hold") {
            table.report("`command` measures by itself: no `path`, `requests` or `hold` beside it");
        }
        let seconds = table
            .number("command_seconds", 0.1, 3600.0)
            .unwrap_or(120.0);
        let within = Duration::from_secs_f64(seconds);
        return command(&value)
            .map_or_else(nothing, |command| Measure::Command { command, within });
    }
    if let Some(value) = table.get("requests") {
        if table.has("path") {
            table.report("`path` and `requests`: one of them is enough");
        }
        return Measure::Load(asks(&value));
    }
    let Some(ask) = ask(table, Some(name)) else {
        return nothing();
    };
    match table.count("hold", 1, 100_000) {
        None => Measure::Load(vec![ask]),
        Some(connections) => Measure::Hold {
            ask,
            connections: connections as usize,
            settle: Duration::from_secs_f64(
                table.number("settle_seconds", 0.0, 600.0).unwrap_or(2.0),
            ),
        },
    }
}

/// Several requests; an entry with `repeat` stands for as many of them.
fn asks(value: &Value<'_>) -> Vec<Ask> {
    let repeated = |value: &Value<'_>| {
        let table = value.table("`requests`", ASK)?;
        let count = table.count("repeat", 1, REQUESTS_MAX as u64).unwrap_or(1);
        let one = ask(&table, None)?;
        Some((0..count).map(move |n| numbered(&one, n)))
    };
    let all: Vec<Ask> = value
        .list()
        .iter()
        .filter_map(repeated)
        .flatten()
        .take(REQUESTS_MAX + 1)
        .collect();
    if all.len() > REQUESTS_MAX {
        value.report(format!("more than {REQUESTS_MAX} requests"));
        return Vec::new();
    }
    all
}

/// One of several that differ in a number: `@n@` in texts is it.
fn numbered(ask: &Ask, n: u64) -> Ask {
    let fill = |text: &String| text.replace("@n@", &n.to_string());
    Ask {
        label: fill(&ask.label),
        path: fill(&ask.path),
        headers: ask
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), fill(value)))
            .collect(),
        tenant: ask.tenant.as_ref().map(fill),
        ..ask.clone()
    }
}

/// A request; its label is the path where none is given.
fn ask(table: &Table<'_>, row: Option<&str>) -> Option<Ask> {
    let path = table.required("path", "path = \"/respond\"")?;
    let text = path.text()?;
    if !text.starts_with('/') || text.contains([' ', '\r', '\n']) {
        path.report("`path` begins with a slash and has no blanks; write %20 for one");
    }
    let body = table
        .get("body")
        .map_or_else(Vec::new, |value| body(&value));
    let method = table.text("method").unwrap_or_else(|| "GET".into());
    if method.is_empty()
        || !method
            .bytes()
            .all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    {
        table.report(format!(
            "`{method}` is no method; write for example `method = \"POST\"`"
        ));
    }
    let headers = super::words(table, "headers");
    for (name, value) in &headers {
        if name.is_empty() || format!("{name}{value}").contains(['\r', '\n', '\0']) {
            table.report(format!("the header `{name}` is empty or has line breaks"));
        }
    }
    let label = table.text("label").or_else(|| row.map(str::to_owned));
    Some(Ask {
        label: label.unwrap_or_else(|| text.clone()),
        method,
        path: text,
        headers: headers.into_iter().collect(),
        body,
        weight: table.count("weight", 1, 1_000_000).unwrap_or(1) as u32,
        numbers: table.get("numbers").and_then(|value| numbers(&value)),
        patience: table
            .count("patience_ms", 10, 3_600_000)
            .map(Duration::from_millis),
        tenant: table.text("tenant"),
        share: table.count("share", 1, 1_000).unwrap_or(1) as u32,
    })
}

/// `"rising"`, or `{ zipf = 100000 }`.
fn numbers(value: &Value<'_>) -> Option<Numbers> {
    if !value.is_table() {
        return value.one_of(&[("rising", Numbers::Rising)]);
    }
    let table = value.table("`numbers`", "zipf")?;
    let count = table
        .required("zipf", "zipf = 100000")?
        .count(1, 100_000_000)?;
    Some(Numbers::Zipf(count as u32))
}

fn body(value: &Value<'_>) -> Vec<u8> {
    if !value.is_table() {
        return value.text().unwrap_or_default().into_bytes();
    }
    let table = value.table("`body`", "bytes");
    let bytes = table.and_then(|table| table.required("bytes", "bytes = 1000"));
    let bytes = bytes.and_then(|bytes| bytes.count(0, BODY_BYTES_MAX));
    vec![b'x'; bytes.unwrap_or(0) as usize]
}

fn figures(table: &Table<'_>, measure: &Measure) -> Vec<String> {
    let given = table.texts("figures");
    let default = match measure {
        Measure::Load(_) => "per_cpu_second",
        Measure::Hold { .. } => "bytes_each",
        Measure::Command { .. } => {
            if given.is_empty() {
                table.report("a row with a `command` names its `figures`, the main one first");
            }
            ""
        }
    };
    if given.is_empty() {
        vec![default.to_owned()]
    } else {
        given
    }
}

/// `names` are the row's variants, the first of which is meant where none is named.
fn targets(table: &Table<'_>, names: &[&str], figure: Option<&String>) -> Vec<Target> {
    let first = names.first().copied().unwrap_or_default();
    let list = table
        .get("targets")
        .map_or_else(Vec::new, |value| value.list());
    let target = |value: &Value<'_>| {
        let table = value.table("`targets`", TARGET)?;
        let variant = table.text("variant").unwrap_or_else(|| first.to_owned());
        let than = table.text("than");
        let other = than.as_ref().filter(|name| *name != "best");
        for name in table.text("variant").iter().chain(other) {
            if !names.contains(&name.as_str()) {
                table.report(unknown("variant of the row", name, names));
            }
        }
        let limit = |key: &str| table.number(key, 0.0, 1e15);
        let (at_least, at_most) = (limit("at_least"), limit("at_most"));
        let more_at_most = limit("more_at_most");
        let than = beside(than, table.text("row"), &table);
        match (at_least.or(at_most), more_at_most, &than) {
            (None, None, _) => table.report("a target has `at_least` or `at_most`"),
            (Some(_), Some(_), _) => {
                table.report("`more_at_most` bounds a difference: no other bound beside it");
            }
            (None, Some(_), None | Some(Than::Best)) => {
                table.report("`more_at_most` needs `row`, or a variant for `than`");
            }
            _ => {}
        }
        Some(Target {
            of: table.text("of").or_else(|| figure.cloned())?,
            variant,
            than,
            at_least,
            at_most,
            more_at_most,
        })
    };
    list.iter().filter_map(target).collect()
}

/// What a target is taken over: `than` a variant or the best of the others, or another `row`.
fn beside(than: Option<String>, row: Option<String>, table: &Table<'_>) -> Option<Than> {
    match (than, row) {
        (Some(_), Some(_)) => {
            table.report("`than` and `row`: one of them is enough");
            None
        }
        (Some(name), None) if name == "best" => Some(Than::Best),
        (Some(name), None) => Some(Than::Variant(name)),
        (None, row) => row.map(Than::Row),
    }
}

/// Rows that targets lean on have to be there.
fn check_targets(value: &Value<'_>, rows: &[Row]) {
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    for target in rows.iter().flat_map(|row| &row.targets) {
        if let Some(Than::Row(name)) = &target.than
            && !names.contains(&name.as_str())
        {
            value.report(unknown("row", name, &names));
        }
    }
}

fn reported(table: &Table<'_>, names: &[&str]) -> Vec<Reported> {
    let Some(value) = table.get("reported") else {
        return Vec::new();
    };
    let of = table
        .text("reported_of")
        .unwrap_or_else(|| "per_second".into());
    let reported = |variant: Option<String>, value: &Value<'_>| {
        let figure = value.number(0.0, 1e15)?;
        let of = of.clone();
        Some(Reported {
            variant,
            figure,
            of,
        })
    };
    if !value.is_table() {
        return reported(None, &value).into_iter().collect();
    }
    let entry = |(name, value): (String, Value<'_>)| {
        if !names.contains(&name.as_str()) {
            value.report(unknown("variant of the row", &name, names));
        }
        reported(Some(name), &value)
    };
    value.entries().into_iter().filter_map(entry).collect()
}

/// `alike = ["status", "body", "content-type"]`; `[]` compares nothing.
fn alike(table: &Table<'_>) -> Alike {
    let expected = table.count("status", 100, 599).map(|status| status as u16);
    if !table.has("alike") {
        return Alike {
            status: true,
            body: true,
            headers: Vec::new(),
            expected,
        };
    }
    let texts = table.texts("alike");
    let holds = |word: &str| texts.iter().any(|text| text == word);
    Alike {
        status: holds("status"),
        body: holds("body"),
        headers: texts
            .iter()
            .filter(|text| !["status", "body"].contains(&text.as_str()))
            .map(|text| text.to_ascii_lowercase())
            .collect(),
        expected,
    }
}

fn background(table: &Table<'_>, known: &Known<'_>) -> Vec<Background> {
    let list = table
        .get("background")
        .map_or_else(Vec::new, |value| value.list());
    let one = |value: &Value<'_>| {
        let table = value.table("`background`", BACKGROUND)?;
        let backend = table.text("backend");
        if let Some(name) = backend
            .as_ref()
            .filter(|name| !known.backends.contains(&name.as_str()))
        {
            table.report(unknown("back end", name, known.backends));
        }
        let rate = table.get("rate").and_then(|value| loads::rate(&value));
        if matches!(rate, Some(Rate::Share(_))) {
            table.report("`rate` of a background load is a number or \"full\"");
        }
        Some(Background {
            ask: ask(&table, None)?,
            backend,
            connections: table.count("connections", 1, 20_000).unwrap_or(1) as usize,
            keep_alive: table.flag("keep_alive").unwrap_or(true),
            rate: rate.unwrap_or(Rate::Full),
            clients: loads::clients(&table).unwrap_or(1),
            tls_names: loads::tls_names(&table).unwrap_or(1),
        })
    };
    list.iter().filter_map(one).collect()
}

fn reads(table: &Table<'_>) -> Vec<Read> {
    let list = table
        .get("read")
        .map_or_else(Vec::new, |value| value.list());
    let mut found: Vec<Read> = list
        .iter()
        .filter_map(|value| value.one_of(&READS))
        .collect();
    found.sort();
    found.dedup();
    found
}
