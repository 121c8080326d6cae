//! The top levels of all files, taken together.
//!
//! The idea: lists and named tables add up over the files; everything else belongs to one file,
//! so that no setting depends on the order in which files are read.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeTable;

use super::context::{Context, Spot, problem, problem_overall};
use super::table::Table;
use super::value::Value;
use crate::include::Broken;
use crate::keys::{self, Section};

/// The keys of every file's top level.
pub(crate) struct Tops<'a> {
    pub(crate) context: &'a Context<'a>,
    tables: Vec<Table<'a>>,
}

impl<'a> Tops<'a> {
    /// Opens the files' tables, and reports includes that failed.
    pub(crate) fn open(
        context: &'a Context<'a>,
        documents: &'a [Spanned<DeTable<'a>>],
    ) -> Tops<'a> {
        let open = |(file, document): (usize, &'a Spanned<DeTable<'a>>)| {
            Table::open(context, file, &keys::TOP, document.get_ref(), 0..0)
        };
        let tops = Tops {
            context,
            tables: documents.iter().enumerate().map(open).collect(),
        };
        tops.report_broken_includes();
        tops.report_unread();
        tops
    }

    /// Reports files that may be set aside and cannot be read.
    fn report_unread(&self) {
        for (number, file) in self.context.sources.files.iter().enumerate() {
            if let Some(why) = &file.unread {
                let spot = Spot {
                    file: number,
                    start: 0,
                    end: 0,
                };
                let message = format!("cannot read `{}`: {why}", file.name);
                self.context.report(problem(spot, message).syntax());
            }
        }
    }

    /// The top level that sets a key which only one file may set; the first if none does.
    pub(crate) fn holder(&self, name: &'static str) -> Table<'a> {
        let file = self.single(name).map_or(0, |value| value.file);
        let table = self.tables.get(file).copied();
        table.unwrap_or_else(|| Table::empty(self.context, &keys::TOP))
    }

    /// The value of a key that only one file may set.
    pub(crate) fn single(&self, name: &'static str) -> Option<Value<'a>> {
        let mut values = self.tables.iter().filter_map(|table| table.get(name));
        let first = values.next()?;
        for again in values {
            let finding = problem(again.spot(), format!("`{name}` is set in two files"));
            self.context
                .report(finding.other("set here as well", first.spot()));
        }
        Some(first)
    }

    /// Whether a key that only one file may set is there, though it be misspelt or wrong.
    pub(crate) fn is_meant(&self, name: &'static str) -> bool {
        let mut tables = self.tables.iter();
        tables.any(|table| table.get(name).is_some() || table.has_misspelt(name))
    }

    /// The table of a key that only one file may set; without keys if no file does.
    pub(crate) fn table(&self, name: &'static str, section: &'static Section) -> Table<'a> {
        let table = self.single(name).and_then(|value| value.table(section));
        table.unwrap_or_else(|| Table::empty(self.context, section))
    }

    /// The entries of a table that every file may add to, each under its name.
    pub(crate) fn members(&self, name: &'static str) -> Vec<Value<'a>> {
        let values = self.tables.iter().filter_map(|table| table.get(name));
        values.flat_map(|value| value.members()).collect()
    }

    /// The elements of a list that every file may add to.
    pub(crate) fn optional_elements(&self, name: &'static str) -> Vec<Value<'a>> {
        let values = self.tables.iter().filter_map(|table| table.get(name));
        let (lists, others): (Vec<_>, Vec<_>) = values.partition(|value| value.is_list());
        for value in others {
            value.report_help(
                format!("`{name}` must be a list of tables"),
                format!("write `[[{name}]]` above each"),
            );
        }
        let elements = lists.iter().flat_map(|value| value.list());
        elements.flatten().collect()
    }

    /// As [`Self::optional_elements`], once what is wrong with them was reported.
    pub(crate) fn elements_again(&self, name: &'static str) -> Vec<Value<'a>> {
        let values = self.tables.iter().filter_map(|table| table.get(name));
        let lists = values.filter(|value| value.is_list());
        lists.filter_map(|value| value.list()).flatten().collect()
    }

    /// As [`Self::optional_elements`], of a list that must have one: `example` is one.
    pub(crate) fn elements(&self, name: &'static str, example: &str) -> Vec<Value<'a>> {
        let elements = self.optional_elements(name);
        let mut values = self.tables.iter().filter_map(|table| table.get(name));
        let meant = !elements.is_empty() || values.any(|value| !value.is_list());
        if !meant && !self.tables.iter().any(|table| table.has_misspelt(name)) {
            let message = format!("there is no `[[{name}]]`: nothing would be served");
            let help = format!("add `[[{name}]]` and below it {example}");
            self.context.report(problem_overall(message).help(help));
        }
        elements
    }

    fn report_broken_includes(&self) {
        let broken = &self.context.sources.broken_includes;
        for table in &self.tables {
            for value in table.list("include").iter().flat_map(patterns) {
                let Some(pattern) = value.text() else {
                    continue;
                };
                let mut failures = broken.iter();
                let failed =
                    failures.find(|(file, failed, _)| *file == table.file && failed == pattern);
                if let Some((_, _, why)) = failed {
                    self.context
                        .report(problem(value.spot(), format!("cannot include {why}")).syntax());
                }
            }
        }
    }
}

/// Each of what is defined under a name the first time, and not more than `most`; `one` of them, and `many`, are called so.
pub(super) fn once_each<'a>(
    members: Vec<Value<'a>>,
    (one, many): (&'static str, &'static str),
    most: usize,
) -> impl Iterator<Item = Value<'a>> {
    let mut spots: BTreeMap<&'a str, Spot> = BTreeMap::new();
    let firsts = members.into_iter().map_while(move |value| {
        if let Some(first) = spots.get(value.name) {
            let message = format!("{one} `{}` is defined twice", value.name);
            value.report_again(message, first.clone());
            return Some(None);
        }
        if spots.len() >= most {
            value.report(format!("there are more than {most} {many}"));
            return None;
        }
        spots.insert(value.name, value.spot());
        Some(Some(value))
    });
    firsts.flatten()
}

/// The patterns of an entry of `include`: a text, or a table.
fn patterns<'a>(include: &Value<'a>) -> Vec<Value<'a>> {
    if !include.is_table() {
        return vec![*include];
    }
    let Some(table) = include.table(&keys::INCLUDE) else {
        return Vec::new();
    };
    let _checked: Broken = table.choice("broken");
    let files = table.required("files");
    files.map(|files| files.one_or_list()).unwrap_or_default()
}
