//! Scripts, as they are written.

use super::write::{Lines, braces, list, quote, quote_path};
use crate::keys;
use crate::lower::names::Named;
use crate::lower::script::Place;
use crate::model::{AllowedAddress, Budgets, PhaseScripts, Script, Scripts, Source};

/// A level's scripts by phase, and where each stands.
type Phases<'a> = [(&'static str, &'a [Script], Place); 6];

impl Lines {
    /// `[scripts]`.
    pub(super) fn scripts(&mut self, scripts: &Scripts) {
        self.section("[scripts]");
        self.key("server", quote(scripts.server.name()));
        let process = [
            ("init", &scripts.init),
            ("worker_init", &scripts.worker_init),
            ("worker_exit", &scripts.worker_exit),
        ];
        for (name, given) in process {
            if !given.is_empty() {
                self.key(name, list(given, |given| script(given, Place::Process)));
            }
        }
        if !scripts.lib.is_empty() {
            self.key(
                "lib",
                list(&scripts.lib, |library| quote_path(&library.directory)),
            );
        }
        for (name, given, place) in phases(&scripts.phases) {
            if !given.is_empty() {
                self.key(name, list(given, |given| script(given, place)));
            }
        }
        self.numbers(&keys::SCRIPTS, &scripts.budgets, &Budgets::FIELDS);
        if !scripts.cache_files.is_empty() {
            let files = list(&scripts.cache_files, |path| quote_path(path));
            self.key("cache_files", files);
        }
        self.key("env", list(&scripts.env, quote));
    }

    /// `scripts = { … }` of a level.
    pub(super) fn level_scripts(&mut self, scripts: &PhaseScripts) {
        let given = phases(scripts).into_iter();
        let given = given.filter(|(_, given, _)| !given.is_empty());
        let given: Vec<String> = given
            .map(|(name, given, place)| {
                format!("{name} = {}", list(given, |given| script(given, place)))
            })
            .collect();
        if !given.is_empty() {
            self.key("scripts", braces(given));
        }
    }
}

/// `allow` of `proxy`, where it has one.
pub(super) fn allow(given: &[AllowedAddress]) -> Option<String> {
    (!given.is_empty()).then(|| format!("allow = {}", list(given, allowed)))
}

/// A script that stands there.
pub(super) fn script(script: &Script, place: Place) -> String {
    let (source, is_file) = match &script.source {
        Source::File(file) => (format!("file = {}", quote_path(&file.path)), true),
        Source::Code(code) => (format!("code = {}", quote(code)), false),
    };
    let may_say = |key| place.objection(key).is_none();
    let entries = [
        Some(source),
        (is_file && may_say("cache")).then(|| format!("cache = {}", quote(script.cache.name()))),
        may_say("on_error").then(|| format!("on_error = {}", quote(script.on_error.name()))),
        may_say("optional").then(|| format!("optional = {}", script.optional)),
        may_say("mode").then(|| format!("mode = {}", quote(script.mode.name()))),
    ];
    braces(entries.into_iter().flatten())
}

fn phases(scripts: &PhaseScripts) -> Phases<'_> {
    [
        ("ssl_handshake", &scripts.ssl_handshake, Place::Handshake),
        ("rewrite", &scripts.rewrite, Place::Phase),
        ("access", &scripts.access, Place::Phase),
        ("header_filter", &scripts.header_filter, Place::Phase),
        ("body_filter", &scripts.body_filter, Place::Phase),
        ("log", &scripts.log, Place::Log),
    ]
}

fn allowed(address: &AllowedAddress) -> String {
    let network = address.network;
    quote(match address.port {
        None => network.to_string(),
        Some(port) if network.addr().is_ipv6() => format!("[{network}]:{port}"),
        Some(port) => format!("{network}:{port}"),
    })
}
