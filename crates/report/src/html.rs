//! A report as one page that needs no network: style and charts are inside, scripts are none.
//!
//! Nothing that was measured is trusted: all text is escaped, and should that ever fail, the page's
//! policy lets nothing run and nothing load.

use std::sync::LazyLock;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::Chart;
use super::document::{Align, Block, Cell, Column, Document, Section, Table, Tone};
use super::draw::{CHART_STYLE, DARK, LIGHT, NOTHING, Screen};
use super::language::{Language, Phrase};
use super::text::is_harmful;

/// Reports with at least so many sections begin with a list of them.
const CONTENTS_FROM: usize = 5;
/// A fact longer than this gets a row of its own.
const FACT_CHARACTERS_MAX: usize = 90;
/// A fact up to this long is a figure rather than a sentence.
const FIGURE_CHARACTERS_MAX: usize = 18;
/// A cell up to this long is not broken.
const CELL_CHARACTERS_MAX: usize = 24;
/// Styles stand in the page; everything else is forbidden.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const SECTIONS: Phrase = Phrase::new("Sections", "目次");
const NUMBERS: Phrase = Phrase::new("Numbers", "数値");
const NOTHING_MEASURED: Phrase = Phrase::new(NOTHING, "ここには記録がありません。");
static STYLE: LazyLock<String> = LazyLock::new(|| {
    let style = include_str!("style.css");
    format!(
        ":root{{{LIGHT}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{DARK}}}}}\n{style}{CHART_STYLE}\n"
    )
});

/// How a report looks on a page.
pub fn style() -> &'static str {
    &STYLE
}

/// What stands around what a page shows.
#[derive(Debug)]
pub struct Frame<'a> {
    /// What it is told in.
    pub language: Language,
    /// The title of its window.
    pub title: &'a str,
    /// How it looks.
    pub style: &'a str,
    /// What else is said of the page.
    pub head: Markup,
    /// What it shows.
    pub body: Markup,
}

impl Frame<'_> {
    /// The page.
    pub fn to_html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang=(self.language.tag()) {
                head {
                    meta charset="utf-8";
                    (self.head)
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (plain(self.title)) }
                    style { (PreEscaped(self.style)) }
                }
                body { (self.body) }
            }
        };
        page.into_string()
    }
}

impl Document {
    /// One file, readable by itself, in the colours of the reader's system.
    pub fn to_html(&self) -> String {
        let frame = Frame {
            language: self.language,
            title: &self.title,
            style: style(),
            head: html! { meta http-equiv="Content-Security-Policy" content=(POLICY); },
            body: html! { main { (self.head()) (self.body()) } },
        };
        frame.to_html()
    }

    /// Question, answer, facts, contents.
    pub fn head(&self) -> Markup {
        html! {
            header {
                h1 { (marked(&self.title)) }
                @if !self.subtitle.is_empty() {
                    p.question { (marked(&self.subtitle)) }
                }
                @if let Some((tone, answer)) = &self.answer {
                    p.answer.(class(*tone)) { (marked(answer)) }
                }
                (self.facts())
                @if self.sections.len() >= CONTENTS_FROM {
                    nav aria-label=(SECTIONS.said_in(self.language)) {
                        ul {
                            @for (index, section) in self.sections.iter().enumerate() {
                                li { a href={ "#" (section.anchor(index)) } { (marked(&section.heading)) } }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Its facts.
    pub fn facts(&self) -> Markup {
        html! {
            @if !self.facts.is_empty() {
                dl {
                    @for (name, value) in &self.facts {
                        div.long[value.chars().count() > FACT_CHARACTERS_MAX] {
                            dt { (marked(name)) }
                            dd.sentence[value.chars().count() > FIGURE_CHARACTERS_MAX] { (marked(value)) }
                        }
                    }
                }
            }
        }
    }

    /// Its sections.
    pub fn body(&self) -> Markup {
        html! {
            @for (index, section) in self.sections.iter().enumerate() {
                (section_html(index, section, self.language))
            }
        }
    }
}

impl Section {
    fn anchor(&self, index: usize) -> String {
        match self.id {
            "" => format!("section-{index}"),
            id => id.to_owned(),
        }
    }
}

fn section_html(index: usize, section: &Section, language: Language) -> Markup {
    html! {
        section id=(section.anchor(index)) {
            @if !section.heading.is_empty() {
                h2 { (marked(&section.heading)) }
            }
            @if !section.links.is_empty() {
                p.links {
                    @for link in &section.links {
                        a href=(link.address) { (plain(&link.text)) } " "
                    }
                }
            }
            @for (place, block) in section.blocks.iter().enumerate() {
                @match block {
                    Block::Text(text) => p { (marked(text)) },
                    Block::Note(tone, text) => p.note.(class(*tone)) { (marked(text)) },
                    Block::Table(table) => (table_html(table, &section.heading)),
                    Block::Chart(chart) => (chart_html(&format!("chart-{index}-{place}"), chart, language)),
                    Block::Listing(listing) => details.listing {
                        summary { (marked(&listing.title)) }
                        pre { (plain(&listing.text)) }
                    },
                }
            }
        }
    }
}

fn chart_html(id: &str, chart: &Chart, language: Language) -> Markup {
    let wide = chart.to_inline_svg(Screen::Wide, &format!("{id}-wide"));
    let narrow = chart.to_inline_svg(Screen::Narrow, &format!("{id}-narrow"));
    html! {
        figure {
            figcaption {
                strong { (marked(chart.title())) }
                @if !chart.caption().is_empty() {
                    span { (marked(chart.caption())) }
                }
            }
            @if let (Some(wide), Some(narrow)) = (wide, narrow) {
                (PreEscaped(wide)) (PreEscaped(narrow))
                details {
                    summary { (NUMBERS.said_in(language)) }
                    (table_html(&chart.table(language), chart.title()))
                }
            } @else {
                p.nothing { (NOTHING_MEASURED.said_in(language)) }
            }
        }
    }
}

fn table_html(table: &Table, label: &str) -> Markup {
    let again = |index: usize| {
        let before = index
            .checked_sub(1)
            .and_then(|before| table.rows.get(before));
        before.and_then(|row| row.first())
    };
    let empty = Cell::default();
    html! {
        // A table wider than the screen is scrolled, also with the keyboard.
        div.scroll tabindex="0" role="region" aria-label=(plain(label)) {
            table {
                thead { tr { @for column in &table.columns { (column_html(column)) } } }
                tbody {
                    @for (index, row) in table.rows.iter().enumerate() {
                        tr {
                            @for (place, column) in table.columns.iter().enumerate() {
                                @let cell = row.get(place).unwrap_or(&empty);
                                // What all rows of a group begin with is said once, and only
                                // repeated in grey.
                                @let again = place == 0 && !cell.text.is_empty() && again(index) == Some(cell);
                                (cell_html(cell, column.align, again))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn column_html(column: &Column) -> Markup {
    let sort = column.is_sorted.then_some("descending");
    html! {
        th.r[column.align == Align::Right] scope="col" aria-sort=[sort] {
            @match &column.link {
                Some(address) => a href=(address) { (marked(&column.title)) },
                None => (marked(&column.title)),
            }
        }
    }
}

fn cell_html(cell: &Cell, at: Align, again: bool) -> Markup {
    let is_short = at != Align::Right && cell.text.chars().count() <= CELL_CHARACTERS_MAX;
    let text = match cell.is_name {
        true => plain(&cell.text),
        false => marked(&cell.text),
    };
    let toned = match cell.tone {
        Tone::Plain => "",
        tone => class(tone),
    };
    let classes = [
        if at == Align::Right { "r" } else { "" },
        toned,
        if again { "again" } else { "" },
        if is_short { "n" } else { "" },
    ];
    let classes: Vec<&str> = classes.into_iter().filter(|it| !it.is_empty()).collect();
    let classes = (!classes.is_empty()).then(|| classes.join(" "));
    html! {
        td class=[classes] {
            @if let Some(picture) = &cell.picture { (PreEscaped(picture.to_inline_svg())) }
            @match &cell.link {
                Some(address) => a href=(address) { (text) },
                None => (text),
            }
        }
    }
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Warn => "warn",
        Tone::Bad => "bad",
    }
}

/// Escaped, with code between backticks as such.
fn marked(text: &str) -> Markup {
    let pieces: Vec<&str> = text.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        // A backtick without its partner is one.
        return plain(text);
    }
    html! {
        @for (index, piece) in pieces.iter().enumerate() {
            @if index % 2 == 1 { code { (plain(piece)) } } @else { (plain(piece)) }
        }
    }
}

/// Escaped.
fn plain(text: &str) -> Markup {
    PreEscaped(escaped(text))
}

/// Without meaning to HTML, in text and between quotes, and without characters that steer.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if is_harmful(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
