//! One document type behind every report, and what it is turned into.
//!
//! The idea: whoever measures says what there is to say once, as a [`Document`] of sections,
//! tables and charts; it becomes a page that needs no network, Markdown, or text for a terminal.
//! How a figure is written is decided in [`units`] alone.

#![forbid(unsafe_code)]

mod chart;
mod document;
mod draw;
mod html;
mod language;
mod markdown;
mod numbers;
mod text;
pub mod units;

pub use chart::{
    Along, Bar, BarGroup, Bars, Chart, Event, Line, Lines, Marker, Panel, QuantileSeries, Quantiles,
};
pub use document::{
    Align, Block, Cell, Column, Document, Link, Listing, Picture, Section, Table, Tone,
};
pub use html::{Frame, style};
pub use language::{Language, Phrase};
pub use numbers::TOLD;
pub use text::{Paint, terminal_width};
pub use text::{harmless, wrapped};
