//! Addresses of the console: which page, and what of it. They are read and written here alone, so that
//! a link always leads to what its page understands.

use ipc::query::Query;
use jiff::civil::Date;
use report::{Language, Phrase};

use super::EVENTS;
use super::live::LivePage;
use super::site::SitePart;
use super::sites::SortedBy;
use crate::page::VISITOR_DIGITS;
use crate::salts::{civil, day_number};

/// Days a page shows where none are named.
const DAYS: i32 = 28;
/// What addresses call all machines: none is called so.
pub(super) const ALL_MACHINES: &str = "*";
/// Days of a range, at most: each costs what its lists hold.
const DAYS_MAX: i32 = 1_100;

/// What some pages are told apart by.
pub(super) trait Titled: Copy + PartialEq + 'static {
    /// All, in the order they are shown: what addresses and people call them.
    const ALL: &'static [(Self, &'static str, Phrase)];

    fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().map(|(it, ..)| *it)
    }

    fn of_id(id: &str) -> Option<Self> {
        Self::ALL.iter().find(|it| it.1 == id).map(|it| it.0)
    }

    /// What addresses call it, and what people do.
    fn named(self) -> (&'static str, Phrase) {
        let found = Self::ALL.iter().find(|it| it.0 == self);
        // All are there.
        found.map_or(("", Phrase::new("", "")), |it| (it.1, it.2))
    }

    fn id(self) -> &'static str {
        self.named().0
    }

    fn title(self) -> Phrase {
        self.named().1
    }
}

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Page {
    /// All sites.
    Sites,
    /// A part of what is told of a site.
    Site(String, SitePart),
    /// Figures of the machine and of tenants over time.
    History,
    /// What tenants and sites took.
    Load,
    /// What goes on now.
    Live(LivePage),
}

impl Page {
    /// The page of a path below the console's; none where there is none.
    pub(super) fn of_path(path: &str) -> Option<Page> {
        match path.split('/').collect::<Vec<_>>()[..] {
            [""] => Some(Page::Sites),
            ["history"] => Some(Page::History),
            ["load"] => Some(Page::Load),
            ["site", site, part] => Some(Page::Site(site.into(), SitePart::of_id(part)?)),
            [page] => LivePage::of_id(page).map(Page::Live),
            _ => None,
        }
    }

    fn path(&self) -> String {
        match self {
            Page::Sites => String::new(),
            Page::Site(site, part) => format!("site/{}/{}", encoded(site), part.id()),
            Page::History => "history".into(),
            Page::Load => "load".into(),
            Page::Live(page) => page.id().to_owned(),
        }
    }
}

/// What a list is given as, beside a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    Json,
}

impl Format {
    /// By what addresses call it.
    pub(super) fn of_word(word: &str) -> Option<Format> {
        match word {
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            _ => None,
        }
    }
}

/// Whose figures are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum MachineAsked {
    /// This machine's, of its own database.
    #[default]
    This,
    /// All machines' together.
    All,
    /// That one's, as it sent them.
    Named(String),
}

impl MachineAsked {
    fn of_query(query: &Query<'_>) -> MachineAsked {
        match query.text("machine") {
            it if it.is_empty() => MachineAsked::This,
            it if it == ALL_MACHINES => MachineAsked::All,
            it => MachineAsked::Named(it),
        }
    }

    /// What addresses call it.
    pub(super) fn id(&self) -> &str {
        match self {
            MachineAsked::This => "",
            MachineAsked::All => ALL_MACHINES,
            MachineAsked::Named(name) => name,
        }
    }
}

/// What of a page is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PageQuery {
    pub(super) from: Option<i32>,
    pub(super) to: Option<i32>,
    /// What names have to contain.
    pub(super) filter: String,
    /// The visitor whose trail is shown.
    pub(super) visitor: Option<u64>,
    /// The page of the site that is looked at by itself.
    pub(super) seen: String,
    /// The cause whose incidents are shown: what kind it is, and which.
    pub(super) cause: String,
    /// The list that is given in a format; the first where it is empty.
    pub(super) list: String,
    pub(super) format: Option<Format>,
    pub(super) language: Option<Language>,
    pub(super) sorted_by: SortedBy,
    /// Whether lists show all they have.
    pub(super) has_all_rows: bool,
    pub(super) machine: MachineAsked,
}

impl PageQuery {
    /// Reads a query; what is wrong in it is told.
    pub(super) fn of_query(query: &str) -> Result<PageQuery, &'static str> {
        let query = Query(query);
        let [from, to] = ["from", "to"].map(|key| query.value(key));
        let visitor = query.value("visitor");
        let language = query.value("lang");
        Ok(PageQuery {
            from: day(&from)?,
            to: day(&to)?,
            filter: query.value("filter"),
            visitor: match &*visitor {
                "" => None,
                digits => Some(u64::from_str_radix(digits, 16).map_err(|_| "visitor")?),
            },
            seen: query.text("page"),
            cause: query.text("cause"),
            list: query.value("list"),
            format: match &*query.value("format") {
                "" => None,
                word => Some(Format::of_word(word).ok_or("format")?),
            },
            language: Language::ALL.into_iter().find(|it| it.tag() == language),
            sorted_by: SortedBy::of_id(&query.value("sort")).ok_or("sort")?,
            has_all_rows: query.value("rows") == "all",
            machine: MachineAsked::of_query(&query),
        })
    }

    /// The first and the last day.
    pub(super) fn range(&self, today: i32) -> Result<(i32, i32), &'static str> {
        let to = self.to.unwrap_or(today);
        let from = self.from.unwrap_or(to.saturating_sub(DAYS - 1));
        match to.checked_sub(from) {
            Some(0..DAYS_MAX) => Ok((from, to)),
            _ => Err("from"),
        }
    }

    /// As parameters, in one order.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let date = |day: Option<i32>| day.map_or(String::new(), |day| civil(day).to_string());
        let visitor = self.visitor.map(|it| format!("{it:0VISITOR_DIGITS$x}"));
        let format = self.format.map_or("", |format| match format {
            Format::Csv => "csv",
            Format::Json => "json",
        });
        let all = [
            ("from", date(self.from)),
            ("to", date(self.to)),
            ("filter", self.filter.clone()),
            ("visitor", visitor.unwrap_or_default()),
            ("page", self.seen.clone()),
            ("cause", self.cause.clone()),
            ("sort", self.sorted_by.id().into()),
            ("rows", if self.has_all_rows { "all" } else { "" }.into()),
            ("list", self.list.clone()),
            ("format", format.into()),
            ("machine", self.machine.id().into()),
            ("lang", self.language.map_or("", Language::tag).into()),
        ];
        all.into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    fn query(&self) -> String {
        let parameters = self.parameters().into_iter();
        let parameters = parameters.map(|(key, value)| format!("{key}={}", encoded(&value)));
        parameters.collect::<Vec<_>>().join("&")
    }
}

fn day(text: &str) -> Result<Option<i32>, &'static str> {
    match text {
        "" => Ok(None),
        text => text
            .parse::<Date>()
            .map(|date| Some(day_number(date)))
            .map_err(|_| "from"),
    }
}

/// Where a page is.
#[derive(Debug, Clone)]
pub(super) struct Address<'a> {
    pub(super) base: &'a str,
    pub(super) page: Page,
    pub(super) asked: PageQuery,
}

impl Address<'_> {
    /// As a link.
    pub(super) fn link(&self) -> String {
        let query = self.asked.query();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{mark}{query}", self.path())
    }

    /// Where what changes of this page is told, of as much as it shows.
    pub(super) fn events(&self, language: Language) -> String {
        let asked = PageQuery {
            filter: self.asked.filter.clone(),
            has_all_rows: self.asked.has_all_rows,
            seen: self.page.path(),
            language: Some(language),
            ..PageQuery::default()
        };
        format!("{}{EVENTS}?{}", self.base, asked.query())
    }

    /// Without what is asked of the page.
    pub(super) fn path(&self) -> String {
        format!("{}{}", self.base, self.page.path())
    }

    /// The same page, asked otherwise.
    pub(super) fn with(&self, change: impl FnOnce(&mut PageQuery)) -> String {
        let mut other = self.clone();
        change(&mut other.asked);
        other.link()
    }

    /// Another page, over the same days, of the same machine and in the same language.
    pub(super) fn to(&self, page: Page) -> String {
        self.of_now(page, |asked| {
            (asked.from, asked.to) = (self.asked.from, self.asked.to);
            asked.machine.clone_from(&self.asked.machine);
        })
    }

    /// Another page in the same language, over the days it has by itself, asked like this.
    pub(super) fn of_now(&self, page: Page, change: impl FnOnce(&mut PageQuery)) -> String {
        let asked = PageQuery {
            language: self.asked.language,
            ..PageQuery::default()
        };
        let base = self.base;
        Address { base, page, asked }.with(change)
    }
}

/// With everything escaped that has a meaning in addresses.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_a_link_asks_for_is_what_its_page_reads(
            filter in "[ -~あ-ん%&=#+]{0,20}", seen in "/[ -~%&=#+é]{0,20}", visitor in 0_u64..1 << 48,
        ) {
            let tidy = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let asked = PageQuery {
                from: Some(20_000),
                filter: tidy(&filter),
                seen: seen.clone(),
                cause: seen.clone(),
                visitor: Some(visitor),
                sorted_by: SortedBy::Requests,
                has_all_rows: true,
                machine: MachineAsked::Named("*a b&é".into()),
                ..PageQuery::default()
            };
            let page = Page::Site("a.example".into(), SitePart::Pages);
            let address = Address { base: "/console/", page, asked: asked.clone() };
            let link = address.link();
            let (path, query) = link.split_once('?').expect("something is asked");
            prop_assert_eq!(path, "/console/site/a.example/pages");
            prop_assert_eq!(PageQuery::of_query(query), Ok(asked));
        }

        #[test]
        fn no_address_is_too_strange_to_be_read(path in ".{0,40}", query in ".{0,80}") {
            let _ = Page::of_path(&path);
            let _ = PageQuery::of_query(&query).map(|asked| asked.range(20_000));
        }
    }

    #[test]
    fn a_range_has_an_end_behind_its_beginning_and_a_bound() {
        let range = |query: &str| PageQuery::of_query(query).and_then(|it| it.range(20_000));
        assert_eq!(range(""), Ok((19_973, 20_000)));
        assert_eq!(range("to=1970-01-11"), Ok((-17, 10)));
        assert_eq!(range("from=1970-01-02&to=1970-01-02"), Ok((1, 1)));
        for wrong in [
            "from=1970-01-03&to=1970-01-02",
            "from=today",
            "from=0001-01-01",
        ] {
            assert_eq!(range(wrong), Err("from"), "{wrong}");
        }
    }
}
