//! Sections: what they are about, and what stands in them.

use super::{Block, Choice, Compiler, FileMatcher, NameTest, Wrong};
use crate::access::{Group, Methods, Requirement};
use crate::expression;
use crate::overrides::Unknown;
use crate::pattern::{Case, Pattern};
use crate::tree::Directive;
use crate::words::{all_words, next_word};
use crate::work::Work;

/// Modules that stand for what is done here; any module of PHP besides.
const MODULES: [&str; 21] = [
    "core",
    "so",
    "http",
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_groupfile",
    "authz_host",
    "authz_user",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "mime",
    "rewrite",
    "setenvif",
];
/// More of them, whose lines do no harm.
const MODULES_TOO: [&str; 4] = ["autoindex", "negotiation", "ssl", "version"];
/// Methods that one section is about.
const METHODS_MAX: usize = 64;
/// The version of Apache that `<IfVersion>` is told.
const VERSION: [u32; 3] = [2, 4, 71];

impl Compiler<'_> {
    pub(super) fn section(
        &mut self,
        directive: &Directive,
        children: &[Directive],
        methods: &Methods,
        block: &mut Block,
        may_go_on: bool,
    ) {
        let done = self.section_of(directive, children, methods, block, may_go_on);
        let Err(wrong) = done else {
            return;
        };
        let name = String::from_utf8_lossy(&directive.name).into_owned();
        let (reason, text, is_fatal) = match wrong {
            Wrong::NotAllowed(text) => {
                let is_access = self.is_access(directive);
                self.access_lines += usize::from(is_access);
                let is_fatal = is_access || self.overrides.unknown() == Unknown::Error;
                ("htaccess_unknown", text, is_fatal)
            }
            Wrong::Syntax(text) | Wrong::Unsupported(text) => ("htaccess_syntax", text, true),
            Wrong::Refused(text) => ("htaccess_refused", text.to_owned(), true),
        };
        let text = format!("<{name}>: {text}");
        match is_fatal {
            true => self.fault(block, directive.line, 500, reason, text),
            false => self.problem(directive.line, reason, text, false),
        }
    }

    fn section_of(
        &mut self,
        directive: &Directive,
        children: &[Directive],
        methods: &Methods,
        block: &mut Block,
        may_go_on: bool,
    ) -> Result<(), Wrong> {
        let name = String::from_utf8_lossy(&directive.name).to_ascii_lowercase();
        let arguments = &directive.arguments[..];
        match name.as_str() {
            "ifmodule" | "ifdefine" | "ifversion" => {
                if holds(&name, arguments)? {
                    self.walk(children, methods, block);
                }
            }
            "limit" | "limitexcept" => {
                let names: Vec<Vec<u8>> = all_words(arguments);
                if names.is_empty() || names.len() > METHODS_MAX {
                    return Err(format!("it names methods, at most {METHODS_MAX}").into());
                }
                if *methods != Methods::All {
                    return Err("it stands in another one".into());
                }
                let is_only = name == "limit";
                // What is said of HEAD is said of GET.
                let names = names.into_iter().map(|name| match &name[..] {
                    b"HEAD" => b"GET".to_vec(),
                    _ => name,
                });
                let names = names.collect();
                let inner = if is_only {
                    Methods::Only(names)
                } else {
                    Methods::Except(names)
                };
                self.walk(children, &inner, block);
            }
            "files" | "filesmatch" => {
                let matcher = matcher(directive, name == "filesmatch")?;
                let inner = self.files_section(directive, children);
                block.files.extend(inner.map(|inner| (matcher, inner)));
            }
            "if" | "elseif" | "else" => {
                let access_lines = self.access_lines;
                let condition = match name.as_str() {
                    "else" if arguments.is_empty() => None,
                    "else" => return Err("it has no condition".into()),
                    _ => Some(condition(arguments)?),
                };
                self.ifs += 1;
                let inner = self.inner(children);
                self.ifs -= 1;
                let choice = Choice {
                    line: directive.line,
                    condition,
                    block: inner,
                };
                let is_access = self.access_lines > access_lines;
                // Whether another choice is taken depends on those before it.
                let is_by_env = name != "if" || expression::is_by_env(arguments);
                self.reliance.on_env |= is_access && is_by_env;
                match block.ifs.last_mut() {
                    Some(choices) if name != "if" && may_go_on => choices.push(choice),
                    _ if name != "if" => return Err("it follows no <If>".into()),
                    _ => block.ifs.push(vec![choice]),
                }
            }
            "requireall" => self.group(directive, methods, block, true, false)?,
            "requireany" => self.group(directive, methods, block, false, false)?,
            "requirenone" => self.group(directive, methods, block, false, true)?,
            _ => return Err(Wrong::NotAllowed("no such section stands here".to_owned())),
        }
        Ok(())
    }

    /// What stands in `<Files>`. In a file Apache passes over one that stands in `<If>`; what is about
    /// access in such a one is not.
    fn files_section(&mut self, directive: &Directive, children: &[Directive]) -> Option<Block> {
        let access_lines = self.access_lines;
        let mut inner = self.inner(children);
        if self.ifs == 0 || self.is_section {
            return Some(inner);
        }
        let (line, reason) = (directive.line, "htaccess_unsupported");
        let text = "<Files>: it counts for nothing in <If>".to_owned();
        if self.access_lines == access_lines {
            self.problem(line, reason, text, false);
            return None;
        }
        self.fault(&mut inner, line, 500, reason, text);
        Some(inner)
    }

    /// What stands in a section that holds for some files only.
    fn inner(&mut self, children: &[Directive]) -> Block {
        let mut inner = Block::default();
        let conditions = std::mem::take(&mut self.conditions);
        let groups = std::mem::take(&mut self.groups);
        self.walk(children, &Methods::All, &mut inner);
        self.conditions = conditions;
        self.groups = groups;
        inner
    }

    fn group(
        &mut self,
        directive: &Directive,
        methods: &Methods,
        block: &mut Block,
        all: bool,
        negated: bool,
    ) -> Result<(), Wrong> {
        if !self
            .overrides
            .allows(crate::overrides::OverrideClass::AuthConfig, "Require")
        {
            return Err(Wrong::NotAllowed("it needs AuthConfig".to_owned()));
        }
        self.groups.push(Group {
            all,
            negated,
            parts: Vec::new(),
        });
        let children = directive.children.as_deref().unwrap_or_default();
        self.walk(children, methods, block);
        match self.groups.pop() {
            Some(group) if !group.parts.is_empty() => {
                self.add_requirement((Requirement::Group(group), directive.line), block)
            }
            _ => Err("no requirement stands in it".into()),
        }
    }
}

fn matcher(directive: &Directive, is_pattern: bool) -> Result<FileMatcher, Wrong> {
    let mut arguments = &directive.arguments[..];
    let mut name = next_word(&mut arguments).ok_or("it names files")?;
    let mut is_pattern = is_pattern;
    if !is_pattern && name == b"~" {
        is_pattern = true;
        name = next_word(&mut arguments).ok_or("it names files")?;
    }
    if !arguments.is_empty() {
        return Err("it takes one name: put it into quotes".into());
    }
    let text = String::from_utf8_lossy(&name).into_owned();
    let kind = match is_pattern {
        true => NameTest::Pattern(Pattern::new(&name, Case::Exact)?),
        false => NameTest::Glob(name),
    };
    Ok(FileMatcher {
        line: directive.line,
        text,
        kind,
    })
}

fn condition(mut arguments: &[u8]) -> Result<expression::Condition, Wrong> {
    let text = next_word(&mut arguments).ok_or("it lacks its condition")?;
    match arguments.is_empty() {
        true => Ok(expression::condition(&text)?),
        false => Err("a condition with blanks stands in quotes".into()),
    }
}

/// Whether what a section asks of the server is so.
fn holds(name: &str, arguments: &[u8]) -> Result<bool, Wrong> {
    let text = String::from_utf8_lossy(arguments).into_owned();
    let text = text.trim_matches('"').trim();
    let (negated, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    if text.is_empty() {
        return Err("it asks for something".into());
    }
    let holds = match name {
        "ifmodule" => has_module(text),
        "ifdefine" => false,
        _ => has_version(text)?,
    };
    Ok(holds != negated)
}

fn has_module(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let plain = name
        .strip_prefix("mod_")
        .and_then(|rest| rest.strip_suffix(".c"));
    let plain = plain
        .or_else(|| name.strip_suffix("_module"))
        .or_else(|| name.strip_suffix(".c"));
    let plain = plain.unwrap_or(&name);
    let digits = plain.strip_prefix("php");
    let is_php = digits.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    is_php || MODULES.contains(&plain) || MODULES_TOO.contains(&plain)
}

fn has_version(text: &str) -> Result<bool, Wrong> {
    let mut words = text.split_whitespace();
    let (operator, wanted) = match (words.next(), words.next()) {
        (Some(wanted), None) => ("=", wanted),
        (Some(operator), Some(wanted)) => (operator, wanted),
        _ => return Err("it asks for a version".into()),
    };
    let shown = "2.4.71";
    let slashed = wanted
        .strip_prefix('/')
        .and_then(|rest| rest.strip_suffix('/'));
    if let Some(pattern) = slashed.or((operator == "~").then_some(wanted)) {
        let pattern = Pattern::new(pattern.as_bytes(), Case::Exact)?;
        let found = pattern.groups(shown.as_bytes(), &Work::default());
        let found = found.map_err(|_| "the pattern takes too long")?;
        return Ok(found.is_some());
    }
    let mut parts = [0u32; 3];
    for (at, part) in wanted.split('.').enumerate() {
        let place = parts.get_mut(at).ok_or("a version has three parts")?;
        *place = part.parse().map_err(|_| "a version has numbers")?;
    }
    Ok(match operator {
        "=" | "==" => VERSION == parts,
        ">" => VERSION > parts,
        ">=" => VERSION >= parts,
        "<" => VERSION < parts,
        "<=" => VERSION <= parts,
        _ => return Err("it compares with =, <, >, <=, >= or ~".into()),
    })
}
