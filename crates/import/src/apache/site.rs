//! A virtual host made into a site.

use super::access::{Admission, admission};
use super::lines::{is_left_to_rules, is_of_engine};
use super::sections::{Area, Roots, names_of};
use super::{Apache, ApacheLine, fields};
use crate::Fate;
use crate::draft::{DraftKeys, SharedDraft, SiteDraft, TomlItem};
use crate::front::Front;
use crate::ledger::ONE_FILE;
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
    /// Lines for the engine of `.htaccess` files: of the whole, and of locations, by expressions for
    /// their paths.
    pub(super) of_engine: Vec<&'a ApacheLine>,
    pub(super) of_locations: Vec<(String, Vec<&'a ApacheLine>)>,
    /// What `ProxyPass` is about, in its order.
    pub(super) shields: Vec<Shield>,
    /// What is not forwarded, each by the first of `first` for which that counts.
    pub(super) exempt: Vec<(usize, TomlItem)>,
    /// Whether rewriting of the virtual host leads paths to files.
    pub(super) translates: bool,
    /// What `.htaccess` files below directories may say.
    pub(super) allowed: Vec<(String, Vec<String>)>,
    /// Directories in which every file is a program.
    pub(super) script_directories: Vec<String>,
}

/// Paths that are forwarded, or are not.
pub(super) struct Shield {
    /// An expression for them.
    pub(super) regex: String,
    /// Its rule in `first`; `None` where it is not.
    pub(super) forwards: Option<usize>,
    pub(super) id: usize,
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
        of_engine: Vec::new(),
        of_locations: Vec::new(),
        shields: Vec::new(),
        exempt: Vec::new(),
        translates: false,
        allowed: Vec::new(),
        script_directories: Vec::new(),
    };
    apache.ledger.carried(host.id);
    work.draft.keys.note(&[host.id]);
    let all: Vec<&ApacheLine> = apache.global.iter().chain(body).copied().collect();
    let (mut sections, plain): (Vec<&ApacheLine>, Vec<&ApacheLine>) =
        all.iter().partition(|line| is_section(line));
    let (rewriting, plain): (Vec<&ApacheLine>, Vec<&ApacheLine>) = plain
        .iter()
        .partition(|line| line.name.starts_with("rewrite"));
    sections.sort_by_key(|line| rank(line));
    work.places(&plain, &rewriting, &sections);
    for section in sections.iter().filter(|it| it.name.starts_with("proxy")) {
        let members: Vec<&ApacheLine> = section.children.iter().flatten().collect();
        work.proxied(section, &members, &all);
    }
    let rewriting = work.own_rewriting(&rewriting, body.is_empty());
    let rewriting = work.rewriting(&rewriting, &all);
    let area = Area::default();
    work.say(&plain, &area, &[]);
    if work.is_tls {
        work.tls(&plain);
    }
    work.overrides(&sections);
    let (of_files, of_paths): (Vec<&ApacheLine>, Vec<&ApacheLine>) =
        sections.iter().partition(|section| rank(section).0 <= 2);
    for section in of_files {
        work.section(section, &area, &plain, 0);
    }
    // What stands for files within a directory comes after what does so outside.
    for section in sections
        .iter()
        .filter(|it| it.name.starts_with("directory"))
    {
        work.nested_handlers(section);
    }
    for section in of_paths {
        work.section(section, &area, &plain, 0);
    }
    if work.roots.has_files() {
        work.links(&plain, &sections);
    }
    work.texts(&rewriting, &sections);
    work.finish()
}

fn is_section(line: &ApacheLine) -> bool {
    line.children.is_some() && !line.name.starts_with("require")
}

/// The sections in a section, and its other lines.
fn parted(section: &ApacheLine) -> (Vec<&ApacheLine>, Vec<&ApacheLine>) {
    let children = section.children.iter().flatten();
    children.partition(|line| is_section(line))
}

/// Where a section stands among the others as Apache merges them.
fn rank(section: &ApacheLine) -> (u8, usize) {
    let is_tilde = section.first() == "~";
    match section.name.as_str() {
        "directory" if !is_tilde => (0, names_of(section.first()).count()),
        "directory" | "directorymatch" => (1, 0),
        "files" | "filesmatch" => (2, 0),
        "location" | "locationmatch" => (3, 0),
        _ => (4, 0),
    }
}

impl<'a> HostWork<'_, 'a> {
    /// The rewriting of the virtual host: what stands outside of all is theirs where they say so.
    fn own_rewriting(&self, lines: &[&'a ApacheLine], is_alone: bool) -> Vec<&'a ApacheLine> {
        let (outer, inner): (Vec<&ApacheLine>, Vec<&ApacheLine>) = lines
            .iter()
            .partition(|line| !is_alone && self.is_global(line));
        let inherits = |lines: &[&ApacheLine], begin: &str| {
            let mut options = lines.iter().filter(|line| line.name == "rewriteoptions");
            options.any(|line| {
                let mut words = line.words.iter().map(|word| word.to_ascii_lowercase());
                words.any(|word| word.starts_with(begin))
            })
        };
        if inherits(&inner, "inherit") || inherits(&outer, "inheritdown") {
            return inner.into_iter().chain(outer).collect();
        }
        for line in outer {
            let note = "virtual hosts have rewriting of their own";
            self.apache.ledger.idle(line.id, note);
        }
        inner
    }

    fn section(
        &mut self,
        section: &'a ApacheLine,
        outer: &Area,
        above: &[&'a ApacheLine],
        depth: usize,
    ) {
        let apache = self.apache;
        let is_of_files = !section.name.starts_with("location");
        if section.name.starts_with("proxy") {
            return;
        }
        if depth == 0 && is_of_files {
            if self.roots.has_files() {
                self.handlers(section, &Area::default(), 0);
            }
            return;
        }
        let covered = self.roots.covered(section, outer);
        let Some(area) = covered.filter(|_| depth < NESTED_MAX) else {
            let why = "which requests a section is for is not known here: write a rule";
            apache.bury(section, Fate::NotCarried, why);
            if section.restricts() {
                self.close(outer, why, section);
            }
            return;
        };
        apache.ledger.carried(section.id);
        let (inner, plain) = parted(section);
        let passwords: Vec<&ApacheLine> = above.iter().chain(&plain).copied().collect();
        self.say(&plain, &area, &passwords);
        for inner in inner {
            self.section(inner, &area, &passwords, depth + 1);
        }
    }

    /// What of a section of directories or files is no text: programs, and settings of PHP.
    fn handlers(&mut self, section: &'a ApacheLine, outer: &Area, depth: usize) {
        let ledger = self.apache.ledger;
        let Some(areas) = self.areas(section, outer).filter(|_| depth < NESTED_MAX) else {
            return;
        };
        let (inner, plain) = parted(section);
        for line in plain.iter().filter(|it| is_left_to_rules(it)) {
            let is_setting = line.name.starts_with("php_");
            if is_setting && areas.contains(&Area::default()) {
                let mut keys = std::mem::take(&mut self.draft.keys);
                self.setting(line, &mut keys);
                self.draft.keys = keys;
            } else if is_setting {
                ledger.lost(line.id, "settings of PHP are those of a whole site: `pool`");
            } else if areas.is_empty() && !line.name.starts_with("allowoverride") {
                ledger.lost(line.id, "which files it is for is not known: write a rule");
            }
        }
        for area in &areas {
            self.programs(&plain, area, true);
            for inner in inner
                .iter()
                .filter(|_| !section.name.starts_with("directory"))
            {
                self.handlers(inner, area, depth + 1);
            }
        }
    }

    fn nested_handlers(&mut self, section: &'a ApacheLine) {
        for area in self.areas(section, &Area::default()).into_iter().flatten() {
            for inner in parted(section).0 {
                self.handlers(inner, &area, 1);
            }
        }
    }

    /// The requests of a section of directories or files, as far as rules tell them; `None` where no
    /// site has files there.
    fn areas(&self, section: &ApacheLine, outer: &Area) -> Option<Vec<Area>> {
        if !section.name.starts_with("directory") {
            return Some(self.roots.covered(section, outer).into_iter().collect());
        }
        let parts = self.roots.parts(section);
        let is_here = !parts.is_empty() && self.roots.has_files();
        is_here.then(|| parts.into_iter().filter_map(|(_, area)| area).collect())
    }

    /// Where the engine is given lines of an area: an expression for its paths, nothing where it is
    /// all of a site.
    fn engine_place(&self, area: &Area) -> Option<Option<String>> {
        let is_path = area.methods.is_none() && area.file.is_none();
        let below = |prefix: &String| format!("^{}(?:/|$)", words::escape(prefix));
        let place = match (&area.prefix, &area.regex) {
            (None, regex) => regex.clone(),
            (Some(prefix), None) => Some(below(prefix)),
            (Some(_), Some(_)) => return None,
        };
        is_path.then_some(place)
    }

    /// What a level says for an area.
    fn say(&mut self, lines: &[&'a ApacheLine], area: &Area, passwords: &[&'a ApacheLine]) {
        let apache = self.apache;
        let place = self.engine_place(area);
        let (mut engine, lines): (Vec<&ApacheLine>, Vec<&ApacheLine>) = lines
            .iter()
            .partition(|line| place.is_some() && is_of_engine(line));
        for line in &lines {
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
        if let Some(admission) = admission(&lines, apache.ledger) {
            let passwords = match passwords.is_empty() {
                true => lines.clone(),
                false => passwords.to_vec(),
            };
            self.admissions.retain(|(known, ..)| known != area);
            self.admissions.push((area.clone(), admission, passwords));
        }
        let mut keys = DraftKeys::default();
        let mut left = self.fields(&lines, &mut keys);
        self.bounds(&lines, &mut keys);
        if area.is_whole() {
            let mut whole = std::mem::take(&mut self.draft.keys);
            left.extend(self.site_keys(&lines, &mut whole));
            whole.merge(keys);
            self.draft.keys = whole;
        } else {
            let of_files =
                |line: &&&ApacheLine| ["directoryindex", "errordocument"].contains(&&*line.name);
            left.extend(lines.iter().filter(of_files).copied());
            if let Some(members) = area.members(&[]).filter(|_| !keys.is_idle()) {
                let mut rule = DraftKeys::rule(members, &[]);
                rule.merge(keys);
                self.settings.push(rule);
            }
        }
        self.programs(&lines, area, false);
        self.programs(&engine, area, true);
        self.proxies(&lines, area);
        match place {
            None => self.left_out(&left, area),
            Some(place) => {
                engine.extend(left);
                match place {
                    None => self.of_engine.extend(engine),
                    Some(_) if engine.is_empty() => {}
                    Some(regex) => self.of_locations.push((regex, engine)),
                }
            }
        }
        for line in lines
            .iter()
            .filter(|it| it.begins(&["rewrite", "redirect"]))
        {
            let why = "in a location it has no counterpart: write it into the virtual host";
            apache.ledger.lost(line.id, why);
            if line.restricts() {
                self.close(area, why, line);
            }
        }
    }

    /// Lines that neither keys nor the engine can say.
    pub(super) fn left_out(&mut self, lines: &[&'a ApacheLine], area: &Area) {
        let mut removed = DraftKeys::default();
        for line in lines {
            self.apache.ledger.lost(line.id, fields::LOST);
            // Without it the client's own would be believed.
            if let Some(name) = fields::request_field(line) {
                let names = TomlItem::texts([name]);
                removed.put_in("request_headers", "remove", names, &[line.id]);
            }
        }
        match area.members(&[]) {
            _ if removed.is_idle() => {}
            Some(members) if !area.is_whole() => {
                let mut rule = DraftKeys::rule(members, &[]);
                rule.merge(removed);
                self.settings.push(rule);
            }
            _ => self.draft.keys.merge(removed),
        }
    }

    /// Keys that only a site has; lines that no key says.
    fn site_keys(&mut self, lines: &[&'a ApacheLine], keys: &mut DraftKeys) -> Vec<&'a ApacheLine> {
        let ledger = self.apache.ledger;
        let mut left = Vec::new();
        let is_usual = |line: &&&ApacheLine| line.name == "customlog" && line.word(1) == "combined";
        let records = lines.iter().rev().find(is_usual);
        for line in lines {
            match line.name.as_str() {
                "directoryindex" if self.roots.root.is_some() => index(self.apache, line, keys),
                "errordocument" if !self.error_page(line, keys) => left.push(*line),
                "customlog" if records.is_none_or(|it| it.id == line.id) => self.record(line, keys),
                "customlog" => ledger.lost(line.id, fields::ONE_RECORD),
                "errorlog" => {
                    match words::file_path(line.first()).filter(|_| !self.is_global(line)) {
                        Some(path) => {
                            ledger.differs(line.id, ONE_FILE);
                            keys.put_in("log", "error", path, &[line.id]);
                        }
                        None => ledger.idle(line.id, "the gateway's own goes to standard error"),
                    }
                }
                "keepalivetimeout" => {
                    let wait = words::wait(line.first());
                    keys.bound((ledger, line.id), wait, ("timeouts", "idle"));
                }
                "suexecusergroup" | "assignuserid" | "ruidgid" => self.user(line, keys),
                name if name.starts_with("php_") => self.setting(line, keys),
                _ => {}
            }
        }
        left
    }

    fn user(&self, line: &ApacheLine, keys: &mut DraftKeys) {
        let ledger = self.apache.ledger;
        let name = line.first();
        match words::is_user(name) {
            true => {
                ledger.differs(line.id, "programs run as the user, in that user's groups");
                keys.put("user", name, &[line.id]);
            }
            false => ledger.say(line.id, Fate::Refused, "programs do not run as root"),
        }
    }

    pub(super) fn is_global(&self, line: &ApacheLine) -> bool {
        self.apache.global.iter().any(|it| it.id == line.id)
    }

    /// A setting of PHP, for a pool of ours.
    fn setting(&self, line: &ApacheLine, keys: &mut DraftKeys) {
        let (name, value) = (line.first(), line.word(1));
        match self.apache.options.own_pools && crate::pools::is_setting(name, value) {
            true => {
                if !line.name.contains("admin") {
                    self.apache
                        .ledger
                        .differs(line.id, "pages cannot change it");
                }
                self.apache.ledger.carried(line.id);
                let admin = TomlItem::table([(name, value.into())]);
                keys.put_in("pool", "admin", admin, &[line.id]);
            }
            false => {
                self.apache.ledger.lost(
                    line.id,
                    "write it into the file of php-fpm's pool, as `php_admin_value[NAME] = VALUE`, or import with `--own-pools`",
                );
                if self.apache.options.own_pools && line.name.contains("admin") {
                    keys.close("a setting that keeps programs in cannot be said in `pool`");
                }
            }
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
        self.close_at(area, why, line.id);
    }

    pub(super) fn close_at(&mut self, area: &Area, why: &'static str, line: usize) {
        self.closings.push((area.clone(), why, line));
    }

    /// Rules for where nobody comes in.
    fn closed(&mut self, access: &mut Vec<DraftKeys>) {
        for (area, why, line) in std::mem::take(&mut self.closings) {
            match area.members(&[]).filter(|_| !area.is_whole()) {
                Some(members) => {
                    let mut rule = DraftKeys::rule(members, &[line]);
                    rule.close(why);
                    access.push(rule);
                }
                None => self.draft.keys.close(why),
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
            match area.members(&others) {
                Some(members) => {
                    let mut rule = DraftKeys::rule(members, &[]);
                    admission.say(passwords, ledger, &mut rule);
                    access.push(rule);
                }
                None => self
                    .draft
                    .keys
                    .close("which requests a section keeps out is not known"),
            }
        }
        self.closed(&mut access);
        self.leave_to_files();
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
    let names = words::index_names(&line.words);
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
