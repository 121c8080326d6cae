//! A file made into a program: what each line means, and what becomes of those that mean nothing.
//!
//! There is always a program. What cannot be understood and is about access becomes a fault, which
//! refuses what the section covers that it stands in; everything else that cannot is left out and
//! told.

mod access;
mod env;
mod fields;
mod files;
mod lines;
mod sections;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::access::{Group, Methods, Required, Requirement};
use crate::directives::{self, KnownDirective, Meaning};
use crate::expression;
use crate::glob::{self, Slashes};
use crate::overrides::{OverrideClass, Overrides, Unknown};
use crate::pattern::{self, Pattern};
use crate::request::Stop;
use crate::rewrite::{self, RewriteCondition};
use crate::settings::Settings;
use crate::tree::{self, Directive, TreeCaps};
use crate::variable::Scope;
use crate::words::next_word;

/// Problems that are told of one file.
pub const PROBLEMS_MAX: usize = 64;
/// What patterns of one file take; one that needs more is not read.
const PATTERNS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Unknown names of one file that are compared with those there are; what is beyond refuses.
const NAMES_JUDGED_MAX: usize = 64;
/// What is told of a line left out that something depends on.
pub(crate) const MISSED: &str = "a line about access depends on this one, which is left out";
/// How often a program has what its file says, at most.
const TEXT_COPIES: usize = 3;
/// Bytes of a line that is understood, without its text.
const LINE_BYTES: usize = 512;

/// A file, compiled; the same for all sites that have the same bytes and allow the same.
#[derive(Debug)]
pub struct Program {
    pub(crate) block: Block,
    /// What was left out, or refuses what it covers.
    pub problems: Vec<Problem>,
    /// Whether its sections open and close as they must: those of a file that is being written may
    /// not do so yet.
    pub is_whole: bool,
    /// Bytes of the file.
    pub(crate) bytes: usize,
    pub(crate) reliance: Reliance,
    /// How often a line was looked at to make it.
    pub looks: usize,
    memory_bytes: usize,
    /// Whether it is a section of the configuration and no file.
    pub is_section: bool,
}

impl Program {
    /// About as many bytes as it takes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The files of users and groups that it names.
    pub fn user_files(&self) -> BTreeSet<Vec<u8>> {
        let mut files = BTreeSet::new();
        self.block.user_files(&mut files);
        files
    }

    /// Whether it says anything of PHP's settings.
    pub fn sets_php(&self) -> bool {
        self.block.sets_php()
    }
}

/// What of a file shows only beside its other lines, and those of the files above it and below.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reliance {
    /// A line left out that sets variables, or may do so.
    env_missed: Option<u32>,
    /// Whether a line about access depends on variables.
    on_env: bool,
    /// A line of rewriting that was left out.
    rules_missed: Option<u32>,
    /// Whether a rule refuses.
    on_rules: bool,
}

impl Reliance {
    /// That of both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            env_missed: self.env_missed.or(other.env_missed),
            on_env: self.on_env || other.on_env,
            rules_missed: self.rules_missed.or(other.rules_missed),
            on_rules: self.on_rules || other.on_rules,
        }
    }

    /// The line left out here on which one of all those about access depends.
    pub(crate) fn missed_by(self, all: Self) -> Option<u32> {
        let env = self.env_missed.filter(|_| all.on_env);
        env.or(self.rules_missed.filter(|_| all.on_rules))
    }
}

/// Something about a line that its author should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: u32,
    /// The stable word for it.
    pub reason: &'static str,
    /// What is wrong, and what to do.
    pub text: String,
    /// Whether what the line covers is refused.
    pub refuses: bool,
}

/// The lines of one place, and the sections in it.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) settings: Settings,
    pub(crate) files: Vec<(FileMatcher, Block)>,
    pub(crate) ifs: Vec<Vec<Choice>>,
}

impl Block {
    fn within(&self) -> impl Iterator<Item = &Block> {
        let ifs = self.ifs.iter().flatten().map(|choice| &choice.block);
        self.files.iter().map(|(_, block)| block).chain(ifs)
    }

    fn sets_php(&self) -> bool {
        self.settings.php().next().is_some() || self.within().any(Self::sets_php)
    }

    fn user_files(&self, files: &mut BTreeSet<Vec<u8>>) {
        let auth = &self.settings.auth;
        files.extend(auth.user_file.iter().chain(&auth.group_file).cloned());
        self.within().for_each(|block| block.user_files(files));
    }

    pub(crate) fn has_sections(&self) -> bool {
        !self.files.is_empty() || !self.ifs.is_empty()
    }
}

/// `<If>`, `<ElseIf>` or `<Else>`.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) line: u32,
    pub(crate) condition: Option<expression::Condition>,
    pub(crate) block: Block,
}

/// What `<Files>` and `<FilesMatch>` are about.
#[derive(Debug)]
pub(crate) struct FileMatcher {
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) kind: NameTest,
}

#[derive(Debug)]
pub(crate) enum NameTest {
    Glob(Vec<u8>),
    Pattern(Pattern),
}

impl FileMatcher {
    pub(crate) fn matches(&self, name: &[u8], scope: &Scope<'_>) -> Result<bool, Stop> {
        match &self.kind {
            NameTest::Glob(glob) => {
                scope.asker.spend(1 + name.len() * glob.len() / 8)?;
                Ok(glob::matches(glob, name, Slashes::Apart, false))
            }
            NameTest::Pattern(pattern) => {
                let found = scope.is_match(pattern, name);
                found.map_err(|stop| stop.at(self.line, &self.text))
            }
        }
    }
}

/// Why a line has come to nothing.
#[derive(Debug)]
enum Wrong {
    /// A directive that is known says something that means nothing.
    Syntax(String),
    /// It is more than the site allows.
    NotAllowed(String),
    /// It is not done here, with this reason.
    Refused(&'static str),
    /// It depends on something that is not had here.
    Unsupported(String),
}

impl From<String> for Wrong {
    fn from(text: String) -> Self {
        Self::Syntax(text)
    }
}

impl From<&str> for Wrong {
    fn from(text: &str) -> Self {
        Self::Syntax(text.to_owned())
    }
}

/// Makes a file into a program.
pub fn compile(bytes: &[u8], overrides: &Overrides) -> Program {
    compile_as(bytes, overrides, false)
}

fn compile_as(bytes: &[u8], overrides: &Overrides, is_section: bool) -> Program {
    let mut compiler = Compiler::new(overrides, is_section);
    let mut block = Block::default();
    let tree = tree::parse(bytes, TreeCaps::default());
    let is_torn = matches!(&tree, Err(error) if error.reason == "htaccess_syntax");
    match tree {
        Ok(directives) => {
            compiler.walk(&directives, &Methods::All, &mut block);
            compiler.close(&mut block);
        }
        Err(error) => {
            let status = if error.reason == "htaccess_too_large" {
                403
            } else {
                500
            };
            compiler.fault(&mut block, error.line, status, error.reason, error.text);
        }
    }
    Program {
        block,
        memory_bytes: memory_of(bytes) + compiler.patterns_bytes(),
        problems: compiler.problems,
        is_whole: !is_torn,
        bytes: bytes.len(),
        reliance: compiler.reliance,
        looks: compiler.looks,
        is_section,
    }
}

/// About as many bytes as the lines of a file take once they are understood, without patterns.
fn memory_of(bytes: &[u8]) -> usize {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    size_of::<Program>() + TEXT_COPIES * bytes.len() + LINE_BYTES * (1 + lines)
}

/// What a section of the configuration stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionContext {
    /// A directory: it is as a file that lies there.
    Directory,
    /// The virtual host: its rules see the path with the slash at its begin, before any directory's.
    Server,
}

/// Makes the text of a section into a program: its author is the server's, and may say all.
pub fn compile_section(text: &[u8], context: SectionContext) -> Program {
    let mut program = compile_as(text, &Overrides::all(), true);
    if context == SectionContext::Server {
        let settings = &mut program.block.settings;
        settings.server_rewrite = std::mem::take(&mut settings.rewrite);
        settings.server_redirects = std::mem::take(&mut settings.redirects);
    }
    program
}

struct Compiler<'o> {
    overrides: &'o Overrides,
    is_section: bool,
    /// How many `<If>` it stands in.
    ifs: usize,
    problems: Vec<Problem>,
    /// Unknown names, and what each was perhaps meant to be.
    judged: BTreeMap<String, Option<KnownDirective>>,
    /// Conditions that wait for their rule.
    conditions: Vec<RewriteCondition>,
    /// Groups of requirements that are open.
    groups: Vec<Group>,
    reliance: Reliance,
    /// Lines about access so far.
    access_lines: usize,
    looks: usize,
    /// What patterns of this thread took before.
    made_before: usize,
}

impl<'o> Compiler<'o> {
    fn new(overrides: &'o Overrides, is_section: bool) -> Self {
        Self {
            overrides,
            is_section,
            ifs: 0,
            problems: Vec::new(),
            judged: BTreeMap::new(),
            conditions: Vec::new(),
            groups: Vec::new(),
            reliance: Reliance::default(),
            access_lines: 0,
            looks: 0,
            made_before: pattern::made_bytes(),
        }
    }

    /// What its patterns take so far.
    fn patterns_bytes(&self) -> usize {
        pattern::made_bytes().saturating_sub(self.made_before)
    }

    fn problem(&mut self, line: u32, reason: &'static str, text: String, refuses: bool) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem {
                line,
                reason,
                text,
                refuses,
            });
        }
    }

    /// Refuses all that a block covers.
    fn fault(
        &mut self,
        block: &mut Block,
        line: u32,
        status: u16,
        reason: &'static str,
        text: String,
    ) {
        let stop = Stop::new(status, reason).at(line, &text);
        block.settings.fault.get_or_insert(stop);
        self.problem(line, reason, text, true);
    }

    /// What only the whole file shows: lines about access that depend on lines left out.
    fn close(&mut self, block: &mut Block) {
        if let Some(line) = self.reliance.missed_by(self.reliance) {
            self.fault(block, line, 500, "htaccess_unknown", MISSED.to_owned());
        }
    }

    fn walk(&mut self, directives: &[Directive], methods: &Methods, block: &mut Block) {
        let mut may_go_on = false;
        for directive in directives {
            if self.patterns_bytes() > PATTERNS_BYTES_MAX {
                let text = format!("its patterns take more than {PATTERNS_BYTES_MAX} bytes");
                return self.fault(block, directive.line, 403, "htaccess_too_large", text);
            }
            match &directive.children {
                Some(children) => {
                    self.section(directive, children, methods, block, may_go_on);
                    may_go_on = directive.is("If") || directive.is("ElseIf");
                }
                None => {
                    self.line(directive, methods, block);
                    may_go_on = false;
                }
            }
        }
    }

    fn line(&mut self, directive: &Directive, methods: &Methods, block: &mut Block) {
        self.looks += 1;
        let name = String::from_utf8_lossy(&directive.name).into_owned();
        let Some(known) = directives::find(&directive.name) else {
            return self.unknown(directive, &name, block);
        };
        self.access_lines += usize::from(known.is_access);
        if !self.overrides.allows(known.class, known.name) {
            return self.not_allowed(directive, &known, block);
        }
        let Err(wrong) = self.known(&known, directive, methods, block) else {
            return;
        };
        let line = directive.line;
        match wrong {
            Wrong::Syntax(text) => {
                let text = format!("{}: {text}", known.name);
                self.fault(block, line, 500, "htaccess_syntax", text);
            }
            Wrong::NotAllowed(text) => {
                let text = format!("{}: {text}", known.name);
                self.fault(block, line, 500, "htaccess_unknown", text);
            }
            Wrong::Unsupported(text) => {
                let text = format!("{}: {text}", known.name);
                self.fault(block, line, 500, "htaccess_unsupported", text);
            }
            Wrong::Refused(text) => {
                let text = format!("{}: {text}", known.name);
                match known.is_access {
                    true => self.fault(block, line, 403, "htaccess_refused", text),
                    false => self.problem(line, "htaccess_refused", text, false),
                }
            }
        }
    }

    fn unknown(&mut self, directive: &Directive, name: &str, block: &mut Block) {
        let meant = self.meant(name).flatten();
        let text = match meant {
            Some(known) => format!("there is no directive {name}: {} perhaps", known.name),
            None => format!("there is no directive {name}"),
        };
        let is_fatal = self.is_access(directive) || self.overrides.unknown() == Unknown::Error;
        self.access_lines += usize::from(is_fatal);
        self.may_be_missed(directive.line, meant.map(|known| known.meaning));
        self.left_out(directive.line, text, is_fatal, block);
    }

    /// The directive that an unknown name was perhaps meant to be; none where too many were compared.
    fn meant(&mut self, name: &str) -> Option<Option<KnownDirective>> {
        let lower = name.to_ascii_lowercase();
        if let Some(meant) = self.judged.get(&lower) {
            return Some(*meant);
        }
        if self.judged.len() >= NAMES_JUDGED_MAX {
            return None;
        }
        let meant = directives::nearest(&lower);
        self.judged.insert(lower, meant);
        Some(meant)
    }

    /// Whether a line, or any in a section, is about access or may be.
    fn is_access(&mut self, directive: &Directive) -> bool {
        self.looks += 1;
        let by_name = match directives::find(&directive.name) {
            Some(known) => concerns_access(&known, directive),
            None => {
                let name = String::from_utf8_lossy(&directive.name);
                let concerns = |known: KnownDirective| concerns_access(&known, directive);
                directives::begins_like_access(&name)
                    || self
                        .meant(&name)
                        .is_none_or(|meant| meant.is_some_and(concerns))
            }
        };
        let children = directive.children.as_deref().unwrap_or_default();
        by_name || children.iter().any(|child| self.is_access(child))
    }

    fn not_allowed(&mut self, directive: &Directive, known: &KnownDirective, block: &mut Block) {
        if known.meaning == Meaning::Inert {
            return;
        }
        self.may_be_missed(directive.line, Some(known.meaning));
        let text = match known.class {
            OverrideClass::Any => format!("{} is not allowed here", known.name),
            class => format!("{} is not allowed here: it needs {class:?}", known.name),
        };
        let is_access = concerns_access(known, directive);
        self.access_lines += usize::from(is_access && !known.is_access);
        let is_fatal = is_access || self.overrides.not_allowed() == Unknown::Error;
        self.left_out(directive.line, text, is_fatal, block);
    }

    /// Remembers a line left out on which one about access may depend.
    fn may_be_missed(&mut self, line: u32, meaning: Option<Meaning>) {
        match meaning {
            // Modules that are not had set variables, too.
            None | Some(Meaning::Env) => self.reliance.env_missed.get_or_insert(line),
            Some(Meaning::Rewrite) => self.reliance.rules_missed.get_or_insert(line),
            _ => return,
        };
    }

    fn left_out(&mut self, line: u32, text: String, is_fatal: bool, block: &mut Block) {
        match is_fatal {
            true => self.fault(block, line, 500, "htaccess_unknown", text),
            false => self.problem(line, "htaccess_unknown", text, false),
        }
    }

    /// Adds a requirement to the open group, or to those of the place.
    fn add_requirement(
        &mut self,
        (requirement, line): (Requirement, u32),
        block: &mut Block,
    ) -> Result<(), Wrong> {
        let is_negated = match &requirement {
            Requirement::Line(_, negated, _) => *negated,
            Requirement::Group(group) => group.negated,
        };
        let (all, parts) = match self.groups.last_mut() {
            Some(group) => (group.all, &mut group.parts),
            None => (
                false,
                any_of(&mut block.settings, line).ok_or("it stands alone")?,
            ),
        };
        if is_negated && !all {
            return Err("what is negated counts only beside others, in <RequireAll>".into());
        }
        match requirement {
            Requirement::Group(group) if !group.negated && group.all == all => {
                parts.extend(group.parts);
            }
            other => parts.push(other),
        }
        Ok(())
    }
}

/// The requirements of a place, of which any will do.
fn any_of(settings: &mut Settings, line: u32) -> Option<&mut Vec<Requirement>> {
    if settings.require.is_empty() {
        let group = Group {
            all: false,
            negated: false,
            parts: Vec::new(),
        };
        settings.require.push(Required {
            all: false,
            requirement: Arc::new(Requirement::Group(group)),
            line,
            directory: None,
        });
    }
    let required = settings.require.last_mut()?;
    match Arc::get_mut(&mut required.requirement)? {
        Requirement::Group(group) => Some(&mut group.parts),
        Requirement::Line(..) => None,
    }
}

/// Whether a line is about access that is one of this directive, or is meant to be.
fn concerns_access(known: &KnownDirective, directive: &Directive) -> bool {
    known.is_access
        || match known.name {
            "RewriteRule" => rewrite::refuses(&directive.arguments),
            "php_flag" | "php_value" => {
                let key = next_word(&mut &directive.arguments[..]);
                key.is_some_and(|key| key.eq_ignore_ascii_case(b"engine"))
            }
            _ => false,
        }
}
