//! A table that is made column by column.
//!
//! The idea: a column says its title and what it shows of a row, in one place; only rows that are shown are
//! written, and a table that has none or more of them says so.

use report::units::{self, Unit};
use report::{Cell, Column, Document, Language, Section, Table, Tone};

use super::Telling;

/// A table that is being made, of these rows.
pub(crate) struct RowTable<'a, T> {
    telling: Telling<'a>,
    of: Vec<T>,
    total: usize,
    table: Table,
}

/// What may be a figure.
pub(crate) trait MaybeFigure {
    /// It as a cell.
    fn cell(self, unit: Unit) -> Cell;
}

impl MaybeFigure for f64 {
    fn cell(self, unit: Unit) -> Cell {
        Cell::figure(unit.write(self), self)
    }
}

impl MaybeFigure for u64 {
    fn cell(self, unit: Unit) -> Cell {
        match unit {
            Unit::Count => Cell::count(self),
            _ => (self as f64).cell(unit),
        }
    }
}

impl<T: MaybeFigure> MaybeFigure for Option<T> {
    fn cell(self, unit: Unit) -> Cell {
        self.map_or(Cell::from(units::NONE), |it| it.cell(unit))
    }
}

impl<'a> Telling<'a> {
    /// Begins a table of all these rows, whatever is looked for.
    pub(crate) fn whole<T>(self, rows: impl IntoIterator<Item = T>) -> RowTable<'a, T> {
        let telling = Telling {
            rows: usize::MAX,
            filter: "",
            ..self
        };
        telling.table(rows)
    }

    /// Begins a table of these rows.
    pub(crate) fn table<T>(self, rows: impl IntoIterator<Item = T>) -> RowTable<'a, T> {
        let mut of: Vec<T> = rows.into_iter().collect();
        let total = of.len();
        if self.filter.is_empty() {
            of.truncate(self.rows);
        }
        let table = Table {
            rows: vec![Vec::new(); of.len()],
            ..Table::default()
        };
        RowTable {
            telling: self,
            of,
            total,
            table,
        }
    }
}

impl<T> RowTable<'_, T> {
    /// A column that is told by this of each row.
    pub(super) fn column(&mut self, column: Column, cell: impl Fn(&T) -> Cell) {
        self.table.columns.push(column);
        for (row, of) in self.table.rows.iter_mut().zip(&self.of) {
            row.push(cell(of));
        }
    }

    /// A column of words, with a title in English and Japanese.
    pub(crate) fn words(
        &mut self,
        english: &'static str,
        japanese: &'static str,
        cell: impl Fn(&T) -> Cell,
    ) {
        self.column(Column::left(self.telling.say(english, japanese)), cell);
    }

    /// One of names.
    pub(crate) fn name(
        &mut self,
        english: &'static str,
        japanese: &'static str,
        of: impl Fn(&T) -> &str,
    ) {
        self.words(english, japanese, |row| Cell::name(of(row)));
    }

    /// Has what the last column names lead somewhere.
    pub(crate) fn leads(&mut self, to: impl Fn(&T) -> Option<String>) {
        for (row, of) in self.table.rows.iter_mut().zip(&self.of) {
            if let Some(cell) = row.last_mut() {
                cell.link = to(of);
            }
        }
    }

    /// The columns so far.
    pub(crate) fn columns(&mut self) -> impl Iterator<Item = &mut Column> {
        self.table.columns.iter_mut()
    }

    /// One of numbers.
    pub(crate) fn numbers(
        &mut self,
        english: &'static str,
        japanese: &'static str,
        cell: impl Fn(&T) -> Cell,
    ) {
        self.column(Column::right(self.telling.say(english, japanese)), cell);
    }

    /// One of counts.
    pub(crate) fn count(
        &mut self,
        english: &'static str,
        japanese: &'static str,
        of: impl Fn(&T) -> u64,
    ) {
        self.numbers(english, japanese, |row| Cell::count(of(row)));
    }

    /// One of counts that are news where they are not zero.
    pub(crate) fn news(
        &mut self,
        english: &'static str,
        japanese: &'static str,
        tone: Tone,
        of: impl Fn(&T) -> u64,
    ) {
        self.numbers(english, japanese, |row| toned(of(row), tone));
    }

    /// One of figures, as far as there are any.
    pub(crate) fn figure<F: MaybeFigure>(
        &mut self,
        english: &'static str,
        japanese: &'static str,
        unit: Unit,
        of: impl Fn(&T) -> F,
    ) {
        self.figures(self.telling.say(english, japanese), unit, of);
    }

    /// The same, with a title that is no word of ours.
    pub(crate) fn figures<F: MaybeFigure>(
        &mut self,
        title: impl Into<String>,
        unit: Unit,
        of: impl Fn(&T) -> F,
    ) {
        let column = Column::right(title).in_unit(word(unit));
        self.column(column, |row| of(row).cell(unit));
    }

    /// The table by itself.
    pub(crate) fn done(self) -> Table {
        self.table
    }

    /// Adds the table, or says that there is nothing.
    pub(crate) fn end<'d>(
        mut self,
        document: &'d mut Document,
        id: &'static str,
        heading: &str,
        nothing: &str,
    ) -> &'d mut Section {
        let telling = self.telling;
        let rows = &mut self.table.rows;
        if !telling.filter.is_empty() {
            let mut is_named = |cell: &Cell| cell.value.is_none() && telling.shows(&cell.text);
            rows.retain(|row| row.iter().any(&mut is_named));
            self.total = rows.len();
            rows.truncate(telling.rows);
        }
        let section = document.section(heading);
        section.id = id;
        let shown = rows.len();
        section.is_cut = shown < self.total;
        match shown {
            0 => section.text(nothing),
            _ => section.table(self.table),
        }
        if section.is_cut {
            let [shown, total] = [shown, self.total].map(|count| units::count(count as u64));
            section.text(match telling.language {
                Language::English => format!("{shown} of {total}."),
                Language::Japanese => format!("{total} 件のうち {shown} 件。"),
            });
        }
        section
    }
}

/// A count that is news where it is not zero.
pub(crate) fn toned(count: u64, tone: Tone) -> Cell {
    let mut cell = Cell::count(count);
    if count > 0 {
        cell.tone = tone;
    }
    cell
}

/// What values are counted in, for other programs.
fn word(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Micros => "µs",
        Unit::Seconds => "s",
        Unit::Count | Unit::PerSecond | Unit::Share | Unit::Cores | Unit::Ratio => "",
    }
}
