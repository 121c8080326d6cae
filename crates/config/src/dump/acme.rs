//! `[acme.NAME]`.

use super::Lines;
use super::write::{braces, list, quote, quote_path};
use crate::lower::names::Named;
use crate::model::{Acceptor, Acme, AcmeChallenge, Model};
use crate::units;

impl Lines {
    pub(super) fn account(&mut self, acme: &Acme, model: &Model) {
        self.section(&format!("[acme.{}]", quote(&acme.name)));
        self.key("directory", quote(&acme.directory));
        self.key("contact", list(&acme.contact, quote));
        if let Some(binding) = &acme.binding {
            let (id, key) = (quote(&binding.id), quote_path(&binding.key));
            let entries = [format!("id = {id}"), format!("key = {key}")];
            self.key("eab", braces(entries));
        }
        let name = |index: &usize| {
            let account = model.acme.get(*index);
            quote(account.map_or("", |account| account.name.as_str()))
        };
        self.key("fallback", list(&acme.fallback, name));
        let challenge = |challenge: &AcmeChallenge| quote(challenge.name());
        self.key("challenges", list(&acme.challenges, challenge));
        if let Some(dns) = &acme.dns {
            let program = format!("program = {}", list(&dns.program.command, quote));
            let user = format!("user = {}", quote(&dns.program.user));
            let timeout = format!("timeout = {}", quote(units::duration(dns.timeout_ms)));
            let user = dns.program.has_own_user.then_some(user);
            let entries = std::iter::once(program).chain(user).chain([timeout]);
            self.key("dns", braces(entries));
        }
        if let Some(export) = &acme.export {
            let directory = format!("directory = {}", quote_path(&export.directory));
            let owner = export.owner.as_ref();
            let owner = owner.map(|owner| format!("owner = {}", quote(owner)));
            let mode = format!("mode = {}", quote(format!("{:04o}", export.mode)));
            let run = export.run.as_ref();
            let run = run.map(|run| format!("run = {}", list(&run.command, quote)));
            let entries = [Some(directory), owner, Some(mode), run];
            self.key("export", braces(entries.into_iter().flatten()));
        }
        if let Some(profile) = &acme.profile {
            self.key("profile", quote(profile));
        }
        if let Some(file) = &acme.authorities {
            self.key("ca", quote_path(file));
        }
        if let Some(store) = acme.store.parent() {
            self.key("store", quote_path(store));
        }
        self.duration("lease", acme.lease_ms);
        if let Some(demand) = &acme.on_demand {
            let by = match demand.by {
                Acceptor::Map(map) => ("map", model.maps.get(map).map(|map| &map.name)),
                Acceptor::Directory(directory) => {
                    let directory = model.directories.get(directory);
                    ("directory", directory.map(|directory| &directory.name))
                }
            };
            let (word, name) = (by.0, by.1.map_or("", |name| name.as_str()));
            self.key(
                "on_demand",
                braces([
                    format!("{word} = {}", quote(name)),
                    format!("tenant = {}", demand.per_tenant),
                    format!("domain = {}", demand.per_domain),
                    format!("total = {}", demand.in_all),
                    format!("names = {}", demand.names),
                    format!("unused = {}", quote(units::duration(demand.unused_ms))),
                ]),
            );
        }
    }
}
