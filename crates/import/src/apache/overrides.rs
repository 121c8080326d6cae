//! `AllowOverride` and `AllowOverrideList`: what `.htaccess` files of a site may say.
//!
//! The idea: a site has one answer, that of the last `<Directory>` that holds its root; where parts
//! of it have others, their lines say so. Rather more files are obeyed than fewer, for they may keep
//! somebody out.

use htaccess::Overrides;
use htaccess::overrides::Unknown;

use super::ApacheLine;
use super::sections::Area;
use super::site::HostWork;
use crate::draft::TomlItem;

/// The words of a line, and the line.
type Said<'a> = (Vec<&'a str>, usize);

impl<'a> HostWork<'_, 'a> {
    /// Says `htaccess.override` of what `<Directory>` sections say, which stand in Apache's order.
    pub(super) fn overrides(&mut self, sections: &[&'a ApacheLine]) {
        let ledger = self.apache.ledger;
        let directories = sections.iter().filter(|it| it.name == "directory");
        // What holds for the root: the classes, and the list of directives.
        let mut whole: [Option<Said<'a>>; 2] = [None, None];
        let mut others: Vec<(usize, Said<'a>)> = Vec::new();
        for section in directives_of(directories) {
            let (section, line, at) = section;
            let said = (self.words(line), line.id);
            let parts = self.roots.parts(section);
            let areas: Vec<Area> = parts.into_iter().filter_map(|(_, area)| area).collect();
            match areas.iter().any(Area::is_whole) {
                true => whole[at] = Some(said),
                false if areas.is_empty() => ledger.idle(line.id, "no site has files there"),
                false => others.push((at, said)),
            }
        }
        for (at, (words, id)) in &others {
            let slot = whole.get_mut(*at);
            let Some(slot) = slot else { continue };
            let here = slot.as_ref().map(|(words, _)| words.clone());
            let here = here.unwrap_or_default();
            if here.is_empty() && !words.is_empty() {
                *slot = Some((words.clone(), *id));
            }
            match here == *words {
                true => ledger.carried(*id),
                false => ledger.differs(
                    *id,
                    "what `.htaccess` files may say is one for all of a site here: see `htaccess.override`",
                ),
            }
        }
        let said: Vec<Said<'a>> = whole.into_iter().flatten().collect();
        for (words, id) in &said {
            match words.is_empty() {
                true => ledger.idle(*id, "`.htaccess` files are not read"),
                false => ledger.carried(*id),
            }
        }
        let words: Vec<&str> = said.iter().flat_map(|(words, _)| words.clone()).collect();
        if !words.is_empty() && self.roots.root.is_some() {
            let ids: Vec<usize> = said.iter().map(|(_, id)| *id).collect();
            let words = TomlItem::texts(words);
            self.draft.keys.put_in("htaccess", "override", words, &ids);
        }
    }

    /// The words of a line that allow something.
    fn words(&self, line: &'a ApacheLine) -> Vec<&'a str> {
        let words = line.words.iter().map(String::as_str);
        let words = words.filter(|word| !word.eq_ignore_ascii_case("none"));
        let (fine, wrong): (Vec<&str>, Vec<&str>) =
            words.partition(|word| Overrides::new([*word], Unknown::Log).is_ok());
        if !wrong.is_empty() {
            let note = format!("nothing is known of {}", wrong.join(", "));
            self.apache.ledger.lost(line.id, &note);
        }
        fine
    }
}

/// The lines of sections that allow something, and whether each lists directives (1).
fn directives_of<'s, 'a: 's>(
    sections: impl Iterator<Item = &'s &'a ApacheLine>,
) -> impl Iterator<Item = (&'a ApacheLine, &'a ApacheLine, usize)> {
    sections.copied().flat_map(|section| {
        let lines = section.children.iter().flatten();
        lines.filter_map(move |line| match line.name.as_str() {
            "allowoverride" => Some((section, line, 0)),
            "allowoverridelist" => Some((section, line, 1)),
            _ => None,
        })
    })
}
