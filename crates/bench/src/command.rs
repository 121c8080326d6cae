//! The command line of `nagaya bench`: which of its two languages was spoken, and its help.
//!
//! The idea: ApacheBench has short flags alone and the native mode long ones alone, so what was
//! written says which was meant. A mix is refused with the words that would have been right.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use crate::{ab, native};

/// Long options that mean the same in both languages.
const SHARED: [&str; 4] = ["json", "html", "pid", "listen"];

/// What ApacheBench's flags are called natively.
const NATIVE_WORDS: [(char, &str); 9] = [
    ('n', "--requests"),
    ('c', "--connections"),
    ('t', "--duration"),
    ('s', "--timeout"),
    ('m', "--method"),
    ('H', "--header"),
    ('p', "--body"),
    ('W', "--threads"),
    ('i', "--method HEAD"),
];

/// Which language a command line is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    ApacheBench,
    Native,
    /// Help of both.
    Help,
    /// This short flag and a long option.
    Mixed(char),
}

/// Runs `nagaya bench` with what follows these words, or `ab` if called by that name.
pub fn main(called_as: &str, arguments: Vec<OsString>) -> ExitCode {
    if called_as == ab::NAME {
        return ab::main(ab::NAME, &arguments);
    }
    match language(&arguments) {
        Language::ApacheBench => ab::main("nagaya bench", &arguments),
        Language::Native => native::main(arguments),
        Language::Help => help(),
        Language::Mixed(flag) => {
            eprintln!("nagaya bench: {}", said_of_mix(flag));
            ExitCode::from(2)
        }
    }
}

/// The definition of `nagaya bench` for help, completions and the man page.
pub fn definition() -> clap::Command {
    native::definition().name("bench").args(ab::arguments())
}

fn help() -> ExitCode {
    match definition().bin_name("nagaya bench").print_help() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Reads no further than needed to know; whoever speaks the language reads it properly.
fn language(arguments: &[OsString]) -> Language {
    let mut short = None;
    let mut long = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-h" | b"--help" => return Language::Help,
            b"--" => break,
            [b'-', b'-', name @ ..] => long |= !is_shared(name),
            [b'-', flags @ ..] => {
                if let Some(first) = flags.first().map(|byte| char::from(*byte))
                    && ab::is_flag(first)
                {
                    short = short.or(Some(first));
                    if ab::takes_next_word(flags) {
                        words.next();
                    }
                }
            }
            _ => {}
        }
    }
    match (short, long) {
        (None, _) => Language::Native,
        (Some(_), false) => Language::ApacheBench,
        (Some(flag), true) => Language::Mixed(flag),
    }
}

/// Whether a long option, without its dashes, belongs to both.
fn is_shared(option: &[u8]) -> bool {
    let name = option
        .split(|byte| *byte == b'=')
        .next()
        .unwrap_or_default();
    SHARED
        .iter()
        .any(|shared| OsStr::from_bytes(name) == *shared)
}

fn said_of_mix(flag: char) -> String {
    let native = NATIVE_WORDS.iter().find(|(letter, _)| *letter == flag);
    let remedy = match native {
        Some((_, words)) => format!("write {words} instead of -{flag}"),
        None => format!("leave out -{flag}"),
    };
    format!(
        "-{flag} is ApacheBench's, the long options are our own, and a run takes one or the other: \
         {remedy}, or keep to ApacheBench's flags (nagaya bench --help)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_say_which_language_is_spoken() {
        for (line, expected) in [
            ("http://a/", Language::Native),
            ("", Language::Native),
            ("--rate 5 http://a/", Language::Native),
            ("-n 5 http://a/", Language::ApacheBench),
            ("http://a/ -kc5", Language::ApacheBench),
            ("-n 5 --json out http://a/", Language::ApacheBench),
            ("-n 5 --pid=7 http://a/", Language::ApacheBench),
            ("--json out http://a/", Language::Native),
            ("-T --rate http://a/", Language::ApacheBench),
            ("-kT --rate http://a/", Language::ApacheBench),
            ("--rate -5 http://a/", Language::Native),
            ("-- -n", Language::Native),
            ("-h", Language::Help),
            ("--rate 5 --help", Language::Help),
            ("-c 5 --rate 5 http://a/", Language::Mixed('c')),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(language(&words), expected, "{line}");
        }
    }

    #[test]
    fn a_mix_is_told_what_to_write() {
        assert!(said_of_mix('c').contains("--connections instead of -c"));
        assert!(said_of_mix('w').contains("leave out -w"));
    }
}
