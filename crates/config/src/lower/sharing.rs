//! What sites do to each other that have the same FastCGI server run their pages.
//!
//! A process of php-fpm runs the pages of every site that asks its pool, one after the other, as
//! the pool's user; and what `PHP_VALUE` or `PHP_ADMIN_VALUE` told it for one request holds for all
//! that come later. So a setting of one site is refused where another one shares its server, and
//! else warned of. Servers are the same however their addresses are spelt.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use super::context::{Context, Spot, problem};
use super::upstream::Upstreams;
use super::value::Value;
use crate::model::{FastCgi, Handler, ServerAddress, Site};

/// Variables that php-fpm takes for settings.
const SETTINGS: [&str; 2] = ["PHP_VALUE", "PHP_ADMIN_VALUE"];

/// Who asks which FastCGI server.
#[derive(Default)]
pub(crate) struct Sharing {
    sites: Vec<Sharer>,
    servers: BTreeMap<Server, Vec<Use>>,
}

/// A site that asks FastCGI servers.
struct Sharer {
    host: String,
    user: String,
    /// Where its own `user` is written.
    user_spot: Option<Spot>,
}

/// A handler's part in a server.
struct Use {
    site: usize,
    shown: String,
    spot: Spot,
    is_pool: bool,
    settings: Vec<(&'static str, Spot)>,
}

/// A server, however it is written.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    Unix(PathBuf),
    /// By its port: what listens on one address of this machine is reached by the others, too.
    Here(u16),
    Tcp(IpAddr, u16),
    Name(String, u16),
}

impl Sharing {
    /// Takes in a site and what it was made of.
    pub(crate) fn note(&mut self, value: &Value<'_>, site: &Site, upstreams: &Upstreams) {
        let rules = value.member("rules").filter(Value::is_list);
        let rules = rules.and_then(|rules| rules.list()).unwrap_or_default();
        // One that is wrong has been reported.
        if rules.len() != site.rules.len() {
            return;
        }
        let handlers = rules.iter().zip(&site.rules);
        // What the site and rules without a handler add concerns every page.
        let plain = handlers.clone().filter(|(_, rule)| rule.handler.is_none());
        let levels: Vec<_> = plain.map(|(value, _)| value).chain([value]).collect();
        let number = self.sites.len();
        for (at, (rule, model)) in handlers.enumerate() {
            let Some(Handler::FastCgi(fastcgi)) = &model.handler else {
                continue;
            };
            let (Some(handler), context) = (rule.member("handler"), value.context) else {
                continue;
            };
            let settings = settings(&handler, [rule].into_iter().chain(levels.clone()), fastcgi);
            let below = site.mounts.iter().flat_map(|mount| &mount.handlers);
            let below = below.filter(|(of, _)| *of == at);
            let asked = below.filter_map(|(_, handler)| handler.upstream());
            let asked = [fastcgi.upstream].into_iter().chain(asked);
            for server in asked.flat_map(|it| upstreams.servers_of(it)) {
                let uses = self.servers.entry(same(context, &server.address));
                uses.or_default().push(Use {
                    site: number,
                    shown: server.address.to_string(),
                    spot: handler.spot(),
                    is_pool: fastcgi.pool.is_some(),
                    settings: settings.clone(),
                });
            }
        }
        self.sites.push(Sharer {
            host: site
                .hosts
                .first()
                .map(ToString::to_string)
                .unwrap_or_default(),
            user: site.user.clone(),
            user_spot: value.member("user").map(|user| user.spot()),
        });
    }

    /// Tells what is wrong between the sites, and what is hardly meant.
    pub(crate) fn judge(self, context: &Context<'_>) {
        let mut told = BTreeSet::new();
        for uses in self.servers.values() {
            for (one, name, spot) in settings_of(uses) {
                let other = uses.iter().find(|other| other.site != one.site);
                if let Some(other) = other.filter(|_| told.insert(spot)) {
                    self.refuse((one, name, spot), other, context);
                }
            }
            if let Some(first) = uses.first() {
                self.tell_users(first, uses, &mut told, context);
            }
        }
        for (one, name, spot) in self.servers.values().flat_map(|uses| settings_of(uses)) {
            if told.insert(spot) {
                let message = format!(
                    "`{name}` stays in the process of php-fpm that got it, for all of its later requests"
                );
                context.warn(problem(spot.clone(), message).help(pool_file(name, one.is_pool)));
            }
        }
    }

    fn host(&self, of: &Use) -> &str {
        self.sites.get(of.site).map_or("", |site| &site.host)
    }

    fn refuse(&self, (one, name, spot): (&Use, &str, &Spot), other: &Use, context: &Context<'_>) {
        let (host, neighbour) = (self.host(one), self.host(other));
        let message = format!(
            "`{name}` of site `{host}` would stay in the processes of {} for later requests of site `{neighbour}`",
            one.shown
        );
        let role = format!("`{neighbour}` asks it, too");
        let finding = problem(spot.clone(), message).other(&role, other.spot.clone());
        let help = pool_file(name, one.is_pool) + ", in a pool of this site's own";
        context.report(finding.help(help));
    }

    /// Tells of sites with users of their own that one server serves as somebody else.
    fn tell_users<'a>(
        &'a self,
        first: &'a Use,
        uses: &'a [Use],
        told: &mut BTreeSet<&'a Spot>,
        context: &Context<'_>,
    ) {
        let Some(one) = self.sites.get(first.site) else {
            return;
        };
        let mut sites = uses.iter().filter_map(|other| self.sites.get(other.site));
        let Some(other) = sites.find(|other| other.user != one.user) else {
            return;
        };
        let Some(spot) = other.user_spot.as_ref().or(one.user_spot.as_ref()) else {
            return;
        };
        if !told.insert(spot) {
            return;
        }
        let message = format!(
            "sites `{}` (user `{}`) and `{}` (user `{}`) have their pages run by the same processes, those of {}: `user` is not PHP's",
            one.host, one.user, other.host, other.user, first.shown
        );
        let help = "php-fpm runs pages as the `user` of its pool: give each site a pool, with its own `user` and `listen`";
        let finding = problem(spot.clone(), message).help(help);
        let first_spot = one.user_spot.as_ref().filter(|first| *first != spot);
        let role = format!("`{}`", one.host);
        context.warn(finding.other(&role, first_spot.unwrap_or(&first.spot).clone()));
    }
}

fn settings_of(uses: &[Use]) -> impl Iterator<Item = (&Use, &'static str, &Spot)> {
    uses.iter().flat_map(|one| {
        let settings = one.settings.iter();
        settings.map(move |(name, spot)| (one, *name, spot))
    })
}

/// Where settings are written that a handler passes on: its own, and those of `env` that it neither
/// replaces nor leaves out.
fn settings<'v>(
    handler: &Value<'_>,
    levels: impl Iterator<Item = &'v Value<'v>> + Clone,
    fastcgi: &FastCgi,
) -> Vec<(&'static str, Spot)> {
    let mut found = Vec::new();
    for name in SETTINGS {
        let own = fastcgi.params.iter().find(|(param, _)| param == name);
        match own {
            Some((_, None)) => {}
            Some((_, Some(_))) => {
                let words = ["fastcgi", "php"];
                let table = words.iter().find_map(|word| handler.member(word));
                let params = table.and_then(|it| it.member("params"));
                let set = params.and_then(|it| it.member("set")?.member(name));
                found.extend(set.map(|value| (name, value.spot())));
            }
            None => {
                let set = levels
                    .clone()
                    .filter_map(|it| it.member("env")?.member(name));
                found.extend(set.map(|value| (name, value.spot())));
            }
        }
    }
    found
}

/// What to write, and where.
fn pool_file(name: &str, is_pool: bool) -> String {
    if is_pool {
        return "write it as `pool = { admin = { memory_limit = \"256M\" } }` of the site"
            .to_owned();
    }
    let directive = match name {
        "PHP_VALUE" => "php_value",
        _ => "php_admin_value",
    };
    format!("write it into the pool's file, as `{directive}[memory_limit] = 256M`")
}

fn same(context: &Context<'_>, address: &ServerAddress) -> Server {
    match address {
        ServerAddress::Unix(path) => {
            let path = crate::sources::normal(path);
            let canonical = context.sources.canonical.get(&path);
            Server::Unix(canonical.cloned().unwrap_or(path))
        }
        ServerAddress::Tcp(address) => match address.ip().to_canonical() {
            ip if ip.is_loopback() || ip.is_unspecified() => Server::Here(address.port()),
            ip => Server::Tcp(ip, address.port()),
        },
        ServerAddress::Name { host, port } if host == "localhost" => Server::Here(*port),
        ServerAddress::Name { host, port } => Server::Name(host.clone(), *port),
    }
}
