//! The matcher: one place in the program, one in the text, and a stack of where else to go.
//!
//! A search that takes many steps begins to remember where it has been: from the same place in the
//! program and in the text nothing else can come, so that it takes at most as many steps as there
//! are such pairs. Only where a pattern refers to its groups does what came before count, too.

use super::budget::{Budget, Exhausted};
use super::class::{Property, lower};
use super::compile::{Instruction, NO_MARK, One, Program};
use super::parse::Assert;
use super::{Spans, before, decode};

/// Bytes passed over that count as a step.
const BYTES_A_STEP: usize = 16;
/// Bytes compared at once that count as a step.
const COMPARED_A_STEP: usize = 64;
/// Characters gone back over that count as a step.
const BACK_A_STEP: usize = 4;
/// Places to go back to.
const STACK_MAX: usize = 250_000;
/// Steps of a search from which on it remembers where it has been.
const UNMARKED_STEPS: u64 = 1_000;
/// Pairs of a place in the program and one in the text that it may remember.
const MARKS_MAX: usize = 8 * 1_024 * 1_024;
/// Room for so many of them costs a step.
const MARKS_A_STEP: usize = 4_096;

const NONE: usize = usize::MAX;

pub(super) fn find(
    program: &Program,
    text: &[u8],
    from: usize,
    budget: &mut Budget,
) -> Result<Option<Spans>, Exhausted> {
    search(program, (text, from), budget, UNMARKED_STEPS)
}

/// Finds the first match; after so many steps it remembers where it has been.
pub(super) fn search(
    program: &Program,
    (text, from): (&[u8], usize),
    budget: &mut Budget,
    unmarked: u64,
) -> Result<Option<Spans>, Exhausted> {
    let mut runner = Runner::new(program, text, from, budget);
    runner.unmarked = unmarked;
    let mut at = from;
    while at <= text.len() {
        if let Some(first) = &program.first {
            let rest = text.get(at..).unwrap_or_default();
            let rest = match program.is_anchored {
                true => rest.get(..1).unwrap_or_default(),
                false => rest,
            };
            let may = |byte: &u8| first.get(usize::from(*byte)) == Some(&true);
            let skipped = rest.iter().position(may);
            let passed = skipped.unwrap_or(rest.len());
            runner.budget.take((passed / BYTES_A_STEP) as u64)?;
            match skipped {
                Some(skipped) => at += skipped,
                None => return Ok(None),
            }
        }
        if let Some(spans) = runner.try_at(at)? {
            return Ok(Some(spans));
        }
        if program.is_anchored {
            return Ok(None);
        }
        at += decode(text, at).map_or(1, |(_, length)| length);
    }
    Ok(None)
}

pub(super) fn find_last(
    program: &Program,
    text: &[u8],
    from: usize,
    budget: &mut Budget,
) -> Result<Option<Spans>, Exhausted> {
    let mut at = from.min(text.len());
    let mut runner = Runner::new(program, text, at, budget);
    loop {
        if let Some(spans) = runner.try_at(at)? {
            return Ok(Some(spans));
        }
        match before(text, at) {
            Some(earlier) => at = earlier,
            None => return Ok(None),
        }
    }
}

/// Somewhere to go back to.
enum Frame {
    /// The other way of a split.
    Branch { step: usize, at: usize },
    /// What a slot held before.
    Restore { slot: usize, was: usize },
    /// A run that may be shorter.
    Run {
        step: usize,
        at: usize,
        least: usize,
    },
}

struct Runner<'a> {
    program: &'a Program,
    text: &'a [u8],
    /// Where the search began.
    from: usize,
    budget: &'a mut Budget,
    slots: Vec<usize>,
    stack: Vec<Frame>,
    /// Steps until it begins to remember where it has been.
    unmarked: u64,
    /// A bit for each pair that may be remembered; none before that.
    marks: Vec<u64>,
    /// How many matches of their own are being looked for within each other.
    asides: usize,
    /// A run that was too short, where it began and where it ended.
    short: Option<(usize, usize, usize)>,
}

impl<'a> Runner<'a> {
    fn new(program: &'a Program, text: &'a [u8], from: usize, budget: &'a mut Budget) -> Self {
        Self {
            program,
            text,
            from,
            budget,
            slots: Vec::new(),
            stack: Vec::new(),
            unmarked: UNMARKED_STEPS,
            marks: Vec::new(),
            asides: 0,
            short: None,
        }
    }

    fn try_at(&mut self, at: usize) -> Result<Option<Spans>, Exhausted> {
        self.stack.clear();
        self.slots.clear();
        self.slots.resize(self.program.slots, NONE);
        self.set(0, at);
        let Some(end) = self.run(0, at)? else {
            return Ok(None);
        };
        self.set(1, end);
        let span = |group: usize| {
            let slot = |at: usize| self.slots.get(at).copied().filter(|at| *at != NONE);
            Some((slot(2 * group)?, slot(2 * group + 1)?))
        };
        Ok(Some(Spans((0..=self.program.groups).map(span).collect())))
    }

    fn set(&mut self, slot: usize, value: usize) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = value;
        }
    }

    fn slot(&self, slot: usize) -> usize {
        self.slots.get(slot).copied().unwrap_or(NONE)
    }

    /// Changes a slot so that going back undoes it.
    fn save(&mut self, slot: usize, value: usize) -> Result<(), Exhausted> {
        let was = self.slot(slot);
        self.push(Frame::Restore { slot, was })?;
        self.set(slot, value);
        Ok(())
    }

    fn push(&mut self, frame: Frame) -> Result<(), Exhausted> {
        if self.stack.len() >= STACK_MAX {
            return Err(Exhausted);
        }
        self.stack.push(frame);
        Ok(())
    }

    /// Begins to remember where it has been, if there is room for that.
    fn begin_marks(&mut self) -> Result<(), Exhausted> {
        let count = self.program.marks.as_ref().map_or(0, |marks| marks.count);
        let bits = count.saturating_mul(self.text.len() + 1);
        if bits <= MARKS_MAX {
            self.budget.take((bits / MARKS_A_STEP) as u64)?;
            self.marks = vec![0; bits.div_ceil(64)];
        }
        Ok(())
    }

    /// The bit of a step here; none where none is kept.
    fn bit(&self, step: usize, at: usize) -> Option<usize> {
        if self.marks.is_empty() || self.asides > 0 {
            return None;
        }
        let mark = *self.program.marks.as_ref()?.of_step.get(step)?;
        let mark = usize::try_from(mark).ok().filter(|_| mark != NO_MARK)?;
        Some(mark * (self.text.len() + 1) + at)
    }

    /// Whether it has been here before.
    fn was_here(&self, step: usize, at: usize) -> bool {
        let bit = self.bit(step, at);
        let has = |bit: usize| {
            let word = self.marks.get(bit / 64);
            word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
        };
        bit.is_some_and(has)
    }

    /// Whether it has been here before; it has been from now on.
    fn comes_again(&mut self, step: usize, at: usize) -> bool {
        let Some(bit) = self.bit(step, at) else {
            return false;
        };
        let was_here = self.was_here(step, at);
        if let Some(word) = self.marks.get_mut(bit / 64) {
            *word |= 1 << (bit % 64);
        }
        was_here
    }

    /// From a step on to its `Match`; the end, if it comes there.
    fn run(&mut self, mut step: usize, mut at: usize) -> Result<Option<usize>, Exhausted> {
        let base = self.stack.len();
        loop {
            self.budget.take(1)?;
            self.unmarked = self.unmarked.saturating_sub(1);
            if self.unmarked == 0 && self.marks.is_empty() {
                self.unmarked = u64::MAX;
                self.begin_marks()?;
            }
            let program = self.program;
            let next = match program.steps.get(step) {
                Some(Instruction::Match) | None => return Ok(Some(at)),
                Some(other) => self.step(other, step, at)?,
            };
            (step, at) = match next.or_else(|| self.back(base)) {
                Some(place) => place,
                None => return Ok(None),
            };
        }
    }

    /// The next place to go on at, down to the stack's `base`.
    fn back(&mut self, base: usize) -> Option<(usize, usize)> {
        while self.stack.len() > base {
            match self.stack.pop()? {
                Frame::Restore { slot, was } => self.set(slot, was),
                Frame::Branch { step, at } => return Some((step, at)),
                Frame::Run { step, at, least } => {
                    let Some(at) = before(self.text, at).filter(|at| *at >= least) else {
                        continue;
                    };
                    if at > least {
                        self.stack.push(Frame::Run { step, at, least });
                    }
                    // The step before is the run.
                    if self.comes_again(step.saturating_sub(1), at) {
                        continue;
                    }
                    return Some((step, at));
                }
            }
        }
        None
    }

    /// Does a step; `None` where it does not match.
    fn step(
        &mut self,
        step: &Instruction,
        number: usize,
        at: usize,
    ) -> Result<Option<(usize, usize)>, Exhausted> {
        Ok(match step {
            Instruction::Bytes(bytes) => {
                self.budget.take((bytes.len() / COMPARED_A_STEP) as u64)?;
                let rest = self.text.get(at..).unwrap_or_default();
                rest.starts_with(bytes)
                    .then_some((number + 1, at + bytes.len()))
            }
            Instruction::One(one) => one
                .at(self.text, at)
                .map(|length| (number + 1, at + length)),
            Instruction::Run {
                one,
                least,
                most,
                possessive,
            } => self.runs(one, (*least, *most, *possessive), number, at)?,
            Instruction::Split(..) | Instruction::Choose(_) if self.comes_again(number, at) => None,
            Instruction::Split(first, second) => {
                self.push(Frame::Branch { step: *second, at })?;
                Some((*first, at))
            }
            Instruction::Choose(choices) => self.branches(choices.before(self.text.get(at)), at)?,
            Instruction::Jump(to) => Some((*to, at)),
            Instruction::Save(slot) => {
                self.save(*slot, at)?;
                Some((number + 1, at))
            }
            Instruction::Assert(assert) => self.holds(*assert, at).then_some((number + 1, at)),
            Instruction::Back(groups, folds) => {
                self.again(groups, *folds, at)?.map(|end| (number + 1, end))
            }
            Instruction::Look { look, width, next } => {
                self.budget.take((*width / BACK_A_STEP) as u64)?;
                let found = match self.start(at, *width) {
                    Some(start) => self.aside(number + 1, start, look.negative)?,
                    None => None,
                };
                (found.is_some() != look.negative).then_some((*next, at))
            }
            Instruction::Atomic { next } => {
                self.aside(number + 1, at, false)?.map(|end| (*next, end))
            }
            Instruction::Keep => {
                self.save(0, at)?;
                Some((number + 1, at))
            }
            Instruction::If(groups, otherwise) => {
                let is_met = groups.iter().any(|group| self.slot(2 * group + 1) != NONE);
                Some((if is_met { number + 1 } else { *otherwise }, at))
            }
            Instruction::Again { slot, begin } => match self.slot(*slot) == at {
                true => Some((number + 1, at)),
                false => Some((*begin, at)),
            },
            Instruction::Match => Some((number, at)),
        })
    }

    /// Goes on after as many as can be, and comes back for fewer.
    fn runs(
        &mut self,
        one: &One,
        (least, most, possessive): (u32, u32, bool),
        number: usize,
        at: usize,
    ) -> Result<Option<(usize, usize)>, Exhausted> {
        let is_endless = most == u32::MAX && !possessive;
        let Some((end, enough)) = self.run_of(one, (least, most, is_endless), number, at)? else {
            return Ok(None);
        };
        if possessive {
            return Ok(Some((number + 1, end)));
        }
        if end > enough {
            self.push(Frame::Run {
                step: number + 1,
                at: end,
                least: enough,
            })?;
        }
        let comes_again = self.comes_again(number, end);
        Ok((!comes_again).then_some((number + 1, end)))
    }

    /// Goes on with the first of these steps, and comes back for the others.
    fn branches(
        &mut self,
        steps: &[usize],
        at: usize,
    ) -> Result<Option<(usize, usize)>, Exhausted> {
        let Some((first, rest)) = steps.split_first() else {
            return Ok(None);
        };
        for step in rest.iter().rev() {
            self.push(Frame::Branch { step: *step, at })?;
        }
        Ok(Some((*first, at)))
    }

    /// As many as can be: the end, and the end of the fewest; `None` where there are too few.
    ///
    /// A run without an end goes on from where it came before, for whatever lies beyond was tried.
    fn run_of(
        &mut self,
        one: &One,
        (least, most, is_endless): (u32, u32, bool),
        number: usize,
        at: usize,
    ) -> Result<Option<(usize, usize)>, Exhausted> {
        let is_short =
            |(run, from, to): (usize, usize, usize)| run == number && (from..=to).contains(&at);
        if self.short.is_some_and(is_short) {
            return Ok(None);
        }
        let (mut end, mut enough, mut count) = (at, at, 0);
        while count < most {
            if is_endless && count >= least && self.was_here(number, end) {
                break;
            }
            let Some(length) = one.at(self.text, end) else {
                break;
            };
            end += length;
            count += 1;
            if count == least {
                enough = end;
            }
        }
        self.budget.take(u64::from(count) / 4)?;
        if count < least {
            self.short = Some((number, at, end));
            return Ok(None);
        }
        Ok(Some((end, enough)))
    }

    /// Where to begin so as to end here after `width` characters.
    fn start(&self, at: usize, width: usize) -> Option<usize> {
        let mut start = at;
        for _ in 0..width {
            start = before(self.text, start)?;
        }
        Some(start)
    }

    /// A match of its own: nothing in it is gone back to. What it remembered stays, unless it only
    /// was to fail.
    fn aside(&mut self, step: usize, at: usize, forgets: bool) -> Result<Option<usize>, Exhausted> {
        let base = self.stack.len();
        // What is found here does not say that nothing comes of it elsewhere.
        self.asides += 1;
        let end = self.run(step, at);
        self.asides -= 1;
        let end = end?;
        if end.is_some() && forgets {
            while self.stack.len() > base {
                if let Some(Frame::Restore { slot, was }) = self.stack.pop() {
                    self.set(slot, was);
                }
            }
        } else if end.is_some() {
            let frames = self.stack.split_off(base);
            let restores = frames
                .into_iter()
                .filter(|frame| matches!(frame, Frame::Restore { .. }));
            self.stack.extend(restores);
        }
        Ok(end)
    }

    /// What a group matched, once more.
    fn again(
        &mut self,
        groups: &[usize],
        folds: bool,
        at: usize,
    ) -> Result<Option<usize>, Exhausted> {
        for group in groups.iter().rev() {
            let (from, to) = (self.slot(2 * group), self.slot(2 * group + 1));
            if from == NONE || to == NONE || to < from {
                continue;
            }
            let wanted = self.text.get(from..to).unwrap_or_default();
            self.budget.take((wanted.len() / BYTES_A_STEP) as u64)?;
            let rest = self.text.get(at..).unwrap_or_default();
            if rest.starts_with(wanted) {
                return Ok(Some(at + wanted.len()));
            }
            if folds && let Some(length) = same_folded(wanted, rest) {
                return Ok(Some(at + length));
            }
        }
        Ok(None)
    }

    fn holds(&self, assert: Assert, at: usize) -> bool {
        let earlier = at.checked_sub(1).and_then(|before| self.text.get(before));
        let here = self.text.get(at);
        match assert {
            Assert::LineStart => earlier.is_none_or(|byte| *byte == b'\n' && here.is_some()),
            Assert::LineEnd => here.is_none_or(|byte| *byte == b'\n'),
            Assert::TextStart => at == 0,
            Assert::TextEnd => here.is_none(),
            Assert::LastLineEnd => {
                here.is_none() || (*self.text.get(at..).unwrap_or_default() == *b"\n")
            }
            Assert::Boundary => self.is_boundary(at),
            Assert::NoBoundary => !self.is_boundary(at),
            Assert::SearchStart => at == self.from,
        }
    }

    fn is_boundary(&self, at: usize) -> bool {
        let is_word = |at: Option<usize>| {
            let code = at.and_then(|at| decode(self.text, at));
            code.is_some_and(|(code, _)| Property::Word.holds(code))
        };
        is_word(before(self.text, at)) != is_word(Some(at))
    }
}

impl One {
    /// How long the character here is, if it is one of these.
    fn at(&self, text: &[u8], at: usize) -> Option<usize> {
        if let Self::Byte(byte) = self {
            return (text.get(at) == Some(byte)).then_some(1);
        }
        let (code, length) = decode(text, at)?;
        let is = match self {
            Self::Folded(wanted) => lower(code) == *wanted,
            Self::Char(wanted) => code == *wanted,
            Self::Byte(_) => false,
            Self::Any(newline) => *newline || code != 10,
            Self::Set(class, folds) => class.has(code, *folds),
        };
        is.then_some(length)
    }
}

/// How much of `text` is `wanted` in whatever case.
fn same_folded(wanted: &[u8], text: &[u8]) -> Option<usize> {
    let (mut at, mut end) = (0, 0);
    while let Some((code, length)) = decode(wanted, at) {
        let (found, found_length) = decode(text, end)?;
        if lower(code) != lower(found) {
            return None;
        }
        at += length;
        end += found_length;
    }
    Some(end)
}
