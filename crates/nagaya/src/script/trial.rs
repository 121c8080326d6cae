//! `nagaya script run`: once with its instructions counted, then by the clock.
//!
//! Counting is slow, so that the runs that are timed have an interpreter of their own, and log
//! nothing: their lines would be the same, and writing them would be measured.

use std::rc::Rc;
use std::time::{Duration, Instant};

use script::{Budgets, Failure, Interpreter, Phase, Ran, Request, Script, Trial};
use tracing::subscriber::NoSubscriber;

use super::report::{self, Cost};
use super::text::Text;
use super::{RunOptions, failed, made_up, open};
use crate::outcome::{Outcome, complain, print};

/// Timed runs end after so long, however many were asked for.
const TIMED_MAX: Duration = Duration::from_secs(10);
/// How long the last log lines may take.
const FLUSH: Duration = Duration::from_secs(1);

/// Runs a script and shows what it did.
pub(super) async fn run(options: &RunOptions) -> Outcome {
    error_log::start("script");
    let texts = match Texts::read(options) {
        Ok(texts) => texts,
        Err(told) => {
            complain(&told);
            return Outcome::Failed;
        }
    };
    let before = made_up::request(options);
    let mut request = made_up::request(options);
    let counted = counted(options, &texts, request.as_mut()).await;
    error_log::flush(FLUSH);
    let (ran, instructions) = match counted {
        Ok(counted) => counted,
        Err(failure) => {
            let shown = report::done(None, before.as_ref(), request.as_mut());
            print(shown.as_bytes());
            return failed(&failure);
        }
    };
    let mut shown = report::done(Some(&ran.value), before.as_ref(), request.as_mut());
    match timed(options, &texts).await {
        Ok(mut cost) => {
            cost.instructions = instructions;
            shown.push_str(&report::cost(&cost));
            print(shown.as_bytes())
        }
        Err(failure) => {
            print(shown.as_bytes());
            failed(&failure)
        }
    }
}

/// The script, and those that run before it.
struct Texts {
    script: Text,
    before: Vec<Text>,
}

impl Texts {
    fn read(options: &RunOptions) -> Result<Self, String> {
        let before = options.init.iter().map(|file| Text::read(file));
        Ok(Self {
            before: before.collect::<Result<_, _>>()?,
            script: Text::read(&options.file)?,
        })
    }

    /// An interpreter in which those have run.
    async fn open(&self, options: &RunOptions) -> Result<Rc<Interpreter>, Failure> {
        let interpreter = open(options.server, Budgets::default(), &options.env)?;
        let before = self.before.iter();
        let starters = before.map(|text| (Phase::WorkerInit, text.script()));
        interpreter.start(starters.collect()).await?;
        Ok(interpreter)
    }
}

/// Runs it once; how many instructions that took.
async fn counted(
    options: &RunOptions,
    texts: &Texts,
    request: Option<&mut Trial>,
) -> Result<(Ran, u64), Failure> {
    let interpreter = texts.open(options).await?;
    let script = texts.script.script();
    interpreter.check(&script).await?;
    interpreter.count_instructions();
    let before = interpreter.instructions();
    let ran = once(&interpreter, options.phase, &script, request).await?;
    Ok((ran, interpreter.instructions() - before))
}

/// Runs it as often as asked.
async fn timed(options: &RunOptions, texts: &Texts) -> Result<Cost, Failure> {
    let _quiet = tracing::subscriber::set_default(NoSubscriber::default());
    let interpreter = texts.open(options).await?;
    let script = texts.script.script();
    let started = Instant::now();
    interpreter.check(&script).await?;
    let compiled = started.elapsed();
    let mut runs = Vec::new();
    let end = Instant::now() + TIMED_MAX;
    while runs.len() < options.times as usize && Instant::now() < end {
        let mut request = made_up::request(options);
        let started = Instant::now();
        once(&interpreter, options.phase, &script, request.as_mut()).await?;
        runs.push(started.elapsed());
    }
    Ok(Cost {
        name: texts.script.name().to_owned(),
        instructions: 0,
        compiled,
        runs,
        memory_bytes: interpreter.memory_bytes(),
    })
}

async fn once(
    interpreter: &Rc<Interpreter>,
    phase: Phase,
    script: &Script,
    request: Option<&mut Trial>,
) -> Result<Ran, Failure> {
    let request = request.map(|request| request as &mut (dyn Request + 'static));
    interpreter.run(phase, script, request).await
}
