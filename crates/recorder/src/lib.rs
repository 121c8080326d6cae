//! What sites were asked for, and by whom: requests become figures by site and time, which are kept
//! and told.
//!
//! The idea: a request is folded as one record of fixed size, whose texts are told once ([`Fold`]), be
//! it from a log ([`LogReader`]) or from elsewhere. What comes of it lies in a database ([`FigureStore`])
//! whose size follows the sites and days there were, not the requests; a report ([`document`]) is made
//! of any range of days, and the console ([`answer`]) shows them all. Clocks are their callers'. No address and no query is stored.
//!
//! Not here: who types what (`nagaya`), and how a report looks (`report`).

#![forbid(unsafe_code)]

mod agent;
mod alert;
mod archive_link;
mod capacity;
mod console;
mod day;
mod durations;
mod fold;
mod hearing;
mod history;
mod import;
mod input;
pub mod line;
mod names;
mod outlook;
mod page;
mod piece;
mod process;
mod range;
mod reader;
mod respondent;
mod salts;
mod sandbox;
mod sending;
mod site_minutes;
mod store;
mod visits;
mod watch;
mod zone;

pub use agent::{Agent, Browser};
pub use alert::{AlertStanding, AlertState};
pub use capacity::{AHEAD_MAX, BusyHour, DAYS_MAX, DAYS_MIN, FullOn, Trend, full_on, trend};
pub use console::{ArchiveMoment, ConsoleMoment, Live, answer, archive_question, fragment};
pub use day::{
    DayFigures, Figures, ListOf, Lists, NAMES_MAX, PartsWanted, Tally, TopList, TrailStep,
};
pub use durations::Durations;
pub use fold::{Fold, SITES_MAX};
pub use history::{Detail, History, SECONDS_KEPT, SERIES_MAX, Sample, Sums};
pub use import::{ImportCounts, ImportError, ImportEvent, Importer, Reading};
pub use input::{LogInput, NextLine};
pub use outlook::{KeptOutlook, Outlook, Resource, outlook, resources};
pub use page::document;
pub use piece::{Piece, StoredPiece};
pub use process::run;
pub use range::{COMPARED_DAYS, RangeFigures};
pub use reader::{LineError, LineFate, LogReader, ReadingOptions, is_site_name};
pub use salts::{Random, SaltPeriod, Salts, civil, day_number};
pub use store::{
    FigureStore, HOURS_DAYS, IncidentCause, IncidentsOf, KeptIncident, MINUTES_DAYS, SourceMark,
    StoreError, Tier, VISITORS_DAYS,
};
pub use visits::OpenVisit;
pub use zone::{machine_zone, zone_of};
