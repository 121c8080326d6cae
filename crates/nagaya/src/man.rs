//! `nagaya(1)`, from the definitions the command line is parsed by.
//!
//! The idea: one page for all commands, each with its own options, so that it names no other page.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// The page, in the `man` macros.
pub(crate) fn page(mut command: Command) -> String {
    command.build();
    let about = |command: &Command| {
        let about = command.get_long_about().or_else(|| command.get_about());
        about
            .map(|about| text(&about.to_string()))
            .unwrap_or_default()
    };
    let mut out = format!(
        ".TH nagaya 1 \"\" \"nagaya {}\"\n.SH NAME\nnagaya \\- {}\n.SH SYNOPSIS\n",
        env!("CARGO_PKG_VERSION"),
        about(&command)
    );
    // Writing to memory does not fail, here and below.
    let commands = commands(&command, "");
    for (name, command) in &commands {
        let _ = writeln!(out, "\\fBnagaya {name}\\fR{}\n.br", synopsis(command));
    }
    out.push_str(".SH COMMANDS\n");
    for (name, command) in &commands {
        let _ = writeln!(out, ".TP\n\\fB{name}\\fR\n{}", about(command));
        out.push_str(".RS\n");
        own(command).for_each(|arg| option(arg, &mut out));
        out.push_str(".RE\n");
    }
    out.push_str(".SH OPTIONS\n");
    command
        .get_arguments()
        .for_each(|arg| option(arg, &mut out));
    let after = command
        .get_after_help()
        .map(|after| text(&after.to_string()));
    let _ = write!(out, ".SH NOTES\n.nf\n{}\n.fi\n", after.unwrap_or_default());
    out
}

/// The commands that do something, each with the words that lead to it.
fn commands<'a>(of: &'a Command, before: &str) -> Vec<(String, &'a Command)> {
    let each = of.get_subcommands().flat_map(|command| {
        let name = format!("{before}{}", command.get_name());
        match command.has_subcommands() {
            true => commands(command, &format!("{name} ")),
            false => vec![(name, command)],
        }
    });
    each.collect()
}

/// Options of one command that a synopsis names each; it says only that there are, if more.
const NAMED_MAX: usize = 8;

/// What follows a command.
fn synopsis(command: &Command) -> String {
    let mut words: Vec<String> = own(command).map(usage).collect();
    if words.len() > NAMED_MAX {
        words = vec!["[\\fIOPTIONS\\fR]".into()];
        words.extend(command.get_positionals().map(usage));
    }
    if command
        .get_arguments()
        .any(|arg| is_general_configuration(arg) && !arg.is_hide_set())
    {
        words.push("[\\fB\\-c\\fR \\fIFILE\\fR]".into());
    }
    words.iter().map(|word| format!(" {word}")).collect()
}

/// The arguments of a command that not every command has.
fn own(command: &Command) -> impl Iterator<Item = &Arg> {
    let general = ["help", "version"];
    command.get_arguments().filter(move |arg| {
        !arg.is_hide_set()
            && !general.contains(&arg.get_id().as_str())
            && !is_general_configuration(arg)
    })
}

fn is_general_configuration(arg: &Arg) -> bool {
    arg.get_long() == Some("config")
}

/// How an argument is written, in a synopsis.
fn usage(arg: &Arg) -> String {
    let long = arg
        .get_long()
        .map(|long| format!("\\fB\\-\\-{}\\fR", text(long)));
    match (long, value(arg)) {
        (Some(long), None) => format!("[{long}]"),
        (Some(long), Some(value)) => format!("[{long} {value}]"),
        (None, value) => value.unwrap_or_default(),
    }
}

fn option(arg: &Arg, out: &mut String) {
    let short = arg.get_short().map(|short| format!("\\fB\\-{short}\\fR"));
    let long = arg
        .get_long()
        .map(|long| format!("\\fB\\-\\-{}\\fR", text(long)));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let words: Vec<String> = [names.join(", ")].into_iter().chain(value(arg)).collect();
    let help = arg.get_help().map(|help| text(&help.to_string()));
    let _ = writeln!(
        out,
        ".TP\n{}\n{}",
        words.join(" ").trim(),
        help.unwrap_or_default()
    );
}

/// What stands for the argument's value, if it takes one.
fn value(arg: &Arg) -> Option<String> {
    let names = arg
        .get_value_names()
        .filter(|_| arg.get_action().takes_values())?;
    names.first().map(|name| format!("\\fI{}\\fR", text(name)))
}

/// Text that the macros leave as it is.
fn text(plain: &str) -> String {
    let escaped = plain.replace('\\', "\\e").replace('-', "\\-");
    let line = |line: &str| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    };
    escaped.lines().map(line).collect::<Vec<_>>().join("\n")
}
