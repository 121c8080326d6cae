//! All sensors for whoever asks: `nagaya sensors`, as a table or as JSON.

use std::fmt::Write as _;

use config::model::sensor::{Gauge, Sensor};
use os::sensors::OpenDescriptors;

use super::advice::{self, Advice};
use super::gauges::{Missing, Snapshot};
use super::sampling::Here;
use crate::shedding;
use crate::worker::Shared;

/// Upstreams whose sensors are shown.
const UPSTREAMS_MAX: usize = 100;
/// Begins a line that belongs to the one above.
const INDENT: &str = "    ";
/// Columns of the page.
const WIDTH: usize = 120;
/// What a sensor means has so many columns at least; else it stands on a line of its own.
const MEANING_WIDTH_MIN: usize = 40;

/// What there is to say of all sensors.
#[derive(Debug)]
pub struct Report {
    /// One a sensor, in the order of the table.
    pub rows: Vec<Row>,
    /// How late each worker is, in seconds; none where no gateway was asked.
    pub lags_s: Vec<Option<f64>>,
    /// What this machine does not tell.
    pub missing: Vec<Missing>,
    advice: Vec<Advice>,
}

/// What there is to say of a sensor.
#[derive(Debug, Clone)]
pub struct Row {
    /// The sensor.
    pub sensor: Sensor,
    /// What it says.
    pub value: Option<f64>,
    /// What it said on average over 10 s.
    pub mean: Option<f64>,
    /// What rules that shed make of it.
    pub rules: Vec<String>,
}

impl Row {
    fn of(sensor: Sensor, value: Option<f64>, mean: Option<f64>) -> Self {
        Self {
            sensor,
            value,
            mean,
            rules: Vec::new(),
        }
    }

    /// Its name, and what an answer says of it.
    fn told(&self) -> (String, control::Sensor) {
        let sensor = control::Sensor {
            value: self.value,
            mean_10s: self.mean,
            too_much: self.sensor.gauge().too_much(),
            unit: self.sensor.unit().about().into(),
            meaning: self.sensor.meaning().into(),
            rules: self.rules.clone(),
        };
        (self.sensor.name(), sensor)
    }

    /// What is too much on any machine, in words.
    fn too_much(&self) -> Option<String> {
        let too_much = self.sensor.gauge().too_much()?;
        Some(self.sensor.beyond(too_much))
    }
}

impl Report {
    /// What the sensors of a server say.
    pub fn of_server(shared: &Shared) -> Self {
        let sensors = &shared.sensors;
        let here = rows(|sensor| (sensors.value(sensor), sensors.mean(sensor)));
        let mut rows = [here, of_upstreams(shared)].concat();
        for rule in shedding::rows::collect(shared).0 {
            let Some(sensor) = Sensor::from_name(&rule.sensor) else {
                continue;
            };
            let unit = sensor.unit();
            let (enter, leave) = (unit.show(rule.enter), unit.show(rule.leave));
            let (name, state) = (&rule.rule, rule.state);
            let sheds = match &*rule.mode {
                "shadow" => "would shed",
                _ => "sheds",
            };
            let text = format!("{sheds} by {name}: {state}, enters at {enter}, leaves at {leave}");
            match rows.iter_mut().find(|row| row.sensor == sensor) {
                Some(row) => row.rules.push(text),
                // An agent that says nothing has no row of its own.
                None => rows.push(Row {
                    rules: vec![text],
                    ..Row::of(sensor, None, None)
                }),
            }
        }
        let descriptors = OpenDescriptors::look().ok().and_then(|open| {
            let count = open.told().or_else(|| open.counted().ok())?;
            Some((count, OpenDescriptors::most()?))
        });
        Self {
            rows,
            lags_s: sensors.lags_s().collect(),
            missing: sensors.missing().to_vec(),
            advice: advice::here(descriptors),
        }
    }

    /// What a machine says on which no gateway was asked.
    pub fn of_machine(here: &Here, snapshot: &Snapshot) -> Self {
        Self {
            rows: rows(|sensor| (snapshot.value(sensor), snapshot.mean(sensor))),
            lags_s: Vec::new(),
            missing: here.missing(),
            advice: advice::here(None),
        }
    }

    /// What raises that of which a sensor says how full it is, where something does: commands.
    pub fn raised_by(&self, sensor: &str) -> Vec<String> {
        let advice = self.advice.iter();
        let mut advice = advice.filter(|advice| advice.gauge.name() == sensor);
        advice
            .next()
            .map_or_else(Vec::new, |it| it.commands.clone())
    }

    /// As a page of aligned lines.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let width = self.rows.iter().map(|row| row.sensor.name().len());
        let width = width.max().unwrap_or(0).max("sensor".len());
        // Writing to memory does not fail, here and below.
        let _ = writeln!(
            out,
            "{:width$}  {:>10}  {:>10}  {:14}  is",
            "sensor", "now", "10 s mean", "too much"
        );
        for row in &self.rows {
            let show = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |value| row.sensor.unit().show(value))
            };
            let (name, now, mean) = (row.sensor.name(), show(row.value), show(row.mean));
            let too_much = row.too_much().unwrap_or_else(|| "-".to_owned());
            let begin = format!("{name:width$}  {now:>10}  {mean:>10}  {too_much:14}  ");
            let column = begin.chars().count();
            let meaning = row.sensor.meaning();
            if column + MEANING_WIDTH_MIN <= WIDTH {
                fold(&begin, meaning, column, &mut out);
            } else {
                let _ = writeln!(out, "{}", begin.trim_end());
                fold(INDENT, meaning, INDENT.len(), &mut out);
            }
            for rule in &row.rules {
                fold(INDENT, rule, 2 * INDENT.len(), &mut out);
            }
        }
        self.lags(&mut out);
        for lack in &self.missing {
            let names: Vec<_> = lack.gauges.iter().map(|gauge| gauge.name()).collect();
            let text = format!("{} ({})", names.join(", "), lack.why);
            fold("\nmissing: ", &text, INDENT.len(), &mut out);
            let begin = format!("{INDENT}to have it: ");
            fold(&begin, lack.remedy, 2 * INDENT.len(), &mut out);
        }
        self.advise(&mut out);
        out
    }

    /// What can be raised, and how where that may soon be needed.
    fn advise(&self, out: &mut String) {
        for advice in &self.advice {
            let Advice { gauge, state, .. } = advice;
            let _ = writeln!(out, "\n{}: {state}", gauge.name());
            let row = self.rows.iter().find(|row| is_here(&row.sensor, *gauge));
            if advice.has_room_by(row.and_then(|row| row.value)) {
                continue;
            }
            for command in &advice.commands {
                fold_command(&format!("{INDENT}to raise it: "), command, out);
            }
            let begin = format!("{INDENT}what it costs: ");
            fold(&begin, &advice.cost, 2 * INDENT.len(), out);
        }
    }

    fn lags(&self, out: &mut String) {
        if self.lags_s.len() < 2 {
            return;
        }
        let show = |lag_s: f64| Gauge::LoopLag.unit().show(lag_s);
        // Two spaces apart: there is one in each.
        let each = self.lags_s.iter().map(|lag_s| match lag_s {
            Some(lag_s) => format!(" {}", show(*lag_s)),
            None => " -".to_owned(),
        });
        let each: Vec<_> = each.collect();
        let pieces = each.iter().map(String::as_str);
        lines("\nloop_lag by worker: ", pieces, (INDENT.len(), ""), out);
    }

    /// As one JSON object and a line feed; what is not known is `null`.
    pub fn json(&self) -> String {
        control::json(&self.answered())
    }

    /// As an answer has it.
    pub(crate) fn answered(&self) -> control::Sensors {
        let lacks = self.missing.iter().map(|lack| control::Missing {
            sensors: lack.gauges.iter().map(|it| it.name().into()).collect(),
            why: lack.why.clone(),
            remedy: lack.remedy.into(),
        });
        let advice = self.advice.iter().map(|advice| control::Advice {
            sensor: advice.gauge.name().into(),
            state: advice.state.clone(),
            commands: advice.commands.clone(),
            cost: advice.cost.clone(),
        });
        control::Sensors {
            sensors: self.rows.iter().map(Row::told).collect(),
            loop_lag_s: self.lags_s.clone(),
            missing: lacks.collect(),
            advice: advice.collect(),
        }
    }
}

/// What all sensors say that say something, by name.
pub(crate) fn values(shared: &Shared) -> Vec<(String, f64)> {
    let sensors = &shared.sensors;
    let here = rows(|sensor| (sensors.value(sensor), None));
    let rows = here.into_iter().chain(of_upstreams(shared));
    let values = rows.filter_map(|row| Some((row.sensor.name(), row.value?)));
    values.collect()
}

fn rows(values: impl Fn(&Sensor) -> (Option<f64>, Option<f64>)) -> Vec<Row> {
    let row = |gauge| {
        let sensor = Sensor::Here(gauge);
        let (value, mean) = values(&sensor);
        Row::of(sensor, value, mean)
    };
    Gauge::ALL.into_iter().map(row).collect()
}

/// What agents tell of the generation's upstreams.
fn of_upstreams(shared: &Shared) -> Vec<Row> {
    let generation = shared.generation();
    let upstreams = generation
        .iter()
        .flat_map(|generation| &generation.upstreams);
    let asked = upstreams.filter(|upstream| upstream.agent_port.is_some());
    let there = asked.take(UPSTREAMS_MAX).flat_map(|upstream| {
        let gauges = Gauge::ALL.into_iter().filter(|gauge| gauge.is_of_machine());
        gauges.map(|gauge| {
            let sensor = Sensor::Upstream(upstream.name.as_str().into(), gauge);
            let sensors = &shared.sensors;
            let (value, mean) = (sensors.value(&sensor), sensors.mean(&sensor));
            Row::of(sensor, value, mean)
        })
    });
    there.filter(|row| row.value.is_some()).collect()
}

fn is_here(sensor: &Sensor, gauge: Gauge) -> bool {
    matches!(sensor, Sensor::Here(here) if *here == gauge)
}

/// Puts a text behind what its line begins with; what does not fit goes on further lines, indented.
fn fold(begin: &str, text: &str, indent: usize, out: &mut String) {
    lines(begin, text.split(' '), (indent, ""), out);
}

/// The same with a command: it can be typed as it is, on however many lines.
fn fold_command(begin: &str, command: &str, out: &mut String) {
    let mut is_quoted = false;
    let pieces = command.split(move |character| {
        is_quoted ^= character == '\'';
        character == ' ' && !is_quoted
    });
    lines(begin, pieces, (2 * INDENT.len(), " \\"), out);
}

/// Lines of [`WIDTH`] at most, as far as pieces are no longer; all but the last have an `end`.
fn lines<'a>(
    begin: &str,
    pieces: impl Iterator<Item = &'a str>,
    (indent, end): (usize, &str),
    out: &mut String,
) {
    out.push_str(begin);
    let mut column = begin.trim_start_matches('\n').chars().count();
    for (at, piece) in pieces.enumerate() {
        let width = piece.chars().count();
        let fits = column + 1 + width + end.len() <= WIDTH;
        match (at, fits) {
            (0, _) => {}
            (_, true) => {
                out.push(' ');
                column += 1;
            }
            (_, false) => {
                let _ = write!(out, "{end}\n{:indent$}", "");
                column = indent;
            }
        }
        out.push_str(piece);
        column += width;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::sample_tests::assert_stored;

    fn report() -> Report {
        let mut snapshot = Snapshot::unknown(0);
        snapshot.now[Gauge::Load1.index()] = 3.5;
        snapshot.mean[Gauge::Load1.index()] = 3.0;
        let mut rows = rows(|sensor| (snapshot.value(sensor), snapshot.mean(sensor)));
        rows.truncate(2);
        rows[0].rules = vec!["sheds by x: green".to_owned()];
        Report {
            rows,
            lags_s: vec![Some(0.001), None],
            missing: vec![Missing {
                gauges: &[Gauge::IoPressure],
                why: "/proc/pressure/io: not found".to_owned(),
                remedy: "another kernel",
            }],
            advice: vec![Advice {
                gauge: Gauge::Ports,
                fill: None,
                state: "few".to_owned(),
                commands: vec!["sysctl -w 'x'".to_owned()],
                cost: "nothing".to_owned(),
            }],
        }
    }

    #[test]
    fn the_table_says_what_is_and_what_to_do() {
        let table = report().table();
        assert_eq!(
            table,
            "sensor         now   10 s mean  too much        is\n\
             load1         3.50        3.00  -               tasks that run, wait for a processor or for a disk: mean that forgets\n\
             \x20                                               with 1 minute, so late by that\n\
             \x20   sheds by x: green\n\
             load5            -           -  -               the same, forgetting with 5 minutes\n\
             \nloop_lag by worker:  1.0 ms  -\n\
             \nmissing: io_pressure (/proc/pressure/io: not found)\n    to have it: another kernel\n\
             \nports: few\n    to raise it: sysctl -w 'x'\n    what it costs: nothing\n"
        );
    }

    #[test]
    fn the_page_fits_and_its_commands_can_be_typed() {
        let sensors = [
            Gauge::ALL.map(Sensor::Here),
            Gauge::ALL.map(|gauge| Sensor::Upstream("an-upstream-of-a-long-name".into(), gauge)),
        ];
        let wide = |names: &[Sensor]| {
            let rows = names.iter().map(|it| Row::of(it.clone(), Some(0.5), None));
            let mut report = report();
            report.rows = rows.collect();
            report.lags_s = vec![Some(0.0125); 64];
            report.missing[0].why = "a reason ".repeat(40);
            report.advice[0].cost = "a cost of it ".repeat(40);
            let command = format!("a '{}' > /dev/null", "b c ".repeat(20));
            report.advice[0].commands = vec![[&*command; 3].join("; ")];
            report.table()
        };
        for page in [wide(&sensors[0]), wide(&sensors.concat())] {
            let widest = page.lines().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|width| width <= WIDTH), "{page}");
            let quotes = |line: &str| line.matches('\'').count();
            let (_, commands) = page.split_once("to raise it: ").expect("commands");
            let (commands, _) = commands.split_once("what it").expect("costs");
            assert!(commands.lines().all(|line| quotes(line) % 2 == 0), "{page}");
            assert_eq!(commands.matches(" \\\n").count(), 2, "{page}");
        }
    }

    #[test]
    fn what_has_room_is_not_raised() {
        let mut report = report();
        for (gauge, fill, sensed, is_raised) in [
            (Gauge::Conntrack, Some(0.0), None, false),
            (Gauge::Conntrack, Some(0.6), Some(0.1), true),
            (Gauge::Ports, None, Some(0.1), false),
            (Gauge::Ports, None, Some(0.6), true),
            (Gauge::Ports, None, None, true),
        ] {
            report.rows = vec![Row::of(Sensor::Here(gauge), sensed, None)];
            report.advice[0].gauge = gauge;
            report.advice[0].fill = fill;
            let table = report.table();
            let state = format!("\n{}: few\n", gauge.name());
            assert!(table.contains(&state), "{table}");
            assert_eq!(table.contains("to raise it: "), is_raised, "{table}");
        }
    }

    #[test]
    fn the_json_has_null_for_what_is_not_known() {
        assert_stored("sensors.json", &report().json());
    }

    #[test]
    fn the_table_is_what_it_was() {
        assert_stored("sensors.txt", &report().table());
    }
}
