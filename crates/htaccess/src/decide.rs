//! What the files above a path want for one request.
//!
//! In Apache's order: what holds is merged, the virtual host rewrites and redirects, variables are set
//! by what is asked, access is decided,
//! then the innermost set of rules is gone through, then redirects, then variables that are set
//! whatever is asked. Access is decided for every path, before rules change it and after, unless what
//! decides is the same for both.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::access;
use crate::chain::{AccessGround, Chain};
use crate::evaluation::{self, Progress};
use crate::expression;
use crate::pattern::{Groups, substituted};
use crate::redirect;
use crate::request::{RequestFacts, Stop, Variables};
use crate::rewrite::{self, RewriteResult};
use crate::settings::{EnvCondition, EnvTest, Settings};
use crate::types::is_handler;
use crate::variable::Scope;
use crate::work::LINE_STEPS;

/// Times that one request may begin anew with another path.
pub const REDIRECTS_MAX: usize = 10;

/// What the files want.
#[derive(Debug)]
pub struct Decision {
    /// Whether and where the request goes on.
    pub ending: Ending,
    /// All that holds for it.
    pub settings: Arc<Settings>,
    /// Its variables, those it had before with them.
    pub variables: Variables,
    /// Its query, which rules may have changed.
    pub query: Option<Vec<u8>>,
    /// Who asks, where that was found out.
    pub user: Option<Vec<u8>>,
    /// By what access was decided, where it was.
    pub ground: Option<AccessGround>,
    /// Fields of the request that made a difference: for `Vary`.
    pub vary: Vec<Vec<u8>>,
    /// Values of `Set-Cookie` for the reply.
    pub cookies: Vec<Vec<u8>>,
    /// The media type that a rule says the file has.
    pub media_type: Option<Vec<u8>>,
    /// The handler that a rule says.
    pub handler: Option<Vec<u8>>,
    /// Whether a rule answers, or sends the client elsewhere.
    pub is_by_rule: bool,
    /// Whether a rule has led to a path that no file holds for, as nobody could ask for it.
    pub leads_nowhere: bool,
    /// Whether a rule with `END` was met.
    pub has_ended: bool,
    /// Variables that rules of the virtual host have set for this path.
    pub server_env: BTreeSet<Vec<u8>>,
    /// Steps that were taken for the request so far.
    pub spent: u64,
    /// Whether the path it goes on with is what the rules of the virtual host have made of this one.
    pub is_translated: bool,
    /// The explanation, where one was asked for.
    pub trace: Vec<Traced>,
}

/// Whether and where a request goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It goes on as it is.
    GoOn,
    /// It begins anew, with this path and the decision's query.
    Rewritten(Vec<u8>),
    /// The client is sent elsewhere.
    Redirect {
        /// The status, 300 to 399.
        status: u16,
        /// The URL.
        location: Vec<u8>,
    },
    /// It is answered with this; a 401 asks for the realm of the settings.
    Status(Stop),
}

/// A line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// The directory whose file it stands in.
    pub directory: Option<Arc<[u8]>>,
    /// The line of the file.
    pub line: u32,
    /// What came of it.
    pub text: String,
}

/// Whether anybody wants to know why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explain {
    /// Nobody.
    No,
    /// Every line that was looked at is told.
    Yes,
}

/// Says what the files of a chain want for a request.
pub fn decide<'a>(
    chain: &'a Chain,
    request: &'a RequestFacts<'a>,
    explain: Explain,
) -> Progress<'a, Decision> {
    evaluation::begin(request.spent, move |asker| async move {
        if explain == Explain::Yes {
            asker.explain();
        }
        let scope = Scope::new(request, asker);
        let mut decision = Decision {
            ending: Ending::GoOn,
            settings: Arc::default(),
            variables: Variables::default(),
            query: None,
            user: None,
            ground: None,
            vary: Vec::new(),
            cookies: Vec::new(),
            media_type: None,
            handler: None,
            is_by_rule: false,
            leads_nowhere: false,
            has_ended: request.has_ended,
            server_env: BTreeSet::new(),
            spent: 0,
            is_translated: false,
            trace: Vec::new(),
        };
        let stopped = |stop: Stop| Ending::Status(stop.below(scope.asker.directory().as_ref()));
        match chain.settings(&scope).await {
            Ok(settings) => {
                let ground = chain.ground(scope.sections.take());
                let ending = go(&settings, (ground, &mut decision), &scope).await;
                decision.ending = ending.unwrap_or_else(stopped);
                if !decision.leads_nowhere {
                    decision.settings = settings;
                }
            }
            Err(stop) => decision.ending = stopped(stop),
        }
        decision.trace = scope.asker.traced();
        decision.spent = scope.asker.work().spent();
        decision.variables = scope.variables.take();
        decision.query = scope.query.take();
        decision.user = scope.user.take();
        decision
    })
}

async fn go(
    settings: &Settings,
    (ground, decision): (AccessGround, &mut Decision),
    scope: &Scope<'_>,
) -> Result<Ending, Stop> {
    if let Some(fault) = &settings.fault {
        return Err(fault.clone());
    }
    let had_ended = std::mem::replace(&mut decision.has_ended, false);
    let ending = match scope.request.is_translated {
        true => None,
        false => translate(settings, decision, scope).await?,
    };
    let ends = std::mem::replace(&mut decision.has_ended, had_ended);
    decision.has_ended |= ends;
    if let Some(ending) = ending {
        return Ok(ending);
    }
    for condition in &settings.env_conditions {
        scope.asker.spend(LINE_STEPS)?;
        scope.asker.enter(condition.directory.as_ref());
        let set = condition.set(scope).await;
        set.map_err(|stop| stop.at(condition.line, "SetEnvIf"))?;
    }
    admit(settings, (ground, &mut *decision), scope).await?;
    let follows = settings.options.over(scope.request.options).follows();
    let passed = rewrite::run(&settings.rewrite, (follows, ends), scope).await?;
    decision.has_ended |= passed.has_ended;
    decision.media_type = passed.media_type;
    decision.handler = passed.handler.map(|name| name.to_ascii_lowercase());
    if let Some(name) = &decision.handler
        && !is_handler(&String::from_utf8_lossy(name))
    {
        return Err(Stop::new(403, "htaccess_refused"));
    }
    decision.vary.extend(passed.vary);
    decision.cookies.extend(passed.cookies);
    match passed.result {
        RewriteResult::Status(status) => {
            decision.is_by_rule = true;
            return Err(Stop::new(status, "htaccess_rule").at(passed.line, "RewriteRule"));
        }
        RewriteResult::Nowhere(status) => {
            decision.leads_nowhere = true;
            return Err(Stop::new(status, "htaccess_rule"));
        }
        RewriteResult::Redirect(status, location) => {
            decision.is_by_rule = true;
            return Ok(Ending::Redirect { status, location });
        }
        RewriteResult::Same | RewriteResult::Path(_) => {}
    }
    if let Some(found) = redirect::first(&settings.redirects, scope).await? {
        return redirected(found);
    }
    set_env(settings, scope)?;
    // A directory that lacks its slash is sent there first.
    let request = scope.request;
    let lacks_slash = request.is_directory && !request.uri.ends_with(b"/");
    if let RewriteResult::Path(path) = passed.result
        && !(lacks_slash && settings.slash != Some(false))
    {
        scope.query.replace(passed.query);
        return Ok(Ending::Rewritten(path));
    }
    Ok(Ending::GoOn)
}

/// Decides about access, unless that was done on the same ground for the path before.
async fn admit(
    settings: &Settings,
    (ground, decision): (AccessGround, &mut Decision),
    scope: &Scope<'_>,
) -> Result<(), Stop> {
    let admitted = match scope.request.decided {
        Some((before, user)) if *before == ground => {
            scope.user.replace(user.map(<[u8]>::to_vec));
            Ok(())
        }
        _ => access::admit(settings, scope).await,
    };
    if admitted
        .as_ref()
        .map_or_else(|stop| [401, 403].contains(&stop.status), |()| true)
    {
        decision.ground = Some(ground);
    }
    admitted
}

/// What a redirect comes to, or a status in its place.
fn redirected((status, location): (u16, Option<Vec<u8>>)) -> Result<Ending, Stop> {
    match location {
        Some(location) => Ok(Ending::Redirect { status, location }),
        None => Err(Stop::new(status, "htaccess_redirect")),
    }
}

/// Goes through the rules and redirects of the virtual host, which know its own variables and no directory.
async fn translate(
    settings: &Settings,
    decision: &mut Decision,
    scope: &Scope<'_>,
) -> Result<Option<Ending>, Stop> {
    let lines = &settings.server_rewrite;
    let Some(server) = &lines.directory else {
        let found = redirect::first(&settings.server_redirects, scope).await?;
        return found.map(redirected).transpose();
    };
    let is_own = |place: &Option<Arc<[u8]>>| matches!(place, Some(it) if Arc::ptr_eq(it, server));
    let conditions = settings.env_conditions.iter();
    for condition in conditions.filter(|it| is_own(&it.directory)) {
        scope.asker.spend(LINE_STEPS)?;
        scope.asker.enter(condition.directory.as_ref());
        let set = condition.set(scope).await;
        set.map_err(|stop| stop.at(condition.line, "SetEnvIf"))?;
    }
    let passed = rewrite::translate(lines, scope).await?;
    decision.has_ended |= passed.has_ended;
    decision.server_env = passed.server_env;
    decision.vary = passed.vary;
    decision.cookies = passed.cookies;
    match passed.result {
        RewriteResult::Same => {
            let found = redirect::first(&settings.server_redirects, scope).await?;
            found.map(redirected).transpose()
        }
        RewriteResult::Status(status) | RewriteResult::Nowhere(status) => {
            decision.is_by_rule = true;
            Err(Stop::new(status, "htaccess_rule").at(passed.line, "RewriteRule"))
        }
        RewriteResult::Redirect(status, location) => {
            decision.is_by_rule = true;
            Ok(Some(Ending::Redirect { status, location }))
        }
        RewriteResult::Path(path) => {
            decision.is_translated = true;
            scope.query.replace(passed.query);
            Ok(Some(Ending::Rewritten(path)))
        }
    }
}

fn set_env(settings: &Settings, scope: &Scope<'_>) -> Result<(), Stop> {
    // One that is taken away was set further out; what was set by what is asked stays.
    let set = settings
        .env
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for (name, value) in set {
        scope.set_for_programs(name, value)?;
    }
    Ok(())
}

impl EnvCondition {
    async fn set(&self, scope: &Scope<'_>) -> Result<(), Stop> {
        let groups = match &self.test {
            EnvTest::Named(name, pattern) => scope.matched(pattern, &named(name, scope)?)?,
            EnvTest::Field(names, pattern) => {
                let mut value: &[u8] = b"";
                for (name, found) in scope.request.fields {
                    if scope.is_match(names, name)? {
                        value = found;
                    }
                }
                scope.matched(pattern, value)?
            }
            EnvTest::Expression(condition) => {
                scope.groups.take();
                let holds = expression::holds(condition, scope).await?;
                holds.then(|| scope.groups.take())
            }
        };
        let groups: Groups = match groups {
            Some(groups) => groups,
            None => return Ok(()),
        };
        for (name, value) in &self.sets {
            let value = value.as_ref().map(|value| substituted(value, &groups));
            scope.set_variable(name, value.transpose()?.as_deref())?;
        }
        Ok(())
    }
}

/// What `SetEnvIf` looks at by a name.
fn named(name: &[u8], scope: &Scope<'_>) -> Result<Vec<u8>, Stop> {
    let request = scope.request;
    Ok(match name.to_ascii_lowercase().as_slice() {
        b"remote_addr" | b"remote_host" => request.client.to_canonical().to_string().into_bytes(),
        b"server_addr" => request.server.to_canonical().to_string().into_bytes(),
        b"request_uri" => request.uri.to_vec(),
        b"request_method" => request.method.to_vec(),
        b"request_protocol" => request.protocol.into(),
        // Nobody has said yet who asks.
        b"remote_user" => Vec::new(),
        _ => match scope.field_apart(name)? {
            Some(value) => value,
            None => scope.variable(name)?.unwrap_or_default(),
        },
    })
}
