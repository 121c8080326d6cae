//! Commands of an experiment: run to their end, with a bound, their figures read.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use super::child::Start;
use super::interrupt;
use super::model::Command;
use super::template::Values;
use load::Error;

/// Longest time of a hook.
pub(crate) const HOOK_WAIT: Duration = Duration::from_secs(120);
/// What is read of a command's words.
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// Figures one command may print.
const FIGURES_MAX: usize = 1000;
/// The core of commands: the generator's, which waits meanwhile.
const CORE: usize = 1;

/// Where and with what commands run.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) values: &'a Values,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) directory: &'a Path,
    /// Becomes the file for what it says.
    pub(crate) output: &'a Path,
}

impl Surroundings<'_> {
    /// Runs all of them, one after another; returns the figures they printed.
    pub(crate) fn run_all(&self, commands: &[Command]) -> Result<BTreeMap<String, f64>, Error> {
        let mut figures = BTreeMap::new();
        for command in commands {
            figures.extend(self.run(command, HOOK_WAIT)?);
        }
        Ok(figures)
    }

    /// Runs one to its end and returns the figures it printed.
    pub(crate) fn run(
        &self,
        command: &Command,
        within: Duration,
    ) -> Result<BTreeMap<String, f64>, Error> {
        let said = self.said(command, within)?;
        Ok(figures(&said))
    }

    /// Runs one to its end and returns what it said; an end that is not well is an error.
    pub(crate) fn said(&self, command: &Command, within: Duration) -> Result<String, Error> {
        let (shown, words) = self.words(command)?;
        let doing = || format!("run `{shown}`");
        let _ = std::fs::remove_file(self.output);
        let start = Start {
            words: &words,
            cores: &[CORE],
            directory: self.directory,
            output: self.output,
            environment: &self.environment,
        };
        let mut running = start.run()?;
        let deadline = Instant::now() + within;
        let status = loop {
            interrupt::check()?;
            if let Some(status) = running.ended() {
                break status;
            }
            if Instant::now() > deadline {
                let seconds = within.as_secs_f64();
                return Err(Error::new(
                    doing(),
                    format!("not done after {seconds} s; {}", running.words()),
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if !status.success() {
            return Err(Error::new(
                doing(),
                format!("{status}; {}", running.words()),
            ));
        }
        let mut text = Vec::new();
        let file = std::fs::File::open(self.output).map_err(|e| Error::new(doing(), e))?;
        file.take(OUTPUT_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(|e| Error::new(doing(), e))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The command as it is shown, and word by word.
    fn words(&self, command: &Command) -> Result<(String, Vec<String>), Error> {
        let fill = |text: &str| {
            let filled = self.values.fill(text);
            filled.map_err(|e| Error::new(format!("fill in the command `{text}`"), e))
        };
        Ok(match command {
            Command::Shell(line) => {
                let line = fill(line)?;
                (line.clone(), vec!["/bin/sh".into(), "-c".into(), line])
            }
            Command::Words(words) => {
                let words: Vec<String> = words
                    .iter()
                    .map(|word| fill(word))
                    .collect::<Result<_, _>>()?;
                (words.join(" "), words)
            }
        })
    }
}

/// Lines of the form `name value` or `name value unit`; other lines are ignored.
pub(crate) fn figures(text: &str) -> BTreeMap<String, f64> {
    let figure = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next()?, words.next()?);
        let short = words.count() <= 1;
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        let value: f64 = value.parse().ok()?;
        (short && plain && value.is_finite()).then(|| (name.to_owned(), value))
    };
    text.lines().filter_map(figure).take(FIGURES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_other_words_are_not() {
        let seen = figures(
            "check_ms 291.5 ms\nsockets 12\nall is well now\nnan_ms NaN ms\nstarted at 12:00\n",
        );
        let expected = [("check_ms".to_owned(), 291.5), ("sockets".to_owned(), 12.0)];
        assert_eq!(seen, expected.into());
    }

    #[test]
    fn a_command_that_fails_or_hangs_is_told_with_its_words() {
        let directory = testkit::TempDir::new();
        let output = directory.path().join("said");
        let mut values = Values::default();
        values.set("port", 8080);
        let surroundings = Surroundings {
            values: &values,
            environment: vec![("LAB_PORT".into(), "8080".into())],
            directory: directory.path(),
            output: &output,
        };
        let shell = |line: &str| Command::Shell(line.to_owned());
        let well = surroundings.run_all(&[shell("echo port @port@ n; echo env $LAB_PORT n")]);
        assert_eq!(
            well.expect("it ends well")
                .into_values()
                .collect::<Vec<_>>(),
            [8080.0, 8080.0]
        );
        let failed = surroundings
            .run_all(&[shell("echo no disk >&2; exit 3")])
            .expect_err("3");
        assert!(
            failed
                .to_string()
                .contains("exit status: 3; it said: no disk"),
            "{failed}"
        );
        let hung = surroundings.run(
            &Command::Words(vec!["sleep".into(), "60".into()]),
            Duration::from_millis(50),
        );
        assert!(
            hung.expect_err("too long")
                .to_string()
                .contains("not done after 0.05 s")
        );
    }
}
