//! The text format that Prometheus reads (version 0.0.4): families, samples, labels.

use std::fmt::{Display, Write as _};

use control::Times;

use crate::stats::BOUNDS_US;

/// Samples so far.
pub(super) struct Text {
    pub(super) out: String,
}

// Writing to memory does not fail.
impl Text {
    /// Begins a family; what adds up is a total.
    pub(super) fn family(&mut self, name: &str, help: &str) {
        let is_total = name.ends_with("_total");
        self.family_of(name, if is_total { "counter" } else { "gauge" }, help);
    }

    /// Puts a family of one sample.
    pub(super) fn one(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help);
        self.sample::<&str>(name, &[], value);
    }

    /// Puts a family of samples, each with its labels.
    pub(super) fn each<const N: usize, L: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'static str, L); N], V)>,
    ) {
        self.family(name, help);
        for (labels, value) in samples {
            self.sample(name, &labels, value);
        }
    }

    /// Begins a family of this kind.
    pub(super) fn family_of(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(
            self.out,
            "# HELP nagaya_{name} {help}\n# TYPE nagaya_{name} {kind}"
        );
    }

    /// Puts one sample of the family that was begun.
    pub(super) fn sample<L: AsRef<str>>(
        &mut self,
        name: &str,
        labels: &[(&str, L)],
        value: impl Display,
    ) {
        let _ = write!(self.out, "nagaya_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            self.label(text.as_ref());
            self.out.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {value}");
    }

    fn label(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '\\' | '"' => self.out.extend(['\\', character]),
                '\n' => self.out.push_str("\\n"),
                _ => self.out.push(character),
            }
        }
    }

    /// Puts a histogram of times.
    pub(super) fn histogram(&mut self, name: &str, help: &str, times: &Times) {
        self.family_of(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (at, count) in times.counts.iter().enumerate() {
            below += count;
            let bound = BOUNDS_US
                .get(at)
                .map_or("+Inf".to_owned(), |bound| seconds(*bound));
            self.sample(&bucket, &[("le", &bound)], below);
        }
        self.sample::<&str>(&format!("{name}_sum"), &[], seconds(times.sum_us));
        self.sample::<&str>(&format!("{name}_count"), &[], below);
    }
}

/// Microseconds as seconds, exactly: `0.0025`, `10`.
pub(super) fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
