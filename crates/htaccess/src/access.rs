//! Who may have something: `Order`, `Allow` and `Deny` of 2.2, `Require` of 2.4, and both together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

use crate::evaluation::{Question, UserTold};
use crate::expression::{self, Condition};
use crate::request::Stop;
use crate::settings::Settings;
use crate::variable::Scope;
use crate::work::LINE_STEPS;

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

    fn steps(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Only(names) | Self::Except(names) => 1 + names.len() / 4,
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
    /// Where the first of them stands.
    pub(crate) line: u32,
    pub(crate) orders: Vec<(Methods, LastWord)>,
    pub(crate) allows: Vec<(Methods, Origin)>,
    pub(crate) denies: Vec<(Methods, Origin)>,
    /// Whether either will do, the address or the name.
    pub(crate) satisfies_any: Vec<(Methods, bool)>,
}

impl HostLines {
    fn admits(&self, scope: &Scope<'_>) -> Result<bool, Stop> {
        let order = last(&self.orders, scope)?;
        Ok(match order.unwrap_or(LastWord::Allow) {
            LastWord::Deny | LastWord::Mutual => {
                hit(&self.allows, scope)? && !hit(&self.denies, scope)?
            }
            LastWord::Allow => hit(&self.allows, scope)? || !hit(&self.denies, scope)?,
        })
    }
}

/// The last of these lines that is about the method.
fn last<T: Copy>(lines: &[(Methods, T)], scope: &Scope<'_>) -> Result<Option<T>, Stop> {
    for (methods, said) in lines.iter().rev() {
        scope.asker.spend(methods.steps())?;
        if methods.cover(scope.request.method) {
            return Ok(Some(*said));
        }
    }
    Ok(None)
}

/// Whether the request comes from where one of these lines says.
fn hit(lines: &[(Methods, Origin)], scope: &Scope<'_>) -> Result<bool, Stop> {
    for (methods, origin) in lines {
        scope.asker.spend(methods.steps())?;
        if methods.cover(scope.request.method) && origin.holds(scope)? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Origin {
    fn holds(&self, scope: &Scope<'_>) -> Result<bool, Stop> {
        Ok(match self {
            Self::All => true,
            Self::Env(name) => scope.has_variable(name)?,
            Self::NoEnv(name) => !scope.has_variable(name)?,
            Self::Network(network) => network.contains(&scope.request.client.to_canonical()),
            Self::Host => false,
        })
    }
}

/// What is required.
#[derive(Debug)]
pub(crate) enum Requirement {
    Group(Group),
    /// The methods it is about, and whether it is `Require not`.
    Line(Methods, bool, Provider),
}

/// Requirements together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) all: bool,
    pub(crate) negated: bool,
    pub(crate) parts: Vec<Requirement>,
}

/// What one place requires, and how that goes with the places around it (`AuthMerging`).
#[derive(Debug, Clone)]
pub(crate) struct Required {
    /// Whether both must hold, or either will do.
    pub(crate) all: bool,
    pub(crate) requirement: Arc<Requirement>,
    /// Where the first line of it stands.
    pub(crate) line: u32,
    /// The directory whose file that is, once it is merged.
    pub(crate) directory: Option<Arc<[u8]>>,
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

/// What is found of a requirement; none of one that is not about the method.
type Found<'r> = Pin<Box<dyn Future<Output = Result<Option<Verdict>, Stop>> + 'r>>;

impl Verdict {
    /// What decides, whatever else is required.
    fn decisive(all: bool) -> Self {
        if all { Self::Denied } else { Self::Granted }
    }

    /// What a requirement that is not about the method counts for beside others.
    fn beside(all: bool) -> Self {
        if all { Self::Granted } else { Self::Neutral }
    }

    /// What this and another come to, where all must hold or any.
    fn join(self, next: Self, all: bool) -> Self {
        let decisive = Self::decisive(all);
        let yields = self == Self::Neutral
            || next == decisive
            || (next == Self::DeniedNobody && self != Self::DeniedNobody);
        match self != decisive && next != Self::Neutral && yields {
            true => next,
            false => self,
        }
    }
}

/// What the requirements of all places come to, from the outermost inwards.
async fn verdict(
    required: &[Required],
    who: &Option<UserTold>,
    scope: &Scope<'_>,
) -> Result<Verdict, Stop> {
    let mut found = None;
    for Required {
        all, requirement, ..
    } in required
    {
        let so_far = found.unwrap_or(Verdict::beside(*all));
        if so_far == Verdict::decisive(*all) {
            continue;
        }
        if let Some(next) = requirement.verdict(who, scope).await? {
            found = Some(so_far.join(next, *all));
        } else if found.is_some() {
            found = Some(so_far.join(Verdict::beside(*all), *all));
        }
    }
    Ok(found.unwrap_or(Verdict::Granted))
}

impl Requirement {
    fn asks_for_groups(&self) -> bool {
        match self {
            Self::Line(.., provider) => matches!(provider, Provider::Group(_)),
            Self::Group(group) => group.parts.iter().any(Self::asks_for_groups),
        }
    }

    /// As deep as sections may stand in each other.
    fn verdict<'r>(&'r self, who: &'r Option<UserTold>, scope: &'r Scope<'_>) -> Found<'r> {
        Box::pin(async move {
            let (negated, found) = match self {
                Self::Line(methods, negated, provider) => {
                    scope.asker.spend(LINE_STEPS + methods.steps())?;
                    if !methods.cover(scope.request.method) {
                        return Ok(None);
                    }
                    (*negated, Some(provider.verdict(who, scope).await?))
                }
                Self::Group(group) => (group.negated, group.verdict(who, scope).await?),
            };
            Ok(found.map(|found| match found {
                found if !negated => found,
                Verdict::Granted => Verdict::Denied,
                _ => Verdict::Neutral,
            }))
        })
    }
}

impl Group {
    async fn verdict(
        &self,
        who: &Option<UserTold>,
        scope: &Scope<'_>,
    ) -> Result<Option<Verdict>, Stop> {
        scope.asker.spend(LINE_STEPS)?;
        let (mut found, mut is_met) = (Verdict::Neutral, false);
        for part in &self.parts {
            let next = part.verdict(who, scope).await?;
            is_met |= next.is_some();
            found = found.join(next.unwrap_or(Verdict::beside(self.all)), self.all);
            if found == Verdict::decisive(self.all) {
                break;
            }
        }
        Ok(is_met.then_some(found))
    }
}

impl Provider {
    async fn verdict(&self, who: &Option<UserTold>, scope: &Scope<'_>) -> Result<Verdict, Stop> {
        let request = scope.request;
        let holds = match self {
            Self::All(granted) => *granted,
            Self::Env(names) => {
                let mut is_set = false;
                for name in names {
                    is_set |= scope.has_variable(name)?;
                }
                is_set
            }
            Self::Method(names) => {
                scope.asker.spend(names.len() / 8)?;
                names.iter().any(|name| {
                    name == request.method || (request.method == b"HEAD" && name == b"GET")
                })
            }
            Self::Expression(condition) => expression::holds(condition, scope).await?,
            Self::Network(networks) => {
                scope.asker.spend(networks.len() / 8)?;
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
                    Self::User(names) => {
                        scope.asker.spend(names.len() / 8)?;
                        names.contains(name)
                    }
                    Self::Group(wanted) => {
                        scope.asker.spend(groups.len() * wanted.len() / 8)?;
                        groups.iter().any(|group| wanted.contains(group))
                    }
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
        let mut stop = Stop::new(403, "htaccess_denied");
        "SSLRequireSSL".clone_into(&mut stop.text);
        return Err(stop);
    }
    let Some(hosts) = &settings.hosts else {
        return require(settings, scope).await;
    };
    let any_will_do = last(&hosts.satisfies_any, scope)? == Some(true);
    match (hosts.admits(scope)?, any_will_do) {
        (true, true) => Ok(()),
        (false, false) => {
            let stop = Stop::new(403, "htaccess_denied");
            let stop = stop.at(hosts.line, "Order, Allow and Deny");
            Err(stop.below(hosts.directory.as_ref()))
        }
        _ => require(settings, scope).await,
    }
}

async fn require(settings: &Settings, scope: &Scope<'_>) -> Result<(), Stop> {
    // A kind of authentication may well stand where nothing requires it.
    let required = &settings.require[..];
    let Some(innermost) = required.last() else {
        return Ok(());
    };
    let refused = |status: u16, reason: &'static str, why: &str| {
        let stop = Stop::new(status, reason).at(innermost.line, why);
        Err(stop.below(innermost.directory.as_ref()))
    };
    match verdict(required, &None, scope).await? {
        Verdict::Granted => return Ok(()),
        Verdict::Denied | Verdict::Neutral => return refused(403, "htaccess_denied", "Require"),
        Verdict::DeniedNobody => {}
    }
    let auth = &settings.auth;
    let (Some(true), Some(realm), Some(user_file)) = (auth.kind, &auth.realm, &auth.user_file)
    else {
        let why = "Require asks who it is: AuthType Basic, AuthName or AuthUserFile lacks";
        return refused(500, "htaccess_auth", why);
    };
    let mut all = required.iter();
    let asks_for_groups = all.any(|it| it.requirement.asks_for_groups());
    if asks_for_groups && auth.group_file.is_none() {
        return refused(500, "htaccess_auth", "Require group: AuthGroupFile lacks");
    }
    let question = Question::User {
        realm: realm.clone(),
        user_file: user_file.clone(),
        group_file: auth.group_file.clone().filter(|_| asks_for_groups),
    };
    let told = scope.asker.user(question).await?;
    match &told {
        UserTold::Nobody => return refused(401, "htaccess_auth_required", "Require"),
        UserTold::Unreadable(why) => return refused(500, "htaccess_auth", why),
        UserTold::Known { name, .. } => {
            scope.user.replace(Some(name.clone()));
        }
    }
    match verdict(required, &Some(told), scope).await? {
        Verdict::Granted => Ok(()),
        _ if auth.forbids_on_failure == Some(true) => refused(403, "htaccess_denied", "Require"),
        _ => refused(401, "htaccess_auth_required", "Require"),
    }
}

/// The addresses of a name that nobody need look up; none of other names.
pub(crate) fn networks_of_name(name: &[u8]) -> Option<[IpNet; 2]> {
    let own = [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::from(Ipv6Addr::LOCALHOST),
    ];
    name.eq_ignore_ascii_case(b"localhost")
        .then(|| own.map(IpNet::from))
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
