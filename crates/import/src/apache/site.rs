//! A virtual host made into a site.

use super::access::{Admission, admission};
use super::rewriting::Rewriter;
use super::sections::{Area, Covered, Roots};
use super::{Apache, ApacheLine, fields};
use crate::Fate;
use crate::draft::{DraftKeys, SharedDraft, SiteDraft, TomlItem};
use crate::front::Front;
use crate::words;

/// Sections within each other.
const NESTED_MAX: usize = 8;

/// A site while it is put together.
pub(super) struct HostWork<'w, 'a> {
    pub(super) apache: &'w Apache<'a>,
    pub(super) shared: &'w mut SharedDraft,
    pub(super) draft: SiteDraft,
    pub(super) roots: Roots,
    pub(super) is_tls: bool,
    /// Who is let in where, the last one for an area counts.
    pub(super) admissions: Vec<(Area, Admission, Vec<&'a ApacheLine>)>,
    /// Where nobody comes in, whatever else is said there.
    closings: Vec<(Area, &'static str, usize)>,
    /// Rules that add settings, rules that lead elsewhere, rules with handlers.
    settings: Vec<DraftKeys>,
    pub(super) early: Vec<DraftKeys>,
    pub(super) first: Vec<DraftKeys>,
    pub(super) main: Vec<DraftKeys>,
    pub(super) uses_unless: bool,
    /// Whether what is read is for the files of a directory.
    pub(super) in_directory: bool,
}

/// The site of a virtual host.
pub(super) fn build<'a>(
    apache: &Apache<'a>,
    host: &'a ApacheLine,
    body: &[&'a ApacheLine],
    front: &Front,
    shared: &mut SharedDraft,
) -> SiteDraft {
    let mut work = HostWork {
        apache,
        shared,
        draft: SiteDraft {
            hosts: front.hosts.clone(),
            ..SiteDraft::default()
        },
        roots: Roots::default(),
        is_tls: front.is_tls(),
        admissions: Vec::new(),
        closings: Vec::new(),
        settings: Vec::new(),
        early: Vec::new(),
        first: Vec::new(),
        main: Vec::new(),
        uses_unless: false,
        in_directory: false,
    };
    apache.ledger.carried(host.id);
    work.draft.keys.note(&[host.id]);
    let all: Vec<&ApacheLine> = apache.global.iter().chain(body).copied().collect();
    work.places(&all);
    let is_proxy = |line: &&&ApacheLine| ["proxy", "proxymatch"].contains(&&*line.name);
    for section in all.iter().filter(is_proxy) {
        let members: Vec<&ApacheLine> = section.children.iter().flatten().collect();
        work.proxied(section, &members, &all);
    }
    let plain: Vec<&ApacheLine> = all
        .iter()
        .copied()
        .filter(|line| !is_section(line))
        .collect();
    work.say(&plain, &Area::default(), &[]);
    if work.is_tls {
        work.tls(&plain);
    }
    let mut sections: Vec<&ApacheLine> = all
        .iter()
        .copied()
        .filter(|line| is_section(line))
        .collect();
    sections.sort_by_key(|line| rank(line));
    work.overrides(&sections);
    for section in sections {
        work.section(section, &Area::default(), &plain, 0);
    }
    work.finish()
}

fn is_section(line: &ApacheLine) -> bool {
    line.children.is_some() && !line.name.starts_with("require")
}

/// Where a section stands among the others as Apache merges them.
fn rank(section: &ApacheLine) -> (u8, usize) {
    let is_tilde = section.first() == "~";
    match section.name.as_str() {
        "directory" if !is_tilde => (0, section.first().trim_end_matches('/').len()),
        "directory" | "directorymatch" => (1, 0),
        "files" | "filesmatch" => (2, 0),
        "location" | "locationmatch" => (3, 0),
        _ => (4, 0),
    }
}

impl<'a> HostWork<'_, 'a> {
    /// Where files are: the root, and directories elsewhere.
    fn places(&mut self, all: &[&'a ApacheLine]) {
        let ledger = self.apache.ledger;
        if let Some(line) = all.iter().rev().find(|line| line.name == "documentroot") {
            match words::file_path(line.first()) {
                Some(path) => {
                    ledger.carried(line.id);
                    let path = if path.len() > 1 {
                        path.trim_end_matches('/')
                    } else {
                        path
                    };
                    self.draft.keys.put("root", path, &[line.id]);
                    self.roots.root = Some(path.to_owned());
                }
                None => ledger.lost(
                    line.id,
                    "a root that is put together is not known: write a site for each",
                ),
            }
        }
        // Those of the virtual host come before those outside.
        for line in all
            .iter()
            .rev()
            .filter(|line| ["alias", "scriptalias"].contains(&line.name.as_str()))
        {
            let (path, directory) = (
                words::mount_path(line.first()),
                words::file_path(line.word(1)),
            );
            let (Some(path), Some(directory)) = (path, directory) else {
                ledger.lost(
                    line.id,
                    "it leads to no directory that is known: write a mount",
                );
                continue;
            };
            let directory = directory.trim_end_matches('/');
            if self.roots.mounts.len() >= 64
                || self.roots.mounts.iter().any(|(known, _)| known == path)
            {
                ledger.idle(line.id, "another directory is there already");
                continue;
            }
            ledger.carried(line.id);
            if let Some(mount) = self.draft.mount(path, directory, &[line.id]) {
                mount.put("symlinks", "allow", &[]);
            }
            self.roots
                .mounts
                .push((path.to_owned(), directory.to_owned()));
            if line.name == "scriptalias" {
                let below = words::glob(path).map(|path| TomlItem::from(path + "/*"));
                let mut rule = DraftKeys::default();
                rule.matching(
                    below
                        .map(|below| ("path".to_owned(), below))
                        .into_iter()
                        .collect(),
                );
                rule.put_in("handler", "cgi", TomlItem::Flag(true), &[line.id]);
                let note = "each file below it is run as the site's `user`: one that others may write is not";
                ledger.differs(line.id, note);
                self.main.push(rule);
            }
        }
    }

    fn section(
        &mut self,
        section: &'a ApacheLine,
        outer: &Area,
        above: &[&'a ApacheLine],
        depth: usize,
    ) {
        let apache = self.apache;
        let children: Vec<&ApacheLine> = section.children.iter().flatten().collect();
        if section.name.starts_with("proxy") {
            return;
        }
        let covered = match depth < NESTED_MAX && section.name != "if" {
            true => self.roots.covered(section, outer),
            false => Covered::Unknown,
        };
        let areas = match covered {
            Covered::Areas(areas) => areas,
            Covered::Unknown => {
                let why = "which requests a section is for is not known here: write a rule";
                apache.bury(section, Fate::NotCarried, why);
                if Apache::keeps_out(section) {
                    self.draft.keys.close(why);
                }
                return;
            }
        };
        match areas.is_empty() {
            true => apache
                .ledger
                .say_last(section.id, Fate::NotNeeded, "no site has files there"),
            false => apache.ledger.carried(section.id),
        }
        let plain: Vec<&ApacheLine> = children
            .iter()
            .copied()
            .filter(|line| !is_section(line))
            .collect();
        let passwords: Vec<&ApacheLine> = above.iter().chain(&plain).copied().collect();
        for area in &areas {
            self.in_directory = section.name == "directory";
            self.say(&plain, area, &passwords);
            for inner in children.iter().filter(|line| is_section(line)) {
                self.section(inner, area, &passwords, depth + 1);
            }
        }
    }

    /// What a level says for an area.
    fn say(&mut self, lines: &[&'a ApacheLine], area: &Area, passwords: &[&'a ApacheLine]) {
        let apache = self.apache;
        let mut keys = DraftKeys::default();
        for line in lines {
            if let Some(why) = apache.judge(line) {
                self.close(area, why, line);
            }
            let asks = line.name == "sslverifyclient" && !line.first().eq_ignore_ascii_case("none");
            if asks && !area.is_whole() {
                let why =
                    "a client's certificate is asked for by a whole site here, not for a part";
                apache.ledger.lost(line.id, why);
                self.close(area, why, line);
            }
        }
        if let Some(admission) = admission(lines, apache.ledger) {
            let passwords = if passwords.is_empty() {
                lines
            } else {
                passwords
            };
            self.admissions.retain(|(known, ..)| known != area);
            self.admissions
                .push((area.clone(), admission, passwords.to_vec()));
        }
        self.fields(lines, &mut keys);
        self.bounds(lines, &mut keys);
        if area.is_whole() {
            let mut whole = std::mem::take(&mut self.draft.keys);
            self.site_keys(lines, &mut whole);
            whole.merge(keys);
            self.draft.keys = whole;
        } else {
            self.not_for_parts(lines, area);
            if let Some(members) = area.members(false, &[]).filter(|_| !keys.is_idle()) {
                let mut rule = DraftKeys::default();
                rule.matching(members);
                rule.merge(keys);
                self.settings.push(rule);
            }
        }
        self.programs(lines, area);
        self.proxies(lines, area);
        Rewriter { work: self, area }.all(lines);
    }

    fn not_for_parts(&mut self, lines: &[&'a ApacheLine], area: &Area) {
        let ledger = self.apache.ledger;
        let mount = area.prefix.clone().filter(|_| area.names.is_none());
        for line in lines {
            match line.name.as_str() {
                "directoryindex" => {
                    let mut mounts = self.draft.mounts.iter_mut();
                    match mounts.find(|(path, _)| Some(path) == mount.as_ref()) {
                        Some((_, keys)) => index(self.apache, line, keys),
                        None => ledger.lost(line.id, "names of indexes are a site's, or a mount's"),
                    }
                }
                "options" | "errordocument" => {
                    let words = line.words.iter().map(|it| it.to_ascii_lowercase());
                    let opens = words
                        .into_iter()
                        .any(|it| it.trim_start_matches('+') == "indexes");
                    match line.name == "errordocument" || opens {
                        true => ledger.lost(line.id, "lists of files and error pages are a site's"),
                        false => self.options(line, None),
                    }
                }
                _ => {}
            }
        }
    }

    /// `Options`: lists of files, and links.
    fn options(&self, line: &ApacheLine, keys: Option<&mut DraftKeys>) {
        let ledger = self.apache.ledger;
        ledger.carried(line.id);
        let words: Vec<String> = line
            .words
            .iter()
            .map(|it| it.to_ascii_lowercase())
            .collect();
        let has = |name: &str| words.iter().any(|it| it.trim_start_matches('+') == name);
        if has("includes") || has("includesnoexec") {
            ledger.differs(
                line.id,
                "pages are sent as they are: there are no server-side includes",
            );
        }
        if has("multiviews") {
            ledger.differs(
                line.id,
                "a name without its ending is found by `try`, as `$path.html`",
            );
        }
        let Some(keys) = keys else {
            return;
        };
        if has("indexes") || has("all") {
            keys.put_in("files", "listing", TomlItem::Flag(true), &[line.id]);
        }
        let links = match (
            has("symlinksifownermatch"),
            words
                .iter()
                .any(|it| it == "-followsymlinks" || it == "none"),
        ) {
            (true, _) => "owner",
            (_, true) => "deny",
            _ if has("followsymlinks") || has("all") => "allow",
            _ => return,
        };
        keys.put("symlinks", links, &[line.id]);
    }

    /// Keys that only a site has.
    fn site_keys(&mut self, lines: &[&'a ApacheLine], keys: &mut DraftKeys) {
        let ledger = self.apache.ledger;
        for line in lines {
            match line.name.as_str() {
                "directoryindex" if self.roots.root.is_some() => index(self.apache, line, keys),
                "options" if self.roots.root.is_some() => self.options(line, Some(keys)),
                "errordocument" => self.error_page(line, keys),
                "customlog" => self.record(line, keys),
                "errorlog" => {
                    match words::file_path(line.first()).filter(|_| !self.is_global(line)) {
                        Some(path) => {
                            ledger.differs(
                                line.id,
                                "as long as both servers run, they write into one file",
                            );
                            keys.put_in("log", "error", path, &[line.id]);
                        }
                        None => ledger.idle(line.id, "the gateway's own goes to standard error"),
                    }
                }
                "keepalivetimeout" => fields::bound(
                    self.apache,
                    line,
                    words::wait(line.first()),
                    ("timeouts", "idle"),
                    keys,
                ),
                "suexecusergroup" | "assignuserid" => {
                    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.$@".contains(&byte);
                    let name = line.first();
                    let is_user = !name.is_empty()
                        && name != "root"
                        && !name.bytes().all(|byte| byte == b'0');
                    match is_user && name.bytes().all(fits) {
                        true => {
                            ledger.differs(
                                line.id,
                                "programs run as the user, in that user's groups",
                            );
                            keys.put("user", name, &[line.id]);
                        }
                        false => ledger.say(line.id, Fate::Refused, "programs do not run as root"),
                    }
                }
                "php_admin_value" | "php_admin_flag" | "php_value" | "php_flag" => {
                    self.setting(line, keys)
                }
                _ => {}
            }
        }
    }

    pub(super) fn is_global(&self, line: &ApacheLine) -> bool {
        self.apache.global.iter().any(|it| it.id == line.id)
    }

    /// A setting of PHP, for a pool of ours.
    fn setting(&self, line: &ApacheLine, keys: &mut DraftKeys) {
        let (name, value) = (line.first(), line.word(1));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.len() <= 128
            && name.bytes().all(fits);
        let is_value = !value.contains(|c: char| c.is_control() || ['"', '\\'].contains(&c))
            && !value.contains("${")
            && value.len() <= 1_000;
        match self.apache.options.own_pools && is_name && is_value {
            true => {
                if !line.name.contains("admin") {
                    self.apache.ledger.differs(line.id, "pages cannot change it");
                }
                self.apache.ledger.carried(line.id);
                let admin = TomlItem::table([(name, value.into())]);
                keys.put_in("pool", "admin", admin, &[line.id]);
            }
            false => self.apache.ledger.lost(
                line.id,
                "write it into the file of php-fpm's pool, as `php_admin_value[NAME] = VALUE`, or import with `--own-pools`",
            ),
        }
    }

    fn tls(&mut self, lines: &[&'a ApacheLine]) {
        let ledger = self.apache.ledger;
        let keys = &mut self.draft.keys;
        let last = |name: &str| lines.iter().rev().find(|line| line.name == name);
        for (name, key) in [
            ("sslcertificatefile", "certificate"),
            ("sslcertificatekeyfile", "key"),
        ] {
            if let Some((line, path)) =
                last(name).and_then(|it| Some((it, words::file_path(it.first())?)))
            {
                ledger.carried(line.id);
                keys.put_in("tls", key, path, &[line.id]);
            }
        }
        if let Some(line) = last("sslengine") {
            ledger.carried(line.id);
        }
        let Some(line) =
            last("sslverifyclient").filter(|line| !line.first().eq_ignore_ascii_case("none"))
        else {
            return;
        };
        let authorities =
            last("sslcacertificatefile").and_then(|it| Some((it, words::file_path(it.first())?)));
        let Some((ca, path)) = authorities else {
            ledger.lost(line.id, "who vouches for clients is not known");
            return keys.close("who vouches for clients' certificates is not known");
        };
        ledger.carried(ca.id);
        ledger.carried(line.id);
        keys.put_in("tls", "client_ca", path, &[ca.id]);
        if !line.first().eq_ignore_ascii_case("require") {
            keys.put_in("tls", "client_auth", "ask", &[line.id]);
        }
    }

    /// Nobody comes in where this area is.
    pub(super) fn close(&mut self, area: &Area, why: &'static str, line: &ApacheLine) {
        self.closings.push((area.clone(), why, line.id));
    }

    /// Rules for where nobody comes in.
    fn closed(&mut self, access: &mut Vec<DraftKeys>) {
        for (area, why, line) in std::mem::take(&mut self.closings) {
            let by_file: &[bool] = if area.names.is_some() {
                &[false, true]
            } else {
                &[false]
            };
            for by_file in by_file {
                match area.members(*by_file, &[]).filter(|_| !area.is_whole()) {
                    Some(members) => {
                        let mut rule = DraftKeys::default();
                        rule.note(&[line]);
                        rule.matching(members);
                        rule.close(why);
                        access.push(rule);
                    }
                    None => self.draft.keys.close(why),
                }
            }
        }
    }

    /// The site as it is written.
    fn finish(mut self) -> SiteDraft {
        let ledger = self.apache.ledger;
        let mut access = Vec::new();
        let admissions = std::mem::take(&mut self.admissions);
        for (at, (area, admission, passwords)) in admissions.iter().enumerate() {
            if admission.is_open() {
                continue;
            }
            let later = admissions.get(at + 1..).unwrap_or_default().iter();
            let others: Vec<&Area> = later
                .map(|(other, ..)| other)
                .filter(|other| *other != area && area.holds(other))
                .collect();
            if area.is_whole() && others.is_empty() {
                admission.say(passwords, ledger, &mut self.draft.keys);
                continue;
            }
            let by_file: &[bool] = if area.names.is_some() {
                &[false, true]
            } else {
                &[false]
            };
            for by_file in by_file {
                match area.members(*by_file, &others) {
                    Some(members) => {
                        let mut rule = DraftKeys::default();
                        rule.matching(members);
                        admission.say(passwords, ledger, &mut rule);
                        access.push(rule);
                    }
                    None => self
                        .draft
                        .keys
                        .close("which requests a section keeps out is not known"),
                }
            }
        }
        self.closed(&mut access);
        if self.uses_unless
            && let Some(TomlItem::List(tried)) = self.draft.keys.get("try").cloned()
        {
            let mut whole: Vec<TomlItem> = vec!["$path".into(), "$path/".into()];
            whole.extend(
                tried
                    .into_iter()
                    .filter(|it| !whole.contains(it))
                    .collect::<Vec<_>>(),
            );
            self.draft.keys.replace("try", TomlItem::List(whole));
        }
        let rules = access
            .into_iter()
            .chain(self.settings)
            .chain(self.early)
            .chain(self.first)
            // Of several handlers for a file Apache takes the last.
            .chain(self.main.into_iter().rev());
        self.draft.rules = rules.collect();
        self.draft
    }
}

fn index(apache: &Apache<'_>, line: &ApacheLine, keys: &mut DraftKeys) {
    let fits = |name: &&String| {
        !name.is_empty()
            && !name.starts_with('.')
            && !name.contains('/')
            && !name.contains(char::is_control)
    };
    let names: Vec<String> = line.words.iter().filter(fits).cloned().collect();
    match names.len() == line.words.len() {
        true => apache.ledger.carried(line.id),
        false => apache
            .ledger
            .differs(line.id, "only names of files are tried"),
    }
    if !names.is_empty() {
        keys.replace("index", TomlItem::texts(names));
        keys.note(&[line.id]);
    }
}
