//! A tree made into a program for the matcher.

use std::collections::HashMap;
use std::sync::Arc;

use super::Syntax;
use super::choices::Choices;
use super::class::{Class, lower};
use super::parse::{Assert, Look, Manner, Node, Parsed, Reference};

/// Instructions of one program.
const INSTRUCTIONS_MAX: usize = 20_000;
/// Those of most: room for them is made at once.
const USUAL_STEPS: usize = 16;
/// A step at which no place is remembered.
pub(super) const NO_MARK: u32 = u32::MAX;

/// One step of the matcher.
#[derive(Debug, Clone)]
pub(super) enum Instruction {
    /// These bytes.
    Bytes(Box<[u8]>),
    One(One),
    /// One character again and again, as often as can be, back one by one.
    Run {
        one: One,
        least: u32,
        most: u32,
        possessive: bool,
    },
    /// The first, and if that comes to nothing the second.
    Split(usize, usize),
    /// The branches that the next byte leaves, one after the other.
    Choose(Box<Choices>),
    Jump(usize),
    /// Remembers the place.
    Save(usize),
    Assert(Assert),
    Back(Vec<usize>, bool),
    /// What follows, up to its `Match`, then goes on at `next`.
    Look {
        look: Look,
        width: usize,
        next: usize,
    },
    Atomic {
        next: usize,
    },
    /// Begins the match here.
    Keep,
    /// Goes on here if one of the groups was met, and there if none was.
    If(Vec<usize>, usize),
    /// Goes back to the loop's begin, unless nothing was matched since `slot` was saved.
    Again {
        slot: usize,
        begin: usize,
    },
    Match,
}

/// One character.
#[derive(Debug, Clone)]
pub(super) enum One {
    /// In lower case, compared so.
    Folded(u32),
    Char(u32),
    Byte(u8),
    Any(bool),
    Set(Arc<Class>, bool),
}

/// The steps at which the matcher may remember that it has been there.
#[derive(Debug)]
pub(super) struct Marks {
    /// The number of each step's mark; [`NO_MARK`] of most.
    pub(super) of_step: Box<[u32]>,
    pub(super) count: usize,
}

impl Marks {
    /// None where what follows a place may depend on what groups have met before.
    fn new(steps: &[Instruction]) -> Option<Self> {
        let is_by_group =
            |step: &Instruction| matches!(step, Instruction::Back(..) | Instruction::If(..));
        if steps.iter().any(is_by_group) {
            return None;
        }
        let mut count = 0;
        let mark = |step: &Instruction| {
            let is_marked = matches!(
                step,
                Instruction::Split(..) | Instruction::Choose(_) | Instruction::Run { .. }
            );
            count += u32::from(is_marked);
            if is_marked { count - 1 } else { NO_MARK }
        };
        let of_step = steps.iter().map(mark).collect();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some(Self { of_step, count })
    }
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) steps: Box<[Instruction]>,
    pub(super) groups: usize,
    pub(super) names: Vec<(String, Vec<usize>)>,
    /// Places that are remembered, those of loops too.
    pub(super) slots: usize,
    /// The bytes a match may begin with; none known where it may be empty.
    pub(super) first: Option<Box<[bool; 256]>>,
    /// It can only match at the beginning.
    pub(super) is_anchored: bool,
    pub(super) marks: Option<Marks>,
}

struct Compiler {
    steps: Vec<Instruction>,
    groups: usize,
    slots: usize,
    names: HashMap<String, Vec<usize>>,
}

pub(super) fn compile(parsed: Parsed) -> Result<Program, Syntax> {
    let mut compiler = Compiler {
        steps: Vec::with_capacity(USUAL_STEPS),
        groups: parsed.groups,
        slots: 2 * (parsed.groups + 1),
        names: parsed.names.iter().cloned().collect(),
    };
    compiler.node(&parsed.node)?;
    compiler.add(Instruction::Match)?;
    let mut first = Box::new([false; 256]);
    let may_be_empty = may_begin(&parsed.node, &mut first);
    Ok(Program {
        is_anchored: is_anchored(&parsed.node),
        marks: Marks::new(&compiler.steps),
        steps: compiler.steps.into(),
        groups: parsed.groups,
        names: parsed.names,
        slots: compiler.slots,
        first: (!may_be_empty).then_some(first),
    })
}

impl Program {
    pub(super) fn bytes(&self) -> usize {
        let more = self.steps.iter().map(|step| match step {
            Instruction::Choose(choices) => choices.bytes(),
            Instruction::Bytes(bytes) => bytes.len(),
            _ => 0,
        });
        let step = size_of::<Instruction>() + size_of::<u32>();
        self.steps.len() * step + more.sum::<usize>() + 512
    }
}

impl Compiler {
    fn add(&mut self, step: Instruction) -> Result<usize, Syntax> {
        if self.steps.len() >= INSTRUCTIONS_MAX {
            return Err(Syntax(format!(
                "it would take more than {INSTRUCTIONS_MAX} instructions: count less"
            )));
        }
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }

    fn here(&self) -> usize {
        self.steps.len()
    }

    fn put(&mut self, at: usize, step: Instruction) {
        if let Some(place) = self.steps.get_mut(at) {
            *place = step;
        }
    }

    fn node(&mut self, node: &Node) -> Result<(), Syntax> {
        match node {
            Node::Empty => {}
            Node::Char(..) | Node::Byte(_) | Node::Any(_) | Node::Set(..) => {
                if let Some(one) = one(node) {
                    self.add(Instruction::One(one))?;
                }
            }
            Node::Assert(assert) => {
                self.add(Instruction::Assert(*assert))?;
            }
            Node::Group(number, inner) => {
                self.add(Instruction::Save(2 * number))?;
                self.node(inner)?;
                self.add(Instruction::Save(2 * number + 1))?;
            }
            Node::Concat(all) => self.concat(all)?,
            Node::Alternate(all) => self.alternate(all)?,
            Node::Repeat(inner, least, most, manner) => {
                self.repeat(inner, *least, *most, *manner)?
            }
            Node::Back(reference, folds) => {
                let groups = self.resolve(reference)?;
                self.add(Instruction::Back(groups, *folds))?;
            }
            Node::Look(inner, look) => self.look(inner, *look)?,
            Node::Atomic(inner) => self.atomic(|this| this.node(inner))?,
            Node::Keep => {
                self.add(Instruction::Keep)?;
            }
            Node::If(reference, yes, no) => {
                let groups = self.resolve(reference)?;
                let condition = self.add(Instruction::Match)?;
                self.node(yes)?;
                let over = self.add(Instruction::Match)?;
                self.put(condition, Instruction::If(groups, over + 1));
                self.node(no)?;
                self.put(over, Instruction::Jump(self.here()));
            }
        }
        Ok(())
    }

    /// Characters in a row become one step.
    fn concat(&mut self, all: &[Node]) -> Result<(), Syntax> {
        let mut bytes = Vec::new();
        for node in all {
            match node {
                Node::Char(code, folds) if !folds || !has_case(*code) => {
                    push_code(*code, &mut bytes)
                }
                Node::Byte(byte) => bytes.push(*byte),
                other => {
                    self.bytes(&mut bytes)?;
                    self.node(other)?;
                }
            }
        }
        self.bytes(&mut bytes)
    }

    fn bytes(&mut self, bytes: &mut Vec<u8>) -> Result<(), Syntax> {
        if !bytes.is_empty() {
            let bytes = std::mem::take(bytes);
            self.add(Instruction::Bytes(bytes.into_boxed_slice()))?;
        }
        Ok(())
    }

    fn alternate(&mut self, all: &[Node]) -> Result<(), Syntax> {
        if let Some(choices) = Choices::new(all) {
            return self.choose(all, choices);
        }
        let mut ends = Vec::new();
        for (at, node) in all.iter().enumerate() {
            if at + 1 == all.len() {
                self.node(node)?;
                break;
            }
            let split = self.add(Instruction::Match)?;
            self.node(node)?;
            ends.push(self.add(Instruction::Match)?);
            self.put(split, Instruction::Split(split + 1, self.here()));
        }
        for end in ends {
            self.put(end, Instruction::Jump(self.here()));
        }
        Ok(())
    }

    /// Branches that the next byte chooses among.
    fn choose(&mut self, all: &[Node], mut choices: Choices) -> Result<(), Syntax> {
        let choose = self.add(Instruction::Match)?;
        let (mut begins, mut ends) = (Vec::new(), Vec::new());
        for node in all {
            begins.push(self.here());
            self.node(node)?;
            ends.push(self.add(Instruction::Match)?);
        }
        for end in ends {
            self.put(end, Instruction::Jump(self.here()));
        }
        choices.lead_to(&begins);
        self.put(choose, Instruction::Choose(Box::new(choices)));
        Ok(())
    }

    fn atomic(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<(), Syntax>,
    ) -> Result<(), Syntax> {
        let atomic = self.add(Instruction::Match)?;
        inner(self)?;
        self.add(Instruction::Match)?;
        self.put(atomic, Instruction::Atomic { next: self.here() });
        Ok(())
    }

    fn repeat(
        &mut self,
        inner: &Node,
        least: u32,
        most: Option<u32>,
        manner: Manner,
    ) -> Result<(), Syntax> {
        if let Some(one) = one(inner)
            && manner != Manner::Lazy
        {
            let possessive = manner == Manner::Possessive;
            let most = most.unwrap_or(u32::MAX);
            self.add(Instruction::Run {
                one,
                least,
                most,
                possessive,
            })?;
            return Ok(());
        }
        if manner == Manner::Possessive {
            return self.atomic(|this| this.repeat(inner, least, most, Manner::Greedy));
        }
        for _ in 0..least {
            self.node(inner)?;
        }
        match most {
            None => self.endless(inner, manner),
            Some(most) => self.optional(inner, most.saturating_sub(least), manner),
        }
    }

    fn endless(&mut self, inner: &Node, manner: Manner) -> Result<(), Syntax> {
        let begin = self.add(Instruction::Match)?;
        let slot = self.slots;
        self.slots += 1;
        self.add(Instruction::Save(slot))?;
        self.node(inner)?;
        self.add(Instruction::Again { slot, begin })?;
        let end = self.here();
        self.put(begin, split(manner, begin + 1, end));
        Ok(())
    }

    /// Up to `count` times: each with all that follow in it.
    fn optional(&mut self, inner: &Node, count: u32, manner: Manner) -> Result<(), Syntax> {
        let mut splits = Vec::new();
        for _ in 0..count {
            splits.push(self.add(Instruction::Match)?);
            self.node(inner)?;
        }
        let end = self.here();
        for at in splits {
            self.put(at, split(manner, at + 1, end));
        }
        Ok(())
    }

    fn look(&mut self, inner: &Node, look: Look) -> Result<(), Syntax> {
        if !look.behind {
            return self.look_once(inner, look, 0);
        }
        let Node::Alternate(all) = inner else {
            return self.look_once(inner, look, fixed(inner)?);
        };
        if look.negative {
            // None of them: one after the other.
            for node in all {
                self.look_once(node, look, fixed(node)?)?;
            }
            return Ok(());
        }
        let mut ends = Vec::new();
        for (at, node) in all.iter().enumerate() {
            let width = fixed(node)?;
            if at + 1 == all.len() {
                self.look_once(node, look, width)?;
                break;
            }
            let split = self.add(Instruction::Match)?;
            self.look_once(node, look, width)?;
            ends.push(self.add(Instruction::Match)?);
            self.put(split, Instruction::Split(split + 1, self.here()));
        }
        for end in ends {
            self.put(end, Instruction::Jump(self.here()));
        }
        Ok(())
    }

    fn look_once(&mut self, inner: &Node, look: Look, width: usize) -> Result<(), Syntax> {
        let at = self.add(Instruction::Match)?;
        self.node(inner)?;
        self.add(Instruction::Match)?;
        self.put(
            at,
            Instruction::Look {
                look,
                width,
                next: self.here(),
            },
        );
        Ok(())
    }

    fn resolve(&self, reference: &Reference) -> Result<Vec<usize>, Syntax> {
        match reference {
            Reference::Number(number) if (1..=self.groups).contains(number) => Ok(vec![*number]),
            Reference::Number(number) => Err(Syntax(format!("there is no group {number}"))),
            Reference::Name(name) => {
                let found = self.names.get(name).cloned();
                found.ok_or_else(|| Syntax(format!("there is no group {name}")))
            }
        }
    }
}

fn split(manner: Manner, inner: usize, over: usize) -> Instruction {
    match manner {
        Manner::Lazy => Instruction::Split(over, inner),
        _ => Instruction::Split(inner, over),
    }
}

fn one(node: &Node) -> Option<One> {
    Some(match node {
        Node::Char(code, true) if has_case(*code) => One::Folded(lower(*code)),
        Node::Char(code, _) => One::Char(*code),
        Node::Byte(byte) => One::Byte(*byte),
        Node::Any(newline) => One::Any(*newline),
        Node::Set(class, folds) => One::Set(Arc::clone(class), *folds),
        _ => return None,
    })
}

fn has_case(code: u32) -> bool {
    let c = char::from_u32(code);
    c.is_some_and(|c| c.is_lowercase() || c.is_uppercase() || lower(code) != code)
}

fn push_code(code: u32, bytes: &mut Vec<u8>) {
    let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// How many characters it takes, if it is always as many.
fn fixed(node: &Node) -> Result<usize, Syntax> {
    width(node).ok_or_else(|| Syntax("what is looked for behind has no fixed length".to_owned()))
}

fn width(node: &Node) -> Option<usize> {
    match node {
        Node::Empty | Node::Assert(_) | Node::Look(..) | Node::Keep => Some(0),
        Node::Char(..) | Node::Any(_) | Node::Set(..) => Some(1),
        Node::Byte(_) | Node::Back(..) | Node::If(..) => None,
        Node::Group(_, inner) | Node::Atomic(inner) => width(inner),
        Node::Concat(all) => all.iter().map(width).sum(),
        Node::Alternate(all) => {
            let mut widths = all.iter().map(width);
            let first = widths.next()??;
            widths.all(|width| width == Some(first)).then_some(first)
        }
        Node::Repeat(inner, least, most, _) => {
            let count = usize::try_from(*least).ok()?;
            (*most == Some(*least)).then_some(width(inner)?.checked_mul(count)?)
        }
    }
}

/// Adds the bytes a match of the node may begin with; tells whether it may be empty.
pub(super) fn may_begin(node: &Node, first: &mut [bool; 256]) -> bool {
    match node {
        Node::Empty | Node::Assert(_) | Node::Look(..) | Node::Keep => true,
        Node::Char(code, false) => {
            let mut bytes = Vec::new();
            push_code(*code, &mut bytes);
            add(first, bytes.first().copied().unwrap_or(0));
            false
        }
        Node::Char(code, _) if *code < 128 => {
            let byte = u8::try_from(*code).unwrap_or_default();
            add(first, byte.to_ascii_lowercase());
            add(first, byte.to_ascii_uppercase());
            // Signs beyond ASCII that are these letters in another case.
            if matches!(byte.to_ascii_lowercase(), b'i' | b'k' | b's') {
                add_codes(first, &|_| false);
            }
            false
        }
        Node::Char(code, folds) => {
            let same = |other: u32| other == *code || (*folds && lower(other) == lower(*code));
            add_codes(first, &same);
            false
        }
        Node::Byte(byte) => {
            add(first, *byte);
            false
        }
        Node::Any(newline) => {
            add_codes(first, &|code| *newline || code != 10);
            false
        }
        Node::Set(class, folds) => {
            add_codes(first, &|code| class.has(code, *folds));
            false
        }
        Node::Group(_, inner) | Node::Atomic(inner) => may_begin(inner, first),
        Node::Concat(nodes) => nodes.iter().all(|node| may_begin(node, first)),
        Node::Alternate(nodes) => {
            let mut may_be_empty = false;
            for node in nodes {
                may_be_empty |= may_begin(node, first);
            }
            may_be_empty
        }
        Node::Repeat(inner, least, ..) => may_begin(inner, first) || *least == 0,
        Node::Back(..) | Node::If(..) => {
            first.fill(true);
            true
        }
    }
}

fn add(first: &mut [bool; 256], byte: u8) {
    if let Some(place) = first.get_mut(usize::from(byte)) {
        *place = true;
    }
}

/// Beyond ASCII every byte is thought possible.
fn add_codes(first: &mut [bool; 256], has: &dyn Fn(u32) -> bool) {
    for (byte, place) in (0u32..).zip(first.iter_mut()) {
        *place |= byte >= 128 || has(byte);
    }
}

fn is_anchored(node: &Node) -> bool {
    match node {
        Node::Assert(Assert::TextStart) => true,
        Node::Group(_, inner) | Node::Atomic(inner) => is_anchored(inner),
        Node::Concat(all) => all.first().is_some_and(is_anchored),
        Node::Alternate(all) => all.iter().all(is_anchored),
        _ => false,
    }
}
