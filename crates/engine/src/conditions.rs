//! Conditions of rules and limits, compiled: what a request must be like.
//!
//! What a map must answer stands behind all else: it is asked only if everything else holds.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use config::model::{self, Condition, MapMatch, TextMatch};
use ipnet::IpNet;
use pattern::{Exhausted, Expression, Expressions, Spans, Syntax};
use wire::FieldId;

use crate::costs::Costs;
use crate::exchange::request::Request;
use crate::glob::Matcher;
use crate::maps::answers::number as number_of;
use crate::maps::answers::{Answers, Question};
use crate::resolve::resolved::Resolved;
use crate::template::{self, Values};

/// Conditions that must all hold.
#[derive(Debug)]
pub(crate) struct Conditions(Box<[Test]>);

/// A compiled condition.
#[derive(Debug)]
enum Test {
    File(Box<[Matcher]>),
    FileRegex(Expression),
    Path(Box<[Matcher]>),
    PathRegex(Expression),
    Method(Box<[Box<[u8]>]>),
    Header(Box<[u8]>, Option<TextTest>),
    Query(Box<[u8]>, Option<TextTest>),
    Cookie(Box<[u8]>, Option<TextTest>),
    Client(Box<[IpNet]>),
    Exists(bool),
    ServerEnv(Box<[u8]>),
    Row(Box<str>),
    /// In microseconds.
    CostAbove(u64, Arc<Costs>),
    Map(Box<MapTest>),
    Not(Box<[Test]>),
}

/// What a value must be like.
#[derive(Debug)]
enum TextTest {
    Glob(Matcher),
    Regex(Expression),
}

/// What a map must answer.
#[derive(Debug)]
struct MapTest {
    wanted: MapMatch,
    /// Whose condition it is, for the log.
    whose: Box<str>,
    /// Whether it was said that an answer is no number.
    is_told: AtomicBool,
}

impl Conditions {
    /// Compiles conditions; the log calls what has them `whose`, what files cost is said by the
    /// first of `known`, and the second has the expressions compiled before.
    ///
    /// # Errors
    /// When a pattern's compiled form is too large.
    pub(crate) fn compile(
        conditions: &[Condition],
        whose: &str,
        known: (&Arc<Costs>, &Expressions),
    ) -> Result<Self, Syntax> {
        compile_all(conditions, whose, known).map(Self)
    }

    /// What their `path_regex` and its groups find in a path; `None` where there is none.
    pub(crate) fn find(&self, path: &[u8]) -> Option<Spans> {
        let mut tests = self.0.iter();
        let regex = tests.find_map(|test| match test {
            Test::PathRegex(regex) => Some(regex),
            _ => None,
        });
        // It was found before, in as many steps.
        regex?.find(path).ok().flatten()
    }

    /// Whether a request meets all of them, for who cannot wait: what a map must answer does not
    /// hold.
    pub(crate) fn hold(&self, request: &Request, file: Option<&Resolved>) -> bool {
        self.judge(request, file, &Answers::NONE) == Some(true)
    }

    /// As [`Self::hold`], of another path of which no file is known.
    pub(crate) fn hold_at(&self, request: &Request, path: &[u8]) -> bool {
        let nothing = Answers::NONE;
        let asked = self.asked(request, None, &nothing);
        judge_all(&self.0, ConditionView { path, ..asked }) == Some(true)
    }

    /// Whether a request meets all of them; `None` where a map is to be asked first.
    pub(crate) fn judge(
        &self,
        request: &Request,
        file: Option<&Resolved>,
        answers: &Answers,
    ) -> Option<bool> {
        judge_all(&self.0, self.asked(request, file, answers))
    }

    /// What is to be asked first.
    pub(crate) fn question(
        &self,
        request: &Request,
        file: Option<&Resolved>,
        answers: &Answers,
    ) -> Option<Question> {
        question_of(&self.0, self.asked(request, file, answers))
    }

    /// The path that they are about: the request's, or, where they ask for a variable of rewrite rules,
    /// the one for which that was set.
    pub(crate) fn path<'r>(&self, request: &'r Request) -> &'r [u8] {
        let set = &request.server_env;
        let mut tests = self.0.iter().filter(|_| !set.is_empty());
        let led_to = tests.find_map(|test| match test {
            Test::ServerEnv(name) => set.get(&**name),
            _ => None,
        });
        led_to.map_or(request.head.path(), Vec::as_slice)
    }

    fn asked<'r>(
        &self,
        request: &'r Request,
        file: Option<&'r Resolved>,
        answers: &'r Answers,
    ) -> ConditionView<'r> {
        ConditionView {
            path: self.path(request),
            request,
            file,
            answers,
        }
    }
}

/// What conditions look at.
#[derive(Clone, Copy)]
struct ConditionView<'r> {
    path: &'r [u8],
    request: &'r Request,
    file: Option<&'r Resolved>,
    answers: &'r Answers,
}

fn judge_all(tests: &[Test], asked: ConditionView<'_>) -> Option<bool> {
    let mut judged = Some(true);
    for test in tests {
        match test.holds(asked) {
            Some(true) => {}
            Some(false) => return Some(false),
            None => judged = None,
        }
    }
    judged
}

fn question_of(tests: &[Test], asked: ConditionView<'_>) -> Option<Question> {
    let is_open = |test: &&Test| test.holds(asked).is_none();
    match tests.iter().find(is_open)? {
        Test::Map(test) => Some(test.question(asked.request)),
        Test::Not(tests) => question_of(tests, asked),
        _ => None,
    }
}

/// Whether one of them looks at the resolved file, or at what files above it have said.
pub(crate) fn need_file(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| match condition {
        Condition::File(_)
        | Condition::FileRegex(_)
        | Condition::Exists(_)
        | Condition::ServerEnv(_)
        | Condition::CostAbove(_) => true,
        Condition::Not(inner) => need_file(inner),
        _ => false,
    })
}

/// Whether one of them asks a map.
pub(crate) fn ask_maps(conditions: &[Condition]) -> bool {
    conditions.iter().any(Condition::asks_map)
}

impl Test {
    /// `None` where a map is to be asked first.
    fn holds(&self, asked: ConditionView<'_>) -> Option<bool> {
        let ConditionView {
            path,
            request,
            file,
            answers,
        } = asked;
        let head = &request.head;
        Some(match self {
            // A site without a root has no files: there the path stands for them.
            Self::File(globs) => match file {
                None => any_matches(globs, path),
                Some(file) => file.exists() && any_matches(globs, file.name()),
            },
            Self::FileRegex(regex) => match file {
                None => is_found(regex, path, request),
                Some(file) => file.exists() && is_found(regex, file.path(), request),
            },
            Self::Path(globs) => any_matches(globs, path),
            Self::PathRegex(regex) => is_found(regex, path, request),
            Self::Method(methods) => methods
                .iter()
                .any(|method| **method == *head.method_bytes()),
            Self::Header(name, None) => head.fields.get_named(name).is_some(),
            Self::Header(name, Some(text)) => {
                let mut values = head.fields.all_named(name);
                values.any(|value| text.suits(value, request))
            }
            Self::Query(name, text) => {
                let mut values = query_values(head.query().unwrap_or_default(), name);
                values.any(|value| text.as_ref().is_none_or(|it| it.suits(&value, request)))
            }
            Self::Cookie(name, text) => {
                let mut values = cookies(head.fields.get_all(FieldId::Cookie), name);
                values.any(|value| text.as_ref().is_none_or(|it| it.suits(value, request)))
            }
            Self::Client(nets) => nets.iter().any(|net| net.contains(&request.client)),
            Self::Exists(wanted) => file.is_some_and(Resolved::exists) == *wanted,
            Self::ServerEnv(name) => request.server_env.contains_key(&**name),
            Self::Row(name) => !request.column(name).is_empty(),
            Self::CostAbove(bound_us, costs) => {
                let cost_us = file.and_then(|file| costs.of(file.name()));
                cost_us.is_some_and(|cost_us| cost_us > *bound_us as f64)
            }
            Self::Map(test) => return test.holds(request, answers),
            Self::Not(tests) => !judge_all(tests, asked)?,
        })
    }
}

impl TextTest {
    fn compile(text: &TextMatch, expressions: &Expressions) -> Result<Self, Syntax> {
        Ok(match text {
            TextMatch::Glob(glob) => Self::Glob(Matcher::whole(&glob.0)?),
            TextMatch::Regex(regex) => Self::Regex(expressions.of(regex)?),
        })
    }

    fn suits(&self, value: &[u8], request: &Request) -> bool {
        match self {
            Self::Glob(glob) => glob.matches(value),
            Self::Regex(regex) => is_found(regex, value, request),
        }
    }
}

/// Whether an expression is found; where that was given up the request is told.
fn is_found(regex: &Expression, text: &[u8], request: &Request) -> bool {
    // Who is refused anyhow is not searched on: each further value would take as many steps again.
    if request.gave_up.borrow().is_some() {
        return false;
    }
    let found = regex.is_match(text);
    found.unwrap_or_else(|Exhausted| {
        request.gave_up.replace(regex.counted().cloned());
        false
    })
}

impl MapTest {
    fn question(&self, request: &Request) -> Question {
        let mut key = Vec::new();
        let values = Values {
            request,
            answers: &Answers::NONE,
            captured: None,
        };
        template::expand(&self.wanted.key, values, &mut key);
        let map = self.wanted.map;
        Question { map, key }
    }

    fn holds(&self, request: &Request, answers: &Answers) -> Option<bool> {
        let Question { map, key } = self.question(request);
        let answer = answers.find(map, &key)?;
        Some(match answer {
            None => !self.wanted.answered,
            Some(answer) => self.wanted.answered && self.suits(answer),
        })
    }

    fn suits(&self, answer: &[u8]) -> bool {
        let MapMatch {
            above,
            below,
            equals,
            ..
        } = &self.wanted;
        if equals
            .as_ref()
            .is_some_and(|text| text.as_bytes() != answer)
        {
            return false;
        }
        if above.is_none() && below.is_none() {
            return true;
        }
        let Some(number) = number_of(answer) else {
            self.tell(answer);
            return false;
        };
        above.is_none_or(|least| number > least) && below.is_none_or(|most| number < most)
    }

    /// Says once that an answer cannot be compared.
    fn tell(&self, answer: &[u8]) {
        if !self.is_told.swap(true, Relaxed) {
            let (map, answer) = (&*self.wanted.name, String::from_utf8_lossy(answer));
            tracing::warn!(
                rule = &*self.whose,
                map,
                answer = &*answer,
                "a map's answer is no number, so it is neither above nor below anything; said once for each rule"
            );
        }
    }
}

fn any_matches(globs: &[Matcher], text: &[u8]) -> bool {
    globs.iter().any(|glob| glob.matches(text))
}

/// The values of the cookies of this name, in order (RFC 6265 §4.2).
pub(crate) fn cookies<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    name: &[u8],
) -> impl Iterator<Item = &'a [u8]> {
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let found = halves.next()?.trim_ascii() == name;
        found.then(|| halves.next().unwrap_or_default().trim_ascii())
    })
}

/// The decoded values of a query parameter.
fn query_values<'a>(query: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
    query.split(|byte| *byte == b'&').filter_map(move |pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let found = decode(halves.next()?);
        (found == name).then(|| decode(halves.next().unwrap_or_default()))
    })
}

/// Undoes `application/x-www-form-urlencoded`; a broken escape stays as it is.
fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'+', _) => out.push(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    rest = after;
                }
                _ => out.push(b'%'),
            },
            _ => out.push(*first),
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

fn compile_all(
    conditions: &[Condition],
    whose: &str,
    known: (&Arc<Costs>, &Expressions),
) -> Result<Box<[Test]>, Syntax> {
    let (asking, others): (Vec<_>, Vec<_>) = conditions
        .iter()
        .partition(|condition| ask_maps(std::slice::from_ref(condition)));
    let all = others.into_iter().chain(asking);
    all.map(|condition| compile(condition, whose, known))
        .collect()
}

fn globs(patterns: &[model::Glob]) -> Result<Box<[Matcher]>, Syntax> {
    let patterns = patterns.iter();
    let matchers = patterns.map(|pattern| Ok(Matcher::new(&pattern.0)?));
    matchers.collect()
}

fn compile(
    condition: &Condition,
    whose: &str,
    known: (&Arc<Costs>, &Expressions),
) -> Result<Test, Syntax> {
    let (costs, expressions) = known;
    let bytes = |text: &String| Box::from(text.as_bytes());
    let text = |text: &Option<TextMatch>| {
        let text = text.as_ref();
        text.map(|text| TextTest::compile(text, expressions))
            .transpose()
    };
    Ok(match condition {
        Condition::File(patterns) => Test::File(globs(patterns)?),
        Condition::FileRegex(pattern) => Test::FileRegex(expressions.of(pattern)?),
        Condition::Path(patterns) => Test::Path(globs(patterns)?),
        Condition::PathRegex(pattern) => Test::PathRegex(expressions.of(pattern)?),
        Condition::Method(methods) => Test::Method(methods.iter().map(bytes).collect()),
        Condition::Header(name, value) => Test::Header(bytes(name), text(value)?),
        Condition::Query(name, value) => Test::Query(bytes(name), text(value)?),
        Condition::Cookie(name, value) => Test::Cookie(bytes(name), text(value)?),
        Condition::Client(nets) => Test::Client(nets.as_slice().into()),
        Condition::Exists(wanted) => Test::Exists(*wanted),
        Condition::ServerEnv(name) => Test::ServerEnv(name.as_bytes().into()),
        Condition::Row(name) => Test::Row(name.as_str().into()),
        Condition::CostAbove(ms) => Test::CostAbove(ms * 1_000, Arc::clone(costs)),
        Condition::Map(wanted) => Test::Map(Box::new(MapTest {
            wanted: (**wanted).clone(),
            whose: whose.into(),
            is_told: AtomicBool::new(false),
        })),
        Condition::Not(inner) => Test::Not(compile_all(inner, whose, known)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others_and_the_first_counts() {
        let lines: [&[u8]; 2] = [b"a=1; session=x=y ;b", b"session=z; c=3"];
        let find = |name: &[u8]| cookies(lines.into_iter(), name).next();
        assert_eq!(find(b"session"), Some(&b"x=y"[..]));
        assert_eq!(find(b"b"), Some(&b""[..]));
        assert_eq!(find(b"c"), Some(&b"3"[..]));
        assert_eq!(find(b"sess"), None);
    }

    #[test]
    fn query_parameters_are_decoded_before_they_are_compared() {
        let values: Vec<_> = query_values(b"a=1&b=x%20y&a=%31+2&c", b"a").collect();
        assert_eq!(values, [b"1".to_vec(), b"1 2".to_vec()]);
        assert_eq!(query_values(b"c", b"c").count(), 1);
        assert_eq!(decode(b"%zz%4"), b"%zz%4");
    }
}
