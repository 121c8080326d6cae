//! What a report consists of, whatever it is turned into.
//!
//! Text is plain, but for `code` between backticks. Nothing in it is trusted: names of servers and
//! labels of requests come from elsewhere, and every renderer escapes them.

use serde::{Deserialize, Serialize};

use super::chart::Chart;
use super::language::Language;
use super::units;

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// What it is told in.
    pub language: Language,
    /// What was measured.
    pub title: String,
    /// The question, or one sentence about the run.
    pub subtitle: String,
    /// The answer in one sentence, shown before everything else.
    pub answer: Option<(Tone, String)>,
    /// On what, with what, when: name and value.
    pub facts: Vec<(String, String)>,
    /// The rest.
    pub sections: Vec<Section>,
}

/// A part of a report under a heading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// What addresses call it; its number where this is empty.
    pub id: &'static str,
    /// What else there is of it, told beside the heading.
    pub links: Vec<Link>,
    /// Whether there are more rows than its table shows.
    pub is_cut: bool,
    /// What stands in it, in order.
    pub blocks: Vec<Block>,
}

/// Words that lead to an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The words.
    pub text: String,
    /// Where they lead.
    pub address: String,
}

/// A piece of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A sentence that stands out.
    Note(Tone, String),
    /// A table.
    Table(Table),
    /// A chart.
    Chart(Chart),
    /// Text kept as it is: a configuration, what a program printed.
    Listing(Listing),
}

/// Text kept as it is; folded away where that can be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// What it is.
    pub title: String,
    /// The text.
    pub text: String,
}

/// How good the news is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// Neither.
    #[default]
    Plain,
    /// A target met, something faster.
    Good,
    /// To be read with care.
    Warn,
    /// A target missed, something slower, something broken.
    Bad,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows. A row may be shorter than the columns; what it has beyond them is not shown.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column {
    /// Its title.
    pub title: String,
    /// Where its cells stand. Figures stand right.
    pub align: Align,
    /// What the values of its cells count, where that is not plain.
    pub unit: &'static str,
    /// Where its title leads, as a rule to the table sorted by it.
    pub link: Option<String>,
    /// Whether the table is sorted by it, the most first.
    pub is_sorted: bool,
}

/// Where the text of a column stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Align {
    /// Words.
    #[default]
    Left,
    /// Figures.
    Right,
}

/// A cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// What stands in it.
    pub text: String,
    /// How good that is.
    pub tone: Tone,
    /// The figure that the text writes, in the column's unit.
    pub value: Option<f64>,
    /// Whether the text is somebody's name for something, where a backtick is one.
    pub is_name: bool,
    /// Where the text leads, on a page.
    pub link: Option<String>,
    /// What a page shows beside the text.
    pub picture: Option<Picture>,
}

/// A picture as small as a word.
#[derive(Debug, Clone, PartialEq)]
pub enum Picture {
    /// How a figure went, one value after another.
    Trend(Vec<f64>),
    /// A share, 1 being all.
    Share(f64),
}

impl Document {
    /// Begins a report.
    pub fn new(title: impl Into<String>, subtitle: impl Into<String>) -> Document {
        Document {
            title: title.into(),
            subtitle: subtitle.into(),
            ..Document::default()
        }
    }

    /// Adds a fact.
    pub fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.facts.push((name.into(), value.into()));
    }

    /// Adds an empty section and returns it.
    pub fn section(&mut self, heading: impl Into<String>) -> &mut Section {
        self.sections.push(Section {
            heading: heading.into(),
            ..Section::default()
        });
        self.sections.last_mut().expect("one was just added")
    }
}

impl Section {
    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    /// Adds a sentence that stands out.
    pub fn note(&mut self, tone: Tone, text: impl Into<String>) {
        self.blocks.push(Block::Note(tone, text.into()));
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }

    /// Adds a chart.
    pub fn chart(&mut self, chart: impl Into<Chart>) {
        self.blocks.push(Block::Chart(chart.into()));
    }

    /// Adds text kept as it is.
    pub fn listing(&mut self, title: impl Into<String>, text: impl Into<String>) {
        self.blocks.push(Block::Listing(Listing {
            title: title.into(),
            text: text.into(),
        }));
    }
}

impl Table {
    /// Begins a table.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl Column {
    /// A column of words.
    pub fn left(title: impl Into<String>) -> Column {
        Column {
            title: title.into(),
            align: Align::Left,
            ..Column::default()
        }
    }

    /// The same, with what its values count.
    #[must_use]
    pub fn in_unit(self, unit: &'static str) -> Column {
        Column { unit, ..self }
    }

    /// A column of figures.
    pub fn right(title: impl Into<String>) -> Column {
        Column {
            title: title.into(),
            align: Align::Right,
            ..Column::default()
        }
    }
}

impl Cell {
    /// A count of things.
    pub fn count(count: u64) -> Cell {
        Cell::figure(units::count(count), count as f64)
    }

    /// A figure as it is written, and as it is.
    pub fn figure(text: impl Into<String>, value: f64) -> Cell {
        Cell {
            text: text.into(),
            value: Some(value),
            ..Cell::default()
        }
    }

    /// What somebody else calls something.
    pub fn name(text: impl Into<String>) -> Cell {
        Cell {
            text: text.into(),
            is_name: true,
            ..Cell::default()
        }
    }

    /// With a picture beside the text.
    #[must_use]
    pub fn with(self, picture: Picture) -> Cell {
        Cell {
            picture: Some(picture),
            ..self
        }
    }

    /// A cell with news in it.
    pub fn toned(tone: Tone, text: impl Into<String>) -> Cell {
        Cell {
            text: text.into(),
            tone,
            ..Cell::default()
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::toned(Tone::Plain, text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::toned(Tone::Plain, text)
    }
}
