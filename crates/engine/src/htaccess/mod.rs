//! `.htaccess` files: after a path is known and before the site's rules, what the files above it
//! say of the request.
//!
//! A path without files has what its virtual host says. [`obey`] goes round until the path stands, or
//! was sent elsewhere [`REDIRECTS_MAX`] times: the files that hold for the path are found (`walk`,
//! `cache`), asked for a decision, and answered what they want to know (`answers`); what that comes to
//! is judged (`judged`). They answer the request, send it elsewhere inside, or leave behind what those
//! need who go on with it ([`Applied`]). Access is decided for every path on the way.
//! Whom the site keeps out has nothing of them, and its rates count whom they answer. Sites without
//! them pay one look.

mod answers;
pub(crate) mod applied;
pub(crate) mod cache;
pub(crate) mod documents;
pub mod explain;
pub(crate) mod facts;
pub(crate) mod head;
mod judged;
mod looks;
pub(crate) mod proofs;
mod proving;
pub mod survey;
pub(crate) mod walk;

use std::cell::Cell;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use config::model::{Handler, SiteHtaccess};
use htaccess::{Civil, Decision, Ending, Explain, FileFacts, Program, REDIRECTS_MAX, decide};

use self::applied::Applied;
use self::cache::KnownChain;
use self::facts::{Carried, Facts, ToldRequest, ToldSite, root_name};
use self::judged::{Judged, Onward, other_file};
use self::proving::Proving;
use self::walk::{Landing, Walk, Walked};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::reply::BodySize;
use crate::reply_head;
use crate::resolve;
use crate::resolve::resolved::relative_of;
use crate::rules;
use crate::scripts::Next;
use crate::site_log::{self, Audience};
use crate::stage::Routed;
use crate::tree::Tree;

/// Paths of one request: each that it is sent to, and a directory's page at each.
const PATHS_MAX: usize = 2 * (REDIRECTS_MAX + 1);

/// Has the site's files say what they want of the request.
///
/// # Errors
/// What they refuse, or what keeps them from being read: nothing is served then.
pub(crate) async fn obey(routed: Routed<'_>, exchange: &mut Exchange) -> Result<Next> {
    match &routed.site.htaccess {
        None => Ok(Next::On),
        // Boxed: few sites have them, and the others need not have room for it.
        Some(files) => Box::pin(admitted(routed, files, exchange)).await,
    }
}

/// Asks files of those alone whom the site lets in whatever they say, and has the site's rates count
/// those whom they answer.
async fn admitted(
    routed: Routed<'_>,
    files: &Arc<SiteHtaccess>,
    exchange: &mut Exchange,
) -> Result<Next> {
    let noted = exchange.route.noted();
    rules::admit_to_files(routed, exchange).await?;
    let outcome = go_round(routed, files, exchange).await;
    match &outcome {
        // Its rules are chosen once its file is known.
        Ok(Next::On) => exchange.route.take_back(noted),
        Err(error) if matches!(error.kind, Kind::Refused(_)) => {
            rules::charge_for_files(routed, exchange).await?;
        }
        _ => {}
    }
    outcome
}

async fn go_round(
    routed: Routed<'_>,
    files: &Arc<SiteHtaccess>,
    exchange: &mut Exchange,
) -> Result<Next> {
    // What was found out of another path, that it came by, is no matter.
    exchange.request.server_env.clear();
    let carried = exchange.route.carried.take();
    let mut carried = carried.map_or_else(Carried::default, |it| *it);
    // What was said of the path whose page is looked at: that answers where the page is refused.
    let mut outer: Option<(Decision, Facts)> = None;
    let mut redirects = 0;
    for round in 0..PATHS_MAX {
        let tree = resolve::find_tree(routed, exchange);
        let path = exchange.route.lookup_path(&exchange.request).to_vec();
        let (landing, known) = find((routed, files), exchange, (tree, &path)).await?;
        let has_files = !known.chain.levels().is_empty();
        if !has_files && carried.is_empty() {
            let Some(tree) = tree else {
                return Ok(Next::On);
            };
            let other = other_file((routed, tree), exchange, &landing).await?;
            let Some((path, file)) = other else {
                return Ok(Next::On);
            };
            lead_to(routed, exchange, &path, None)?;
            exchange.route.file = Some(file);
            continue;
        }
        let fields = [take(&mut carried.cookies), take(&mut carried.vary)];
        let facts = facts_of((routed, tree), exchange, (&path, &landing, &known), carried);
        let mut decision = ask((routed, exchange), &known, &facts, landing.seen).await?;
        Carried::hand_on(fields, &mut decision);
        note_server_env(routed, exchange, &mut decision, &facts)?;
        let mut judged = Judged {
            routed,
            files,
            tree,
            landing: &landing,
            decision: &mut decision,
            facts: &facts,
        };
        let step = judged.step(exchange, &known).await;
        match step {
            Ok(Onward::Elsewhere(path, file, next)) => {
                lead_to(routed, exchange, &path, Some(decision.query.as_deref()))?;
                exchange.route.file = file;
                let is_page = next.page_of.is_some();
                carried = next.after_failure(exchange.route.failed_status)?;
                // As with Apache there is no page of a directory after the last time, either.
                if redirects == REDIRECTS_MAX || round + 1 == PATHS_MAX {
                    note(exchange, Applied::new(decision, facts, files));
                    break;
                }
                redirects += usize::from(!is_page);
                if !is_page || facts.page_of.is_none() {
                    outer = is_page.then_some((decision, facts));
                }
            }
            Ok(Onward::Answer(status, location)) => {
                let applied = Applied::new(decision, facts, files);
                return answer_as_said(routed, exchange, applied, (status, &location)).await;
            }
            Ok(Onward::Settled) => return settle(files, exchange, decision, facts),
            Err(error) => {
                let (decision, facts) = answering(outer, (decision, facts));
                note(exchange, Applied::new(decision, facts, files));
                return Err(error);
            }
        }
    }
    Err(Error::new(Kind::Refused(500), "htaccess_loop", looped()))
}

/// What is told of a request that comes to no end.
fn looped() -> String {
    format!("its files have sent it elsewhere {REDIRECTS_MAX} times")
}

/// What was said of the path that answers for a refusal: where the page of another is refused, that.
fn answering(outer: Option<(Decision, Facts)>, own: (Decision, Facts)) -> (Decision, Facts) {
    match outer.filter(|_| own.1.page_of.is_some()) {
        Some((mut decision, facts)) => {
            decision.cookies = own.0.cookies;
            (decision, facts)
        }
        None => own,
    }
}

/// What files say of a page of a directory that is not there.
async fn of_missing_page(
    (routed, files): (Routed<'_>, &Arc<SiteHtaccess>),
    exchange: &mut Exchange,
    path: &[u8],
    carried: Carried,
) -> Result<Decision> {
    let tree = routed.site.tree_of(path);
    let (landing, known) = walk((routed, files), (tree, path)).await?;
    let facts = facts_of((routed, tree), exchange, (path, &landing, &known), carried);
    ask((routed, exchange), &known, &facts, landing.seen).await
}

/// Finds the files that hold for the request's path; all of that may be known, and its file as well.
async fn find(
    (routed, files): (Routed<'_>, &Arc<SiteHtaccess>),
    exchange: &mut Exchange,
    (tree, path): (Option<&Tree>, &[u8]),
) -> Result<(Landing, Arc<KnownChain>)> {
    let proving = tree.and_then(|tree| Proving::new(routed, tree, path));
    if let Some((file, landing, known)) = proving.as_ref().and_then(Proving::known) {
        tell_once(routed, &known);
        exchange.route.file = Some(file);
        return Ok((landing, known));
    }
    let looked = proving.as_ref().and_then(Proving::look);
    let (landing, known) = walk((routed, files), (tree, path)).await?;
    if let (Some(proving), Some(looked)) = (proving, looked) {
        proving.keep(looked, (&landing, &known));
    }
    Ok((landing, known))
}

/// Finds the files that hold for a path.
async fn walk(
    (routed, files): (Routed<'_>, &Arc<SiteHtaccess>),
    (tree, path): (Option<&Tree>, &[u8]),
) -> Result<(Landing, Arc<KnownChain>)> {
    let below = tree.map_or(Some(path), |tree| tree.below(path));
    let relative = relative_of(below.unwrap_or_default());
    let walk = Walk {
        programs: Arc::clone(&routed.worker.shared.htaccess),
        most_bytes: routed.serving.generation.process.htaccess_cached_bytes,
        tenant: Arc::clone(&routed.site.tenant_name),
        site: Arc::clone(&routed.site.name),
        files: Arc::clone(files),
        root_name: tree.map(|tree| root_name(&tree.root)).unwrap_or_default(),
        relative: relative.to_vec(),
    };
    let walked = match tree {
        Some(tree) => resolve::ask(routed, tree, move |root, wait| walk.look(root, wait)).await?,
        None => walk.outside(),
    };
    match walked {
        Walked::Known(landing, known) => {
            tell_once(routed, &known);
            Ok((landing, known))
        }
        Walked::Refused(file, reason) => {
            let file = String::from_utf8_lossy(&file).into_owned();
            let kind = Kind::Refused(walk::status_of(reason));
            Err(Error::new(kind, reason, file))
        }
    }
}

fn tell_once(routed: Routed<'_>, known: &KnownChain) {
    if !known.is_told.load(Relaxed) {
        known.is_told.store(tell(routed, known), Relaxed);
    }
}

/// Tells the site's tenant, where that has a log, what of files is not obeyed and was not told before.
/// Whoever has many such lines is told the rest at a later request: then this is not all.
fn tell(routed: Routed<'_>, known: &KnownChain) -> bool {
    let (site, index) = (&*routed.site.name, routed.site_index);
    let programs = &routed.worker.shared.htaccess;
    let whose = (&*routed.site.tenant_name, site);
    let has_pool = has_pool(routed);
    let is_due = || routed.serving.stderr.is_due(index, Instant::now());
    for (directory, shared) in known.files() {
        let program = &shared.program;
        let lines = program.problems.len() + usize::from(program.sets_php() && !has_pool);
        let before = programs.told(whose, shared);
        let mut told = before;
        while told < lines && is_due() {
            let file = [directory, walk::NAME].concat();
            let (logs, page) = (&routed.serving.generation.logs, &routed.worker.access_log);
            let say = || tell_line(site, &String::from_utf8_lossy(&file), program, told);
            site_log::tell(logs, page, Some(site), Audience::Tenant, &say);
            told += 1;
        }
        if told > before {
            programs.note_told(whose, shared, told);
        }
        if told < lines {
            return false;
        }
    }
    true
}

/// Tells of one line of a file, or, after the last one, of its settings of PHP.
fn tell_line(site: &str, file: &str, program: &Program, number: usize) {
    match program.problems.get(number) {
        Some(it) => tracing::warn!(
            site,
            file,
            line = it.line,
            reason = it.reason,
            refuses = it.refuses,
            detail = &*it.text,
            "a line of a .htaccess file is not obeyed"
        ),
        None => tracing::warn!(
            site,
            file,
            reason = "htaccess_php",
            "settings of PHP in a .htaccess file are not obeyed: php-fpm that others run would keep them"
        ),
    }
}

/// Whether pages of the site run in a pool, whose processes are told settings of PHP.
fn has_pool(routed: Routed<'_>) -> bool {
    if routed
        .site
        .row
        .as_ref()
        .is_some_and(|row| row.pool.is_some())
    {
        return true;
    }
    let pools = &routed.serving.generation.program_pools;
    let rules = routed.site.rules.iter();
    let mut pools_of = rules.filter_map(|rule| pools.get(rule.handler.as_ref()?.pool()?));
    pools_of.any(|pool| pool.php_socket.is_some())
}

/// Asks the files what they want.
async fn ask(
    (routed, exchange): (Routed<'_>, &mut Exchange),
    known: &KnownChain,
    facts: &Facts,
    seen: Option<FileFacts>,
) -> Result<Decision> {
    let (fields, hosts) = (facts.pairs(), [&*facts.host, &*facts.site]);
    let told = facts.told(&fields, &hosts);
    let progress = decide(&known.chain, &told, Explain::No);
    answers::finish(routed, exchange, progress, (&facts.filename, seen)).await
}

fn facts_of(
    (routed, tree): (Routed<'_>, Option<&Tree>),
    exchange: &Exchange,
    (path, landing, known): (&[u8], &Landing, &Arc<KnownChain>),
    carried: Carried,
) -> Facts {
    let (request, site) = (&exchange.request, routed.site);
    let is_same = request.client == request.peer.address.ip();
    let port = request.peer.address.port();
    let asked = ToldRequest {
        head: &request.head,
        uri: path,
        query: request.head.query(),
        is_tls: request.scheme_word() == b"https",
        port: request.port_of_url(),
        listener_port: request.port(),
        client: request.client,
        client_port: if is_same { port } else { 0 },
        peer: request.peer.address.ip(),
        server: request.peer.local_ip,
        now: now(routed.worker.clock.unix_s()),
    };
    let own = site.trees().last().filter(|it| it.path.is_empty());
    let told = ToldSite {
        name: &site.name,
        files: &site.files,
        tree: tree.map(|tree| (&*tree.path, &tree.root)),
        root: own.map(|tree| &tree.root),
        has_cgi: has_cgi(site.rules.iter().map(|rule| rule.handler.as_ref())),
    };
    Facts {
        known: Some(Arc::clone(known)),
        ..Facts::new(&asked, &told, landing, carried)
    }
}

/// Whether one of these runs CGI programs.
fn has_cgi<'h>(mut handlers: impl Iterator<Item = Option<&'h Handler>>) -> bool {
    handlers.any(|handler| matches!(handler, Some(Handler::Cgi(_))))
}

/// The time, on the machine's clock. It is worked out once a second.
fn now(unix_s: u64) -> Civil {
    thread_local! {
        static LAST: Cell<(u64, Civil)> = Cell::default();
    }
    let (last_s, last) = LAST.get();
    if last_s == unix_s {
        return last;
    }
    let now = civil(unix_s);
    LAST.set((unix_s, now));
    now
}

fn civil(unix_s: u64) -> Civil {
    let epoch_s = i64::try_from(unix_s).unwrap_or(i64::MAX);
    let Ok(now) = jiff::Timestamp::from_second(epoch_s) else {
        return Civil::default();
    };
    let now = now.to_zoned(jiff::tz::TimeZone::system());
    let small = |number: i8| u8::try_from(number).unwrap_or_default();
    Civil {
        year: i32::from(now.year()),
        month: small(now.month()),
        day: small(now.day()),
        hour: small(now.hour()),
        minute: small(now.minute()),
        second: small(now.second()),
        weekday: small(now.weekday().to_sunday_zero_offset()),
        epoch_s,
    }
}

/// Notes variables that rules of the virtual host have set, with the path that they have come to.
fn note_server_env(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    decision: &mut Decision,
    facts: &Facts,
) -> Result<()> {
    let path = match &decision.ending {
        Ending::Rewritten(path) if decision.is_translated => path,
        _ => &facts.uri,
    };
    for name in take(&mut decision.server_env) {
        let path = wire::canonical_path(path, routed.site.path_rules)?;
        exchange.request.server_env.insert(name, path);
    }
    Ok(())
}

/// Has the request's file looked for at another path of the site, with another query where there is
/// one.
fn lead_to(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    path: &[u8],
    query: Option<Option<&[u8]>>,
) -> Result<()> {
    let path = wire::canonical_path(path, routed.site.path_rules)?;
    if let Some(query) = query {
        rewrite_query(exchange, query)?;
    }
    exchange.route.look_up(path);
    Ok(())
}

/// Has the request ask with this query, in which bytes that rules have taken out of a path are
/// escaped as clients do it.
fn rewrite_query(exchange: &mut Exchange, query: Option<&[u8]>) -> Result<()> {
    let head = &mut exchange.request.head;
    if head.query() != query {
        let escaped = query.map(wire::escaped_query);
        head.rewrite_query(escaped.as_deref())?;
    }
    Ok(())
}

fn note(exchange: &mut Exchange, applied: Applied) {
    exchange.route.htaccess = Some(Box::new(applied));
}

/// Answers as was said of a path, unless it is that of a failure's page.
async fn answer_as_said(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    mut applied: Applied,
    (status, location): (u16, &[u8]),
) -> Result<Next> {
    let is_by_rule = applied.decision.is_by_rule;
    // What is sent elsewhere has no page that `Header` without `always` would be about.
    applied.is_own_error = true;
    note(exchange, applied);
    // As in Apache a failure stands whose page is none, unless a rule leads away from it.
    if exchange.route.failed_status != 0 && !is_by_rule {
        return Err(Error::refused(status, "htaccess_page"));
    }
    rules::charge_for_files(routed, exchange).await?;
    answer_at_once(routed, exchange, status, location).await
}

/// Sends the client elsewhere, or answers with a status alone.
async fn answer_at_once(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    status: u16,
    location: &[u8],
) -> Result<Next> {
    if !wire::field_value_ok(location) {
        return Err(Error::refused(400, "redirect_target"));
    }
    exchange.record.handler = "redirect";
    exchange.outgoing.status = status;
    if !location.is_empty() {
        exchange.outgoing.fields.push(b"Location", location);
    }
    match status {
        204 => reply_head::send(*routed, exchange, BodySize::None).await?,
        _ => reply_head::answer(*routed, exchange, b"").await?,
    }
    Ok(Next::Answered)
}

/// The path stands: what was said is left to those who go on.
fn settle(
    files: &SiteHtaccess,
    exchange: &mut Exchange,
    decision: Decision,
    facts: Facts,
) -> Result<Next> {
    let applied = Applied::new(decision, facts, files);
    let decision = &applied.decision;
    // Who has proven a name for another path has none for one that asks for none, but for its page.
    if decision.user.is_some() || applied.facts.page_of.is_none() {
        let user = decision.user.as_deref().map(String::from_utf8_lossy);
        exchange.record.user = user.unwrap_or_default().into_owned();
    }
    rewrite_query(exchange, decision.query.as_deref())?;
    let has_more = applied.refuses_path_info() && !applied.facts.path_info.is_empty();
    note(exchange, applied);
    match has_more {
        true => Err(Error::refused(404, "path_info")),
        false => Ok(Next::On),
    }
}
