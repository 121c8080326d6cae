//! `AllowOverride` and `AllowOverrideList`: what `.htaccess` files of a site, and of parts of it, may
//! say.
//!
//! The idea: the site has what holds for its root; mounts, and directories below one of them, have
//! words of their own in their sections, where any differs.

use htaccess::Overrides;
use htaccess::overrides::Unknown;

use super::ApacheLine;
use super::sections::{SectionPlace, holds};
use super::site::HostWork;
use crate::draft::TomlItem;

/// What a section says of a directory: the classes, and the list of directives.
struct Said<'a> {
    path: String,
    words: [Option<Vec<&'a str>>; 2],
    ids: Vec<usize>,
}

impl<'a> HostWork<'_, 'a> {
    /// Says what files may say, by `<Directory>` sections, which stand in Apache's order.
    pub(super) fn overrides(&mut self, sections: &[&'a ApacheLine]) {
        let all = self.said(sections);
        let root = self.roots.root.clone();
        let of_root = root.as_deref().map(|root| words_at(&all, root));
        let of_root = of_root.unwrap_or_default();
        let mounts = self.roots.mounts.iter().map(|(_, root)| root.clone());
        let roots: Vec<String> = root.into_iter().chain(mounts).collect();
        let is_above = |it: &&Said<'_>| roots.iter().any(|root| holds(&it.path, root));
        let below = all.iter().filter(|it| !is_above(it)).map(|it| &it.path);
        for path in roots.iter().chain(below) {
            let words = words_at(&all, path);
            if !self.allowed.iter().any(|(known, _)| known == path) {
                let words = words.into_iter().map(str::to_owned);
                self.allowed.push((path.clone(), words.collect()));
            }
        }
        self.allowed
            .retain(|(path, _)| self.roots.root.as_ref() != Some(path));
        if self.allowed.iter().all(|(_, words)| *words == of_root) {
            self.allowed.clear();
        }
        if !of_root.is_empty() || !self.allowed.is_empty() {
            let ids: Vec<usize> = all.iter().flat_map(|it| it.ids.clone()).collect();
            let words = TomlItem::texts(of_root);
            self.draft.keys.put_in("htaccess", "override", words, &ids);
        }
    }

    fn said(&self, sections: &[&'a ApacheLine]) -> Vec<Said<'a>> {
        let ledger = self.apache.ledger;
        let mut all = Vec::new();
        for section in sections {
            let mut said = Said {
                path: String::new(),
                words: [None, None],
                ids: Vec::new(),
            };
            for line in section.children.iter().flatten() {
                let at = match line.name.as_str() {
                    "allowoverride" => 0,
                    "allowoverridelist" => 1,
                    _ => continue,
                };
                said.words[at] = Some(self.words(line));
                said.ids.push(line.id);
            }
            let places = self.roots.parts(section);
            let places = places.into_iter().filter_map(|(place, _)| match place {
                SectionPlace::Directory(path) => Some(path),
                SectionPlace::Names(_) => None,
            });
            let places: Vec<String> = places.collect();
            for id in &said.ids {
                match places.is_empty() {
                    true => ledger.idle(*id, "it counts in a `<Directory>` with files alone"),
                    false => ledger.carried(*id),
                }
            }
            let is_said = !said.ids.is_empty();
            let places = places.into_iter().filter(|_| is_said);
            all.extend(places.map(|path| Said {
                path,
                words: said.words.clone(),
                ids: said.ids.clone(),
            }));
        }
        all
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

/// What holds for a directory.
fn words_at<'a>(all: &[Said<'a>], path: &str) -> Vec<&'a str> {
    let mut found = [Vec::new(), Vec::new()];
    for said in all.iter().filter(|it| holds(&it.path, path)) {
        for (found, words) in found.iter_mut().zip(&said.words) {
            if let Some(words) = words {
                found.clone_from(words);
            }
        }
    }
    found.concat()
}
