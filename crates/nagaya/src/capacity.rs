//! `nagaya capacity`: how full each resource of this machine is, when it will be, by whom, and what helps.
//!
//! The idea: the recorder's figures say how it has been, and this machine what can be raised; both are
//! read as they are, whether a gateway runs or not.

use std::path::PathBuf;

use clap::Args;
use engine::sensors::sampling::Here;
use engine::sensors::view::Report;
use jiff::Timestamp;
use recorder::{FigureStore, outlook, resources, zone_of};
use report::Language;

use crate::outcome::{Outcome, complain, print};
use crate::recorder::{DIRECTORY, printed};

/// Options of `capacity`.
#[derive(Debug, Args)]
pub(crate) struct CapacityOptions {
    /// Print one object as JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write a page instead: nagaya capacity --html > capacity.html
    #[arg(long)]
    html: bool,
    /// Directory of the figures
    #[arg(long, value_name = "DIRECTORY", default_value = DIRECTORY)]
    directory: PathBuf,
}

/// Tells it.
pub(crate) fn run(options: &CapacityOptions) -> Outcome {
    let mut here = Here::look();
    let snapshot = here.sample();
    let report = Report::of_machine(&here, &snapshot);
    let resources = resources(processors(), |figure| report.raised_by(figure));
    let told = FigureStore::open_existing(&options.directory).and_then(|mut store| {
        let now = Timestamp::now().to_zoned(zone_of(&mut store)?);
        outlook(&store, resources, &now)
    });
    match told {
        Ok(outlook) if options.json => print(outlook.json().as_bytes()),
        Ok(outlook) => {
            let document = outlook.document(Language::English);
            print(printed(&document, options.html).as_bytes())
        }
        Err(why) => {
            complain(&format!("nagaya: {why}\n"));
            Outcome::Failed
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
