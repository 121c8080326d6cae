//! Command line of `nagaya-lab`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Experiments that anyone can run again: what is started, what is asked, what is compared.
#[derive(Debug, Parser)]
#[command(name = "nagaya-lab", version, disable_help_subcommand = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs experiments and writes lab/results/NAME/{report.html,report.md,data.jsonl,summary.jsonl}.
    Run(Run),
    /// Lists the experiments below the working directory.
    List,
    /// Compares two stored results row by row.
    Compare(Compare),
    /// Draws the reports of stored results again.
    Draw(Draw),
    /// Draws the pictures that documents show, as lab/figures.toml says.
    #[command(hide = true)]
    Figures,
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Names of experiments (lab/NAME.toml or lab/NAME/experiment.toml), or files.
    #[arg(required = true, value_name = "NAME|FILE")]
    pub(crate) experiments: Vec<String>,
    /// Blocks of a row, in place of the file's; a row with a count of its own keeps its
    /// proportion to the file's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) blocks: Option<u32>,
    /// Seconds of a slice, in place of the experiment's.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Requests of a slice, in place of a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Only the row of this name, or rows whose names hold it; repeatable.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Leave out a variant, or a program; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) without: Vec<String>,
    /// Another binary for a program: nginx=/opt/nginx/sbin/nginx; repeatable.
    #[arg(long, value_name = "NAME=PATH", value_parser = peer)]
    pub(crate) peer: Vec<(String, PathBuf)>,
    /// Where results go; each experiment gets a directory of its name in it.
    #[arg(long, value_name = "DIR", default_value = "lab/results")]
    pub(crate) output: PathBuf,
    /// Put the rows that were run among the stored results, in place of their older selves.
    #[arg(long)]
    pub(crate) add: bool,
    /// Leave the temporary directory, with configs and what servers said.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Number the random orders come from; printed in the report.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Also write all experiments of this run into one Markdown file.
    #[arg(long, value_name = "FILE")]
    pub(crate) together: Option<PathBuf>,
    /// Also put the tables in short between the `figures` marks of this document.
    #[arg(long, value_name = "FILE")]
    pub(crate) readme: Option<PathBuf>,
}

/// What `compare` takes.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Results directory, data.jsonl or summary.jsonl.
    pub(crate) old: PathBuf,
    /// Results directory, data.jsonl or summary.jsonl.
    pub(crate) new: PathBuf,
}

/// What `draw` takes.
#[derive(Debug, Args)]
pub(crate) struct Draw {
    /// Results directories.
    #[arg(required = true)]
    pub(crate) results: Vec<PathBuf>,
    /// Also write all of them into one Markdown file.
    #[arg(long, value_name = "FILE")]
    pub(crate) together: Option<PathBuf>,
    /// Also put the tables in short between the `figures` marks of this document.
    #[arg(long, value_name = "FILE")]
    pub(crate) readme: Option<PathBuf>,
}

/// Reads the command line.
pub(crate) fn parse() -> Result<Options, clap::Error> {
    Options::try_parse()
}

fn peer(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text
        .split_once('=')
        .ok_or("write NAME=PATH, as in nginx=/usr/sbin/nginx")?;
    Ok((name.to_owned(), path.into()))
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (0.05..=3600.0).contains(number));
    number.ok_or_else(|| "a number of seconds from 0.05 to 3600".to_owned())
}
