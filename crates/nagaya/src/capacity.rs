//! `nagaya capacity`: how full each resource of this machine is, when it will be, by whom, and what helps.
//!
//! The idea: the recorder's figures say how it has been, and this machine what can be raised; both are
//! read as they are, whether a gateway runs or not.

use std::path::Path;

use clap::Args;
use engine::sensors::sampling::Here;
use engine::sensors::view::Report;
use jiff::Timestamp;
use recorder::{FigureStore, outlook, resources, zone_of};
use report::Language;

use crate::outcome::{Outcome, print};
use crate::recorder::{CommandFailure, FiguresPlace, ended, failed, printed};

/// Options of `capacity`.
#[derive(Debug, Args)]
pub(crate) struct CapacityOptions {
    /// Print one object as JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write a page instead: nagaya capacity --html > capacity.html
    #[arg(long)]
    html: bool,
    #[command(flatten)]
    place: FiguresPlace,
}

/// Tells it.
pub(crate) fn run(config: &Path, options: &CapacityOptions) -> Outcome {
    ended(told(config, options))
}

fn told(config: &Path, options: &CapacityOptions) -> Result<Outcome, CommandFailure> {
    let directory = options.place.find(config)?;
    let mut here = Here::look();
    let snapshot = here.sample();
    let report = Report::of_machine(&here, &snapshot);
    let resources = resources(processors(), |figure| report.raised_by(figure));
    let mut store = FigureStore::open_existing(&directory).map_err(failed)?;
    let now = Timestamp::now().to_zoned(zone_of(&mut store).map_err(failed)?);
    let outlook = outlook(&store, resources, &now).map_err(failed)?;
    let text = match options.json {
        true => outlook.json(),
        false => printed(&outlook.document(Language::English), options.html),
    };
    Ok(print(text.as_bytes()))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
