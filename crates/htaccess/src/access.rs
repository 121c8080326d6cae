//! Who may have something: `Order`, `Allow` and `Deny` of 2.2, `Require` of 2.4, and both together.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

use crate::evaluation::{Question, UserTold};
use crate::expression::{self, Condition};
use crate::request::Stop;
use crate::settings::Settings;
use crate::variable::Scope;

/// Methods that lines within `<Limit>` and `<LimitExcept>` are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Methods {
    All,
    Only(Arc<[Vec<u8>]>),
    Except(Arc<[Vec<u8>]>),
}

impl Methods {
    fn cover(&self, method: &[u8]) -> bool {
        // What is said of GET is said of HEAD.
        let method = if method == b"HEAD" { b"GET" } else { method };
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| name == method),
            Self::Except(names) => !names.iter().any(|name| name == method),
        }
    }
}

/// Which of `Allow` and `Deny` has the last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastWord {
    Allow,
    Deny,
    /// Both must agree.
    Mutual,
}

/// Where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    All,
    Env(Vec<u8>),
    NoEnv(Vec<u8>),
    Network(IpNet),
    /// A name, which nobody looks up: it is never the client's.
    Host,
}

/// The lines of 2.2 of one place; those of a place within replace them all.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostLines {
    pub(crate) orders: Vec<(Methods, LastWord)>,
    pub(crate) allows: Vec<(Methods, Origin)>,
    pub(crate) denies: Vec<(Methods, Origin)>,
    /// Whether either will do, the address or the name.
    pub(crate) satisfies_any: Vec<(Methods, bool)>,
}

impl HostLines {
    fn admits(&self, scope: &Scope<'_>) -> bool {
        let method = scope.request.method;
        let order = self
            .orders
            .iter()
            .rev()
            .find(|(methods, _)| methods.cover(method));
        let hit = |lines: &[(Methods, Origin)]| {
            let mut lines = lines.iter();
            lines.any(|(methods, origin)| methods.cover(method) && origin.holds(scope))
        };
        match order.map_or(LastWord::Allow, |(_, order)| *order) {
            LastWord::Deny | LastWord::Mutual => hit(&self.allows) && !hit(&self.denies),
            LastWord::Allow => hit(&self.allows) || !hit(&self.denies),
        }
    }

    fn any_will_do(&self, method: &[u8]) -> bool {
        let mut lines = self.satisfies_any.iter().rev();
        lines
            .find(|(methods, _)| methods.cover(method))
            .is_some_and(|(_, any)| *any)
    }
}

impl Origin {
    fn holds(&self, scope: &Scope<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Env(name) => scope.variables.borrow().get(name).is_some(),
            Self::NoEnv(name) => scope.variables.borrow().get(name).is_none(),
            Self::Network(network) => network.contains(&scope.request.client.to_canonical()),
            Self::Host => false,
        }
    }
}

/// What is required.
#[derive(Debug, Clone)]
pub(crate) enum Requirement {
    Group(Group),
    /// The methods it is about, and whether it is `Require not`.
    Line(Methods, bool, Arc<Provider>),
}

/// Requirements together.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) all: bool,
    pub(crate) negated: bool,
    pub(crate) parts: Vec<Requirement>,
}

/// What one line requires.
#[derive(Debug)]
pub(crate) enum Provider {
    All(bool),
    Env(Vec<Vec<u8>>),
    Method(Vec<Vec<u8>>),
    Expression(Condition),
    ValidUser,
    User(Vec<Vec<u8>>),
    Group(Vec<Vec<u8>>),
    Network(Vec<IpNet>),
    Local,
    /// A name, which nobody looks up.
    Host,
}

/// What comes of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Granted,
    Denied,
    /// Denied as long as nobody says who he is.
    DeniedNobody,
    Neutral,
}

impl Requirement {
    fn covers(&self, method: &[u8]) -> bool {
        match self {
            Self::Line(methods, ..) => methods.cover(method),
            Self::Group(group) => group.parts.iter().any(|part| part.covers(method)),
        }
    }

    pub(crate) fn asks_for_groups(&self) -> bool {
        match self {
            Self::Line(.., provider) => matches!(**provider, Provider::Group(_)),
            Self::Group(group) => group.parts.iter().any(Self::asks_for_groups),
        }
    }

    /// As deep as sections may stand in each other.
    fn verdict<'r>(
        &'r self,
        in_all: bool,
        who: &'r Option<UserTold>,
        scope: &'r Scope<'_>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Verdict, Stop>> + 'r>> {
        Box::pin(async move {
            scope.asker.spend(1)?;
            if !self.covers(scope.request.method) {
                return Ok(if in_all {
                    Verdict::Granted
                } else {
                    Verdict::Neutral
                });
            }
            let (negated, found) = match self {
                Self::Line(_, negated, provider) => (*negated, provider.verdict(who, scope).await?),
                Self::Group(group) => (group.negated, group.verdict(who, scope).await?),
            };
            Ok(match found {
                found if !negated => found,
                Verdict::Granted => Verdict::Denied,
                _ => Verdict::Neutral,
            })
        })
    }
}

impl Group {
    async fn verdict(&self, who: &Option<UserTold>, scope: &Scope<'_>) -> Result<Verdict, Stop> {
        let decisive = if self.all {
            Verdict::Denied
        } else {
            Verdict::Granted
        };
        let mut found = Verdict::Neutral;
        for part in &self.parts {
            let next = part.verdict(self.all, who, scope).await?;
            if next == decisive {
                return Ok(next);
            }
            let yields = found == Verdict::Neutral
                || (next == Verdict::DeniedNobody && found != Verdict::DeniedNobody);
            if next != Verdict::Neutral && yields {
                found = next;
            }
        }
        Ok(found)
    }
}

impl Provider {
    async fn verdict(&self, who: &Option<UserTold>, scope: &Scope<'_>) -> Result<Verdict, Stop> {
        let request = scope.request;
        let holds = match self {
            Self::All(granted) => *granted,
            Self::Env(names) => {
                let variables = scope.variables.borrow();
                names.iter().any(|name| variables.get(name).is_some())
            }
            Self::Method(names) => names.iter().any(|name| {
                name == request.method || (request.method == b"HEAD" && name == b"GET")
            }),
            Self::Expression(condition) => expression::holds(condition, scope).await?,
            Self::Network(networks) => {
                let client = request.client.to_canonical();
                networks.iter().any(|network| network.contains(&client))
            }
            Self::Local => {
                let client = request.client.to_canonical();
                client.is_loopback() || client == request.server.to_canonical()
            }
            Self::Host => false,
            Self::ValidUser | Self::User(_) | Self::Group(_) => {
                let Some(UserTold::Known { name, groups }) = who else {
                    return Ok(Verdict::DeniedNobody);
                };
                match self {
                    Self::User(names) => names.contains(name),
                    Self::Group(wanted) => groups.iter().any(|group| wanted.contains(group)),
                    _ => true,
                }
            }
        };
        Ok(if holds {
            Verdict::Granted
        } else {
            Verdict::Denied
        })
    }
}

/// Whether the request may have what it asks for.
///
/// # Errors
/// The reply to one that may not.
pub(crate) async fn admit(settings: &Settings, scope: &Scope<'_>) -> Result<(), Stop> {
    if settings.tls_only && !scope.request.is_tls {
        return Err(Stop::new(403, "htaccess_denied"));
    }
    let hosts = settings.hosts.as_deref();
    let admits = hosts.is_none_or(|hosts| hosts.admits(scope));
    let any_will_do = hosts.is_some_and(|hosts| hosts.any_will_do(scope.request.method));
    match (admits, any_will_do) {
        (true, true) => Ok(()),
        (false, false) => Err(Stop::new(403, "htaccess_denied")),
        _ => require(settings, scope).await,
    }
}

async fn require(settings: &Settings, scope: &Scope<'_>) -> Result<(), Stop> {
    let Some(requirement) = &settings.require else {
        // A kind of authentication may well stand where nothing requires it.
        return Ok(());
    };
    match requirement.verdict(true, &None, scope).await? {
        Verdict::Granted => return Ok(()),
        Verdict::Denied | Verdict::Neutral => return Err(Stop::new(403, "htaccess_denied")),
        Verdict::DeniedNobody => {}
    }
    let auth = &settings.auth;
    let (Some(true), Some(realm), Some(user_file)) = (auth.kind, &auth.realm, &auth.user_file)
    else {
        return Err(Stop::new(500, "htaccess_auth"));
    };
    let asks_for_groups = requirement.asks_for_groups();
    if asks_for_groups && auth.group_file.is_none() {
        return Err(Stop::new(500, "htaccess_auth"));
    }
    let question = Question::User {
        realm: realm.clone(),
        user_file: user_file.clone(),
        group_file: auth.group_file.clone().filter(|_| asks_for_groups),
    };
    let told = scope.asker.user(question).await;
    match &told {
        UserTold::Nobody => return Err(Stop::new(401, "htaccess_auth_required")),
        UserTold::Unreadable => return Err(Stop::new(500, "htaccess_auth")),
        UserTold::Known { name, .. } => {
            scope.user.replace(Some(name.clone()));
        }
    }
    match requirement.verdict(true, &Some(told), scope).await? {
        Verdict::Granted => Ok(()),
        _ if auth.forbids_on_failure == Some(true) => Err(Stop::new(403, "htaccess_denied")),
        _ => Err(Stop::new(401, "htaccess_auth_required")),
    }
}

/// A network as Apache writes it: `10.1`, `10.1.0.0/16`, `10.1.0.0/255.255.0.0`, `2001:db8::/32`.
pub fn network(text: &[u8]) -> Option<IpNet> {
    let text = std::str::from_utf8(text).ok()?;
    let (address, mask) = match text.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (text, None),
    };
    let (address, parts): (IpAddr, u8) = match address.parse::<IpAddr>() {
        Ok(address) => (address, 4),
        Err(_) => beginning(address)?,
    };
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let bits = match mask {
        None if parts < 4 => parts * 8,
        None => whole,
        Some(mask) if mask.contains('.') => {
            Ipv4Net::with_netmask([0, 0, 0, 0].into(), mask.parse().ok()?)
                .ok()?
                .prefix_len()
        }
        Some(mask) => mask.parse().ok()?,
    };
    let network = IpNet::new(address, bits).ok()?.trunc();
    Some(network)
}

/// `10.1` or `10.1.`: the first parts of an address of IPv4.
fn beginning(text: &str) -> Option<(IpAddr, u8)> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut bytes = [0u8; 4];
    let mut count = 0u8;
    for part in text.split('.') {
        *bytes.get_mut(usize::from(count))? = part.parse().ok()?;
        count += 1;
    }
    (count < 4).then_some((IpAddr::from(bytes), count))
}
