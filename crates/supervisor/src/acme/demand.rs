//! Names that no site has among its hosts, ordered because clients ask for them.
//!
//! The idea: the server has asked the map, and its word is not believed: that a site covers a name by a pattern and has
//! such names ordered is looked up here, and how many may be new the acme process counts. A name that waits for its
//! first certificate is remembered for a day, so many at once; one that has a certificate is what the store's file says
//! it is, and needs no other list.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::model::{AcmeCertificate, OnDemand};
use config::reason;
use ipc::acme::{Budgets, Demand, ToAcme};
use ipc::certificates::Source;
use ipc::server::{NotObtained, ToServer};

use super::{Authorities, Wishes};
use crate::Supervisor;

/// Names that wait for their first certificate.
const PENDING_MAX: usize = 1_000;
/// For how long one is remembered that nobody asks for any more.
const PENDING_S: i64 = 24 * 3_600;
/// How often it is looked what has ended.
const FIND: Duration = Duration::from_secs(3_600);
/// For how long a certificate lies in the store when it has ended.
const ENDED_S: i64 = 30 * 24 * 3_600;

/// A name that clients have asked for.
#[derive(Debug)]
pub(super) struct Demanded {
    /// Its certificate, and where that comes from.
    pub(super) wish: (AcmeCertificate, Vec<Source>),
    /// Who wants it.
    pub(super) demand: Demand,
    /// Whether there is one.
    pub(super) is_held: bool,
}

impl Demanded {
    /// A name as these wishes have it; `None` where it is not ordered on demand.
    fn new(name: &str, wishes: &Wishes) -> Option<Demanded> {
        let (hosts, tenants) = wishes.demanded.as_ref()?;
        let covering = hosts.covering(name)?;
        let certificate = AcmeCertificate {
            name: name.to_owned(),
            account: covering.account,
            names: vec![name.to_owned()],
            site: covering.site,
        };
        let store = &wishes.accounts.get(covering.account)?.store;
        let file = certificate.file_in(store).display().to_string();
        let tenant = tenants.get(covering.site).cloned().unwrap_or_default();
        Some(Demanded {
            wish: (certificate, vec![Source::Acme(file)]),
            demand: Demand {
                tenant,
                asked_s: 0,
                first_s: None,
            },
            is_held: false,
        })
    }

    /// Whether it is still worth remembering.
    fn counts(&self, now_s: i64) -> bool {
        self.is_held || self.demand.asked_s > now_s - PENDING_S
    }
}

/// How much may be ordered.
pub(super) fn budgets(of: &OnDemand) -> Budgets {
    let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
    Budgets {
        per_tenant: count(of.per_tenant),
        per_domain: count(of.per_domain),
        in_all: count(of.in_all),
        unused_s: i64::try_from(of.unused_ms / 1_000).unwrap_or(i64::MAX),
    }
}

impl Authorities {
    /// A certificate that is ordered, and where it comes from.
    pub(super) fn certificate(&self, name: &str) -> Option<&(AcmeCertificate, Vec<Source>)> {
        let demanded = || self.demanded.get(name).map(|it| &it.wish);
        self.wishes.certificate(name).or_else(demanded)
    }

    /// Keeps of what was demanded what other wishes have as well.
    pub(super) fn adopt_demanded(&mut self) {
        for (name, before) in std::mem::take(&mut self.demanded) {
            if let Some(mut demanded) = Demanded::new(&name, &self.wishes) {
                demanded.demand.asked_s = before.demand.asked_s;
                demanded.demand.first_s = before.demand.first_s;
                // What the site of all rows is called is no tenant's name: its row has said whose it is.
                if ipc::rows::tenant(&demanded.demand.tenant).is_err() {
                    demanded.demand.tenant = before.demand.tenant;
                }
                demanded.is_held = before.is_held;
                self.demanded.insert(name, demanded);
            }
        }
    }

    /// Notes that a name is asked for; whether there is anything to say to the process.
    fn demand(&mut self, name: &str, now_s: i64) -> Result<bool, String> {
        let fresh = Demanded::new(name, &self.wishes);
        let fresh = fresh.ok_or("no site has certificates ordered for it on demand")?;
        let account = fresh.wish.0.account;
        match self.stores.get_mut(account).and_then(Option::as_mut) {
            None => return Err("its store cannot be opened".into()),
            Some(store) if store.is_held() => {}
            // The machine that writes orders it, and the certificate comes by the store.
            Some(store) => {
                store.ask(name, Instant::now());
                self.next_read = Some(Instant::now());
                return Ok(false);
            }
        }
        if let Some(known) = self.demanded.get_mut(name) {
            let is_told = known.demand.asked_s == now_s;
            known.demand.asked_s = now_s;
            return Ok(!is_told);
        }
        self.forget_demanded(now_s);
        let pending = self.demanded.values().filter(|it| !it.is_held);
        if pending.count() >= PENDING_MAX {
            return Err(format!(
                "{PENDING_MAX} names wait for their certificates already"
            ));
        }
        let of = self.wishes.accounts.get(account);
        let names = of
            .and_then(|it| it.on_demand.as_ref())
            .map_or(0, |it| it.names);
        let of_account = self
            .demanded
            .values()
            .filter(|it| it.wish.0.account == account);
        if of_account.count() >= names {
            return Err(format!(
                "{names} names have certificates already, or wait for them"
            ));
        }
        self.demanded.insert(name.to_owned(), fresh);
        self.demand(name, now_s)
    }

    /// Forgets names that are not worth remembering, and their orders.
    fn forget_demanded(&mut self, now_s: i64) {
        let gone = self.demanded.iter().filter(|(_, it)| !it.counts(now_s));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        if !gone.is_empty() {
            self.telling.begin_anew();
        }
        for name in gone {
            if let Ok((_, store)) = self.store_of(&name)
                && let Err(error) = store.remove_order(&name)
            {
                tracing::error!(name, error = reason(&error), "its order stays in the store");
            }
            self.demanded.remove(&name);
        }
    }

    /// Keeps that a name is new for which a certificate comes now.
    pub(super) fn note_first(&mut self, name: &str) {
        if !self.demanded.contains_key(name) {
            return;
        }
        let Ok((_, store)) = self.store_of(name) else {
            return;
        };
        if store.has_certificate(name) {
            return;
        }
        let now_s = now_s();
        if let Err(error) = store.keep_first(name, now_s) {
            tracing::error!(
                name,
                error = reason(&error),
                "it is not kept that it is new"
            );
        }
        if let Some(demanded) = self.demanded.get_mut(name) {
            demanded.demand.first_s = Some(now_s);
        }
    }

    /// Notes that a certificate lies in its store that ends then; one that has ended long ago, and that nobody has
    /// asked for since, is taken out of it.
    fn find(&mut self, name: &str, until_s: i64, now_s: i64) {
        let Some(mut fresh) = Demanded::new(name, &self.wishes) else {
            return;
        };
        let store = self.stores.get_mut(fresh.wish.0.account);
        let store = store.and_then(Option::as_mut);
        if !self.demanded.contains_key(name) {
            fresh.demand.first_s = store.as_ref().and_then(|store| store.first_s(name));
            self.telling.add(name.to_owned());
        }
        let demanded = self.demanded.entry(name.to_owned()).or_insert(fresh);
        demanded.is_held = true;
        let unused_since_s = now_s - ENDED_S;
        if until_s < unused_since_s
            && demanded.demand.asked_s < unused_since_s
            && let Some(store) = store.filter(|it| it.is_held())
        {
            tracing::info!(
                name,
                "taken out of the store: it has ended, and nobody asks for it"
            );
            if let Err(error) = store.remove_certificate(name) {
                tracing::error!(name, error = reason(&error), "it stays in the store");
            }
            demanded.is_held = false;
        }
    }
}

impl Authorities {
    /// What clients of other machines ask for, accepted there.
    fn asked_elsewhere(&mut self, now: Instant) -> Vec<String> {
        if self.next_heard.is_some_and(|next| next > now) {
            return Vec::new();
        }
        let mut asked = Vec::new();
        let mut hears = false;
        let stores = self.stores.iter_mut().zip(&self.wishes.accounts);
        let demanding = stores.filter(|(_, account)| account.on_demand.is_some());
        for store in demanding.filter_map(|(store, _)| store.as_mut().filter(|it| it.is_held())) {
            hears = true;
            match store.asked() {
                Ok(names) => asked.extend(names),
                Err(error) => {
                    tracing::error!(error = reason(&error), "what other machines ask for")
                }
            }
        }
        self.next_heard = hears.then(|| now + super::READ);
        asked
    }
}

impl Supervisor {
    /// Has ordered what clients of other machines ask for.
    pub(super) fn mind_demands(&mut self, now: Instant) {
        for name in self.authorities.asked_elsewhere(now) {
            self.demand(name, None, true);
        }
    }

    /// A client asks for a name, and its map or row was asked; whose it is, where its row says that.
    pub(crate) fn demand(&mut self, name: String, tenant: Option<String>, is_accepted: bool) {
        let now_s = now_s();
        if self.authorities.kept.pid().is_none() {
            let why = "the acme process is being started again".into();
            return self.tell_not_obtained(name, why, true);
        }
        let is_news = match self.authorities.demanded.get_mut(&name) {
            _ if is_accepted => self.authorities.demand(&name, now_s),
            Some(known) => {
                known.demand.asked_s = 0;
                Ok(true)
            }
            None => Ok(false),
        };
        match is_news {
            Ok(true) => {
                let tenant = tenant.filter(|it| ipc::rows::tenant(it).is_ok());
                let known = self.authorities.demanded.get_mut(&name);
                if let (Some(known), Some(tenant)) = (known, tenant) {
                    known.demand.tenant = tenant;
                }
                if let Some(known) = self.authorities.demanded.get(&name) {
                    let wanted = self.wanted(&known.wish, Some(known.demand.clone()));
                    self.authorities.say(&ToAcme::Demand(wanted));
                }
            }
            Ok(false) => {}
            Err(why) => self.tell_not_obtained(name, why, false),
        }
    }

    /// The acme process does not order what was demanded.
    pub(super) fn refuse_demand(&mut self, name: String, why: String, is_forgotten: bool) {
        let demanded = &mut self.authorities.demanded;
        if is_forgotten && demanded.get(&name).is_some_and(|it| !it.is_held) {
            demanded.remove(&name);
        }
        self.tell_not_obtained(name, why, false);
    }

    fn tell_not_obtained(&mut self, name: String, why: String, is_passing: bool) {
        let message = ToServer::NotObtained(NotObtained {
            name,
            why,
            is_passing,
        });
        let told = self.phase.server().map(|server| server.send(&message));
        if let Some(Err(error)) = told {
            self.lose_server_by("it does not hear of what it demanded", &error);
        }
    }

    /// Finds what the stores have of names that are ordered on demand.
    pub(crate) fn find_demanded(&mut self) {
        let Some(certificates) = &self.current.certificates else {
            return;
        };
        let authorities = &mut self.authorities;
        authorities.next_find = Some(Instant::now() + FIND);
        if authorities.wishes.demanded.is_none() {
            return;
        }
        let now_s = now_s();
        for (path, until_s) in certificates.ordered() {
            let name = path
                .rsplit('/')
                .next()
                .and_then(|it| it.strip_suffix(".pem"));
            if let Some(name) = name {
                authorities.find(name, until_s, now_s);
            }
        }
        authorities.forget_demanded(now_s);
    }
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use testkit::TempDir;

    use super::*;

    const NOW_S: i64 = 1_000_000;

    const CONFIG: &str = r#"
[[listen]]
address = "127.0.0.1:8443"
tls = true
[maps.customers]
program = ["true"]
[acme.le]
directory = "https://acme.example/dir"
store = "{store}"
on_demand = { map = "customers", names = 1_500 }
[[sites]]
hosts = ["own.shops.example", "*.shops.example"]
root = "/srv"
tls = { acme = "le" }
"#;

    fn wishes(config: &str, store: &TempDir) -> Arc<Wishes> {
        let store = store.path().display().to_string();
        let text = config.replace("{store}", &store);
        let model = config::load(&config::Sources::from_text("nagaya.toml", &text));
        let model = model.unwrap_or_else(|problems| panic!("{problems}"));
        Arc::new(Wishes::of(&model))
    }

    /// Authorities whose store this machine writes.
    fn authorities(store: &TempDir) -> Authorities {
        let mut authorities = Authorities::default();
        authorities.adopt(&wishes(CONFIG, store));
        assert!(authorities.step(Instant::now()));
        authorities
    }

    #[test]
    fn a_name_is_taken_where_a_site_covers_it_and_this_machine_orders() {
        let store = TempDir::new();
        let mut authorities = authorities(&store);
        for name in [
            "own.shops.example",
            "other.example",
            "../a.shops.example",
            "*.shops.example",
        ] {
            let refused = authorities.demand(name, NOW_S).unwrap_err();
            assert!(refused.starts_with("no site has"), "{refused}");
        }
        assert_eq!(authorities.demand("a.shops.example", NOW_S), Ok(true));
        assert_eq!(authorities.demand("a.shops.example", NOW_S), Ok(false));
        assert_eq!(authorities.demand("a.shops.example", NOW_S + 1), Ok(true));
        let (certificate, sources) = authorities.certificate("a.shops.example").unwrap();
        assert_eq!(certificate.names, ["a.shops.example"]);
        let file = store.path().join("le/certificates/a.shops.example.pem");
        assert_eq!(sources[..], [Source::Acme(file.display().to_string())]);
        assert_eq!(
            authorities.demanded["a.shops.example"].demand.tenant,
            "own.shops.example"
        );
        // What another configuration covers no more is forgotten.
        let other = CONFIG.replace("*.shops.example", "*.elsewhere.example");
        authorities.adopt(&wishes(&other, &store));
        assert!(authorities.certificate("a.shops.example").is_none());
        let mut reader = Authorities::default();
        reader.adopt(&wishes(CONFIG, &store));
        assert_eq!(reader.demand("a.shops.example", NOW_S), Ok(false));
        reader.read_others(Instant::now());
        let later = Instant::now() + super::super::READ;
        assert_eq!(authorities.asked_elsewhere(later), ["a.shops.example"]);
    }

    #[test]
    fn whose_a_name_of_rows_is_outlives_a_reload() {
        let rows = CONFIG
            .replace(
                "[maps.customers]\nprogram = [\"true\"]",
                "[directories.customers]\nsource = \"file:rows.csv\"",
            )
            .replace("map = \"customers\"", "directory = \"customers\"")
            .replace(
                "hosts = [\"own.shops.example\", \"*.shops.example\"]",
                "hosts = { directory = \"customers\" }\ntenant = \"$row.tenant\"",
            )
            .replace(
                "root = \"/srv\"",
                "rules = [{ handler = { respond = { body = \"x\" } } }]",
            );
        let store = TempDir::new();
        let mut authorities = Authorities::default();
        authorities.adopt(&wishes(&rows, &store));
        assert!(authorities.step(Instant::now()));
        let name = "a.shops.example";
        assert_eq!(authorities.demand(name, NOW_S), Ok(true));
        let demanded = authorities.demanded.get_mut(name).unwrap();
        demanded.demand.tenant = "anna".to_owned();
        let next = rows.replace("body = \"x\"", "body = \"y\"");
        authorities.adopt(&wishes(&next, &store));
        let demanded = &authorities.demanded[name].demand;
        assert_eq!((&*demanded.tenant, demanded.asked_s), ("anna", NOW_S));
        // A site that is written has whoever it says.
        authorities.adopt(&wishes(CONFIG, &store));
        let tenant = &authorities.demanded[name].demand.tenant;
        assert_eq!(tenant, "own.shops.example");
    }

    #[test]
    fn what_has_ended_and_was_last_asked_for_long_ago_leaves_the_store() {
        let store = TempDir::new();
        let mut authorities = authorities(&store);
        let (name, now_s) = ("a.shops.example", 100 * ENDED_S);
        let file = store.path().join("le/certificates/a.shops.example.pem");
        std::fs::write(&file, "").unwrap();
        authorities.demand(name, now_s - ENDED_S).unwrap();
        authorities.find(name, now_s - 2 * ENDED_S, now_s);
        assert!(file.exists());
        authorities.find(name, now_s - 2 * ENDED_S, now_s + 1);
        assert!(!file.exists());
        authorities.forget_demanded(now_s + 1);
        assert!(authorities.demanded.is_empty());
    }

    #[test]
    fn a_first_certificate_is_marked_and_a_renewal_is_not() {
        let store = TempDir::new();
        let mut authorities = authorities(&store);
        let renewed = store.path().join("le/certificates/b.shops.example.pem");
        std::fs::write(renewed, "").unwrap();
        for (name, is_first) in [("a.shops.example", true), ("b.shops.example", false)] {
            authorities.demand(name, NOW_S).unwrap();
            authorities.note_first(name);
            let known = authorities.demanded[name].demand.first_s;
            let (_, store) = authorities.store_of(name).unwrap();
            assert_eq!((known.is_some(), store.first_s(name)), (is_first, known));
        }
        // The next one that writes finds it.
        drop(authorities);
        let mut next = self::authorities(&store);
        next.find("a.shops.example", NOW_S, NOW_S);
        assert!(next.demanded["a.shops.example"].demand.first_s.is_some());
    }

    #[test]
    fn the_order_of_a_name_that_is_forgotten_leaves_the_store() {
        let store = TempDir::new();
        let mut authorities = authorities(&store);
        let name = "a.shops.example";
        authorities.demand(name, NOW_S).unwrap();
        let (_, of) = authorities.store_of(name).unwrap();
        of.keep_order(name, "le", "https://ca/1").unwrap();
        of.keep_key(name, b"key").unwrap();
        authorities.forget_demanded(NOW_S + PENDING_S);
        assert!(authorities.demanded.is_empty());
        let left = std::fs::read_dir(store.path().join("le/pending")).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn so_many_names_wait_and_so_many_have_certificates_whatever_the_server_says() {
        let store = TempDir::new();
        let mut authorities = authorities(&store);
        let mut demand = |from: usize, count: usize, now_s| {
            let name = |index| format!("n{index}.shops.example");
            let told = (from..from + count).map(|it| authorities.demand(&name(it), now_s));
            let taken = told.filter(Result::is_ok).count();
            (taken, authorities.demanded.len())
        };
        assert_eq!(demand(0, 5_000, NOW_S), (PENDING_MAX, PENDING_MAX));
        // Who is not asked for any more makes room.
        assert_eq!(demand(5_000, 10, NOW_S + PENDING_S), (10, 10));
        for demanded in authorities.demanded.values_mut() {
            demanded.is_held = true;
        }
        for index in 0..2_000 {
            let name = format!("m{index}.shops.example");
            if authorities.demand(&name, NOW_S + PENDING_S).is_ok() {
                authorities.demanded.get_mut(&name).unwrap().is_held = true;
            }
        }
        assert_eq!(authorities.demanded.len(), 1_500);
    }
}
