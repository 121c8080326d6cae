//! The head of a reply: `Header` with its two tables, and `Expires…`.
//!
//! What programs and files answer stands in one table, which only replies that are no errors of
//! the server's own have edited; the other goes with every reply.

use std::time::{Duration, UNIX_EPOCH};

use crate::decide::Decision;
use crate::evaluation::{self, Asker, Progress};
use crate::expression::{self, Condition};
use crate::pattern::Pattern;
use crate::request::{RequestFacts, Stop};
use crate::settings::{Age, Computed, Settings};
use crate::variable::Scope;
use crate::work::{LINE_STEPS, steps_of};

/// Names and values, in their order.
type FieldPairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The longest value that edits make.
const VALUE_BYTES_MAX: usize = 16 * 1024;
/// The last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;
/// Fields of a table.
const FIELDS_MAX: usize = 512;
/// Fields that say where a message ends, and whose connection it is.
const OURS: [&str; 7] = [
    "Connection",
    "Content-Length",
    "Keep-Alive",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Date",
];

/// The fields of a reply, in the tables that Apache has for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyTables {
    /// The status.
    pub status: u16,
    /// Whether it is an error that the server itself answers: only `always` is edited then.
    pub is_own_error: bool,
    /// Whether it is the page of an error, which `ErrorDocument` names.
    pub is_error_page: bool,
    /// What whoever answered has set.
    pub fields: FieldPairs,
    /// What goes with every reply, errors too.
    pub always: FieldPairs,
    /// When the file was changed, in seconds since 1970.
    pub changed_s: Option<i64>,
}

impl ReplyTables {
    /// The first value of a field, in either table.
    pub(crate) fn field(&self, name: &[u8]) -> Option<&[u8]> {
        let mut all = self.fields.iter().chain(&self.always);
        let found = all.find(|(have, _)| have.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }
}

/// One line of `Header` or `RequestHeader`.
#[derive(Debug)]
pub(crate) struct FieldEdit {
    pub(crate) line: u32,
    pub(crate) place: FieldTable,
    pub(crate) name: Vec<u8>,
    pub(crate) edit: Edit,
    pub(crate) when: When,
}

/// Which table a line edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldTable {
    Request,
    OnSuccess,
    Always,
}

/// What becomes of a field.
#[derive(Debug)]
pub(crate) enum Edit {
    Set(Computed),
    SetIfEmpty(Computed),
    Add(Computed),
    Append(Computed),
    Merge(Computed),
    Unset,
    /// Fields of the request whose names match are sent back.
    Echo(Pattern),
    /// The pattern, what replaces it, and whether everywhere.
    Replace(Pattern, Computed, bool),
}

/// Whether a line counts.
#[derive(Debug)]
pub(crate) enum When {
    Always,
    Env(Vec<u8>),
    NoEnv(Vec<u8>),
    Holds(Condition),
}

impl When {
    async fn holds(&self, scope: &Scope<'_>) -> Result<bool, Stop> {
        match self {
            Self::Always => Ok(true),
            Self::Env(name) => scope.has_variable(name),
            Self::NoEnv(name) => Ok(!scope.has_variable(name)?),
            Self::Holds(condition) => expression::holds(condition, scope).await,
        }
    }
}

/// Edits the head of a reply as the files of a decision say.
///
/// A value that would break out of its field is left out.
pub fn edit_reply<'a>(
    decision: &'a Decision,
    request: &'a RequestFacts<'a>,
    reply: ReplyTables,
) -> Progress<'a, Result<ReplyTables, Stop>> {
    evaluation::begin(decision.spent, move |asker| async move {
        let scope = decided(decision, request, asker);
        let mut reply = reply;
        let settings = &decision.settings;
        // Where to go is told for as long as a page, an error not at all, and what a program answers
        // is a page whatever its status.
        let is_error = match reply.is_own_error {
            true => reply.status >= 400,
            false => reply.is_error_page,
        };
        if !is_error {
            expire(settings, request.now.epoch_s, &mut reply);
        }
        scope.reply.replace(Some(reply.clone()));
        let mut always = std::mem::take(&mut reply.always);
        edit(settings, FieldTable::Always, &scope, &mut always).await?;
        if !reply.is_own_error {
            let mut fields = std::mem::take(&mut reply.fields);
            edit(settings, FieldTable::OnSuccess, &scope, &mut fields).await?;
            reply.fields = fields;
        }
        reply.always = always;
        Ok(reply)
    })
}

/// Edits the fields of a request as the files of a decision say.
///
/// A value that would break out of its field is left out.
pub fn edit_request<'a>(
    decision: &'a Decision,
    request: &'a RequestFacts<'a>,
    fields: FieldPairs,
) -> Progress<'a, Result<FieldPairs, Stop>> {
    evaluation::begin(decision.spent, move |asker| async move {
        let scope = decided(decision, request, asker);
        let mut fields = fields;
        let table = FieldTable::Request;
        edit(&decision.settings, table, &scope, &mut fields).await?;
        Ok(fields)
    })
}

/// What lines see of a request, once it is decided about.
fn decided<'a>(decision: &Decision, request: &'a RequestFacts<'a>, asker: Asker) -> Scope<'a> {
    let scope = Scope::new(request, asker);
    scope.variables.replace(decision.variables.clone());
    scope.user.replace(decision.user.clone());
    scope.query.replace(decision.query.clone());
    scope
}

/// Goes through the lines about one table.
pub(crate) async fn edit(
    settings: &Settings,
    place: FieldTable,
    scope: &Scope<'_>,
    fields: &mut FieldPairs,
) -> Result<(), Stop> {
    for line in settings.fields.iter().filter(|line| line.place == place) {
        let directory = line.directory.as_ref();
        scope.asker.enter(directory);
        scope.asker.spend(LINE_STEPS + fields.len() / 8)?;
        if line.when.holds(scope).await? {
            line.apply(scope, fields)
                .await
                .map_err(|stop| stop.at(line.line, "Header").below(directory))?;
        }
        if fields.len() > FIELDS_MAX {
            let stop = Stop::new(500, "htaccess_loop").at(line.line, "Header");
            return Err(stop.below(directory));
        }
    }
    Ok(())
}

/// Whether files may touch a field of this name.
pub(crate) fn may_be_edited(name: &[u8]) -> bool {
    !OURS
        .iter()
        .any(|ours| name.eq_ignore_ascii_case(ours.as_bytes()))
}

fn is_sendable(value: &[u8]) -> bool {
    let is_fine = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 127);
    value.len() <= VALUE_BYTES_MAX && value.iter().all(is_fine)
}

impl FieldEdit {
    async fn apply(&self, scope: &Scope<'_>, fields: &mut FieldPairs) -> Result<(), Stop> {
        let is_same = |(name, _): &(Vec<u8>, Vec<u8>)| name.eq_ignore_ascii_case(&self.name);
        let mut value = Vec::new();
        if let Edit::Set(text)
        | Edit::SetIfEmpty(text)
        | Edit::Add(text)
        | Edit::Append(text)
        | Edit::Merge(text)
        | Edit::Replace(_, text, _) = &self.edit
        {
            value = text.value(scope).await?;
            if !is_sendable(&value) {
                return Ok(());
            }
            scope.asker.spend(steps_of(value.len()))?;
        }
        let at = fields.iter().position(is_same);
        match &self.edit {
            Edit::Unset => fields.retain(|field| !is_same(field)),
            Edit::Set(_) => {
                fields.retain(|field| !is_same(field));
                let at = at.unwrap_or(fields.len()).min(fields.len());
                fields.insert(at, (self.name.clone(), value));
            }
            Edit::SetIfEmpty(_) if at.is_some() => {}
            Edit::SetIfEmpty(_) | Edit::Add(_) => fields.push((self.name.clone(), value)),
            Edit::Append(_) | Edit::Merge(_) => {
                let merges = matches!(self.edit, Edit::Merge(_));
                match at.and_then(|at| fields.get_mut(at)) {
                    None => fields.push((self.name.clone(), value)),
                    Some((_, have)) if merges && has_token(have, &value) => {}
                    Some((_, have)) => {
                        have.extend_from_slice(b", ");
                        have.extend_from_slice(&value);
                        if have.len() > VALUE_BYTES_MAX {
                            return Err(Stop::new(500, "htaccess_loop"));
                        }
                    }
                }
            }
            Edit::Echo(pattern) => {
                for (name, value) in scope.request.fields {
                    if scope.is_match(pattern, name)? {
                        fields.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
            Edit::Replace(pattern, _, everywhere) => {
                for field in fields.iter_mut().filter(|field| is_same(field)) {
                    scope.asker.spend(steps_of(field.1.len()))?;
                    let how = (&*value, *everywhere);
                    let replaced = pattern.replace(&field.1, how, scope.asker.work())?;
                    if let Some(replaced) = replaced.filter(|value| is_sendable(value)) {
                        field.1 = replaced;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a list has this element.
fn has_token(list: &[u8], token: &[u8]) -> bool {
    list.split(|byte| *byte == b',')
        .any(|have| have.trim_ascii() == token.trim_ascii())
}

impl Computed {
    async fn value(&self, scope: &Scope<'_>) -> Result<Vec<u8>, Stop> {
        match self {
            Self::Expression(word) => expression::text(word, scope).await,
            Self::Plain(text) => formatted(text, scope),
        }
    }
}

/// A value with `%{NAME}e`, `%t` and their like in it.
fn formatted(text: &[u8], scope: &Scope<'_>) -> Result<Vec<u8>, Stop> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        // Too long to be sent: the line is left out.
        if out.len() > VALUE_BYTES_MAX {
            return Ok(out);
        }
        match rest {
            [] => return Ok(out),
            [b'%', b'%', after @ ..] => {
                out.push(b'%');
                rest = after;
            }
            [b'%', b't', after @ ..] => {
                let now = scope.request.now.epoch_s.saturating_mul(1_000_000);
                out.extend_from_slice(format!("t={now}").as_bytes());
                rest = after;
            }
            [b'%', b'D', after @ ..] => {
                out.extend_from_slice(b"D=0");
                rest = after;
            }
            [b'%', b'{', inner @ ..] => {
                let end = inner
                    .iter()
                    .position(|byte| *byte == b'}')
                    .unwrap_or(inner.len());
                let (name, after) = inner.split_at(end);
                let kind = after.get(1).copied();
                rest = after.get(2..).unwrap_or_default();
                let value = scope.variable(name)?.filter(|_| kind == Some(b'e'));
                out.extend_from_slice(value.as_deref().unwrap_or(b"(null)"));
            }
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
        }
    }
}

/// Says how long a reply is fresh, where it does not say so itself.
fn expire(settings: &Settings, now_s: i64, reply: &mut ReplyTables) {
    let expiry = &settings.expiry;
    if expiry.is_active != Some(true) || reply.field(b"Expires").is_some() {
        return;
    }
    let essence = reply.field(b"Content-Type").map(|value| {
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
        essence.trim_ascii().to_ascii_lowercase()
    });
    // A page of the server's own, which says where to go, is one of HTML.
    let essence = essence.or_else(|| reply.is_own_error.then(|| b"text/html".to_vec()));
    let of_type = essence.and_then(|essence| {
        let major = essence.iter().position(|byte| *byte == b'/')?;
        let any = [essence.get(..major)?, b"/*"].concat();
        expiry
            .by_type
            .get(&essence)
            .or_else(|| expiry.by_type.get(&any))
    });
    let Some(Age {
        since_change,
        seconds,
    }) = of_type.or(expiry.default.as_ref())
    else {
        return;
    };
    let since = match since_change {
        false => now_s,
        true => match reply.changed_s {
            Some(changed_s) => changed_s,
            None => return,
        },
    };
    let until = since.saturating_add(*seconds).max(now_s);
    let age = format!("max-age={}", until.saturating_sub(now_s)).into_bytes();
    let is_control =
        |(name, _): &&mut (Vec<u8>, Vec<u8>)| name.eq_ignore_ascii_case(b"Cache-Control");
    match reply.fields.iter_mut().find(is_control) {
        Some((_, value)) => {
            value.extend_from_slice(b", ");
            value.extend_from_slice(&age);
        }
        None => reply.fields.push((b"Cache-Control".to_vec(), age)),
    }
    reply
        .fields
        .push((b"Expires".to_vec(), date(until).into_bytes()));
}

/// A moment as fields have it: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn date(epoch_s: i64) -> String {
    let epoch_s = u64::try_from(epoch_s).unwrap_or(0).min(LAST_SECOND);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(epoch_s))
}
