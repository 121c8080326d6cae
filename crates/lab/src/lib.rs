//! `nagaya-lab`: experiments that anyone can run again.
//!
//! The idea: an experiment is a file that says what is started, what is asked of it and what the
//! question is. It is read and checked whole (`reading`) before anything is started (`bed`); rows
//! are run in randomised blocks (`run`), and every report is drawn from what they left (`record`).

#![forbid(unsafe_code)]

mod adding;
mod answer;
mod bed;
mod caveats;
mod child;
mod compare;
mod draw;
mod figures;
mod find;
mod generator;
mod hold;
mod hook;
mod interrupt;
mod judge;
mod list;
mod model;
mod options;
mod picture;
mod ports;
mod program;
mod progress;
mod reading;
mod record;
mod results;
mod run;
mod slice;
mod slope;
mod source;
mod summary;
mod template;
mod tenants;
mod together;
mod wrk;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

pub use child::{Running, Start, Sweep, adopt};
pub use interrupt::{catch as catch_signals, check as interrupted};
use load::Error;
pub use ports::Ports;
pub use program::on_path;
use report::{Document, Paint, terminal_width};

use bed::Keep;
use model::Experiment;
use options::Command;
use program::Programs;
use record::Record;
use run::{End, Stored};

/// Exit status of wrong use, files with mistakes included.
const WRONG_USE: u8 = 2;
/// Columns of a terminal that does not tell.
const WIDTH: usize = 100;

/// Why `nagaya-lab` did not end well.
enum Failure {
    /// Wrong use, or an experiment with mistakes.
    Use(String),
    /// Something failed while running.
    Run(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Run(error.to_string())
    }
}

/// Does what the command line asks for.
///
/// Exit status: 0 fine, 1 failed while running or worse than before, 2 wrong use.
pub fn main() -> ExitCode {
    let options = match options::parse() {
        Ok(options) => options,
        Err(said) => {
            let _ = said.print();
            return ExitCode::from(if said.use_stderr() { WRONG_USE } else { 0 });
        }
    };
    let done = match options.command {
        Command::Run(options) => run_all(&options),
        Command::List => {
            let (text, well) = list::list();
            print!("{text}");
            Ok(status(well))
        }
        Command::Compare(options) => compare(&options),
        Command::Draw(options) => draw_all(&options),
        Command::Figures => figures_drawn(),
    };
    let (text, status) = match done {
        Ok(status) => return status,
        Err(Failure::Use(text)) => (text, ExitCode::from(WRONG_USE)),
        Err(Failure::Run(text)) => (text, ExitCode::FAILURE),
    };
    eprintln!("nagaya-lab: {text}");
    status
}

fn status(is_well: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_well))
}

fn run_all(options: &options::Run) -> Result<ExitCode, Failure> {
    // Every file is checked before the first server is started.
    let mut experiments = Vec::new();
    for name in &options.experiments {
        let file = find::file(name).map_err(|error| Failure::Use(error.to_string()))?;
        let read = reading::read(&file);
        let mut experiment = read
            .map_err(|problems| Failure::Use(format!("the experiment has mistakes\n{problems}")))?;
        change(&mut experiment, options);
        experiments.push(experiment);
    }
    interrupt::catch()?;
    let _ = os::process::raise_nofile();
    child::adopt();
    child::pin(&[generator::CORE]);
    let _sweep = child::Sweep;
    run_each(&experiments, options)
}

fn run_each(experiments: &[Experiment], options: &options::Run) -> Result<ExitCode, Failure> {
    let seed = options
        .seed
        .unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    let setting = run::Setting {
        programs: Programs {
            given: options.peer.clone(),
            without: options.without.clone(),
        },
        without: options.without.clone(),
        only: options.only.clone(),
        keep: if options.keep { Keep::Yes } else { Keep::No },
        stored: if options.add {
            Stored::Added
        } else {
            Stored::Replaced
        },
        seed,
    };
    let mut records = Vec::new();
    let mut is_whole = true;
    for experiment in experiments {
        if experiments.len() > 1 && !run::wants_any(experiment, &setting) {
            continue;
        }
        let ran = run::run(experiment, &setting, &options.output)?;
        is_whole &= ran.end == End::Whole;
        records.push(draw(&ran.directory)?);
        if ran.end == End::CutShort {
            // What is written of several experiments together has all of them, or stays as it was.
            return Ok(ExitCode::FAILURE);
        }
    }
    if records.is_empty() {
        return Err(Failure::Use(
            "no row's name holds what --only says".to_owned(),
        ));
    }
    results::write_together(
        &records,
        options.together.as_deref(),
        options.readme.as_deref(),
    )?;
    Ok(status(is_whole))
}

/// What the command line changes of an experiment.
fn change(experiment: &mut Experiment, options: &options::Run) {
    for row in &mut experiment.rows {
        if let Some(blocks) = options.blocks {
            let share = row.load.blocks * blocks as usize / experiment.blocks.max(1);
            row.load.blocks = share.max(1);
        }
        if let Some(seconds) = options.seconds {
            row.load.seconds = seconds;
            row.load.requests = None;
        }
        if let Some(requests) = options.requests {
            row.load.requests = Some(requests);
        }
    }
}

fn draw_all(options: &options::Draw) -> Result<ExitCode, Failure> {
    let drawn: Result<Vec<Record>, Failure> =
        options.results.iter().map(|path| draw(path)).collect();
    results::write_together(
        &drawn?,
        options.together.as_deref(),
        options.readme.as_deref(),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Draws the pictures of `lab/figures.toml`.
fn figures_drawn() -> Result<ExitCode, Failure> {
    for file in picture::draw_all(Path::new("."))? {
        println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Draws the reports of a directory, shows the tables, and says where they are.
fn draw(directory: &Path) -> Result<Record, Failure> {
    let (record, mut document) = results::draw(directory)?;
    document
        .sections
        .retain(|section| section.heading != draw::CURVES);
    show(&document);
    eprintln!(
        "lab: written to {}",
        directory.join("report.html").display()
    );
    Ok(record)
}

fn compare(options: &options::Compare) -> Result<ExitCode, Failure> {
    let (old, new) = (Record::read(&options.old)?, Record::read(&options.new)?);
    let compared = compare::compare(&old, &new);
    show(&compared.document);
    Ok(status(compared.worse == 0))
}

fn show(document: &Document) {
    let paint = if std::io::stdout().is_terminal() {
        Paint::Colours
    } else {
        Paint::Never
    };
    let width = terminal_width().unwrap_or(WIDTH);
    println!("{}", document.to_text(width, paint));
}
