//! Every method of every class, with receivers, arguments and blocks nobody thought of: whatever a
//! script calls, it raises or answers, and the process goes on.
//!
//! What happens follows from a seed alone. A round is one interpreter and some scripts in it; what
//! runs is written down before, so that a round that ended the process is told by
//! `target/tmp/method-fuzz.rb`, and runs again with `NAGAYA_FUZZ_SEED=N NAGAYA_FUZZ_S=1`, or with
//! `NAGAYA_FUZZ_FILE=FILE` once somebody has made it shorter.
//! `NAGAYA_FUZZ_S` says for how many seconds; the long run sets it to 3600, under AddressSanitizer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::bed::{self, code, on_a_worker, settings};
use crate::fuzz::{self, Random, Writer};
use script::{Datum, Interpreter, Phase, Read, Reader, Settings, Step, Trial, Waiting};
use testkit::alone;

/// Rounds, unless the long run says otherwise.
const USUAL_ROUNDS: u64 = 12;
const SCRIPTS: usize = 12;
const BETWEEN: &str = "# ----\n";
/// Waits of one script that are waited for.
const WAITS_MAX: usize = 8;
/// A round takes a part of a second. Whoever takes this long is inside something without end.
const ROUND_MAX: Duration = Duration::from_secs(300);

/// Panics of natives, which an interpreter catches.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Classes and modules of an interpreter with the methods that each has itself, a line each:
/// `NAME i METHOD...`, and `NAME c METHOD...` for those of the class.
const LOOK_AROUND: &str = r##"
seen = {}
found = []
look = lambda do |outer, prefix|
  Module.instance_method(:constants).bind(outer).call.each do |name|
    thing = outer.const_get(name) rescue next
    next if !thing.is_a?(Module) || seen[thing.object_id]
    seen[thing.object_id] = true
    full = prefix + name.to_s
    found << "#{full} i #{thing.instance_methods(false).join(" ")}"
    found << "#{full} c #{thing.singleton_methods(false).join(" ")}"
    look.call(thing, full + "::")
  end
end
seen[Object.object_id] = true
found << "Object i #{Object.instance_methods(false).join(" ")}"
look.call(Object, "")
found
"##;

struct Nothing;

impl Reader for Nothing {
    fn read(&self, _path: &Path, _bytes_max: usize) -> Waiting<io::Result<Read>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::NotFound.into())))
    }

    fn changed(&self, _path: &Path) -> Waiting<io::Result<SystemTime>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::NotFound.into())))
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn written_down() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("method-fuzz.rb")
}

/// Now and then an interpreter that is nearly full, or whose scripts have little time.
fn budgets(random: &mut Random) -> Settings {
    let mut settings = settings();
    settings.reader = Rc::new(Nothing);
    let patience = u32::try_from(number("NAGAYA_PATIENCE").unwrap_or(1)).unwrap_or(1);
    settings.budgets.cpu = Duration::from_millis([1, 5, 5, 20][random.below(4)]) * patience;
    settings.budgets.memory_bytes = [4, 5, 6, 8, 16, 64][random.below(6)] << 20;
    settings
}

fn known() -> Vec<String> {
    on_a_worker(async {
        let interpreter = bed::patient();
        let mut request = Trial::get("/");
        let ran = bed::run(&interpreter, LOOK_AROUND, &mut request).await;
        let Datum::Array(lines) = ran.unwrap().value else {
            panic!("a list of classes");
        };
        let text = |line: Datum| match line {
            Datum::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        lines.into_iter().map(text).collect()
    })
}

/// A round of the scripts that a file holds.
async fn again(file: &str) {
    let text = fs::read_to_string(file).unwrap();
    let mut settings = settings();
    settings.reader = Rc::new(Nothing);
    settings.budgets.cpu = Duration::from_millis(100);
    let interpreter = Interpreter::open(settings, Arc::default()).unwrap();
    let hostile = (Phase::Init, code(fuzz::HOSTILE));
    interpreter.start(vec![hostile]).await.unwrap();
    for script in text.split(BETWEEN) {
        run(&interpreter, script, &mut Random::new(0)).await;
    }
}

async fn round(seed: u64, known: &[String]) {
    let mut random = Random::new(seed);
    let settings = budgets(&mut random);
    let mut told = format!("# NAGAYA_FUZZ_SEED={seed} NAGAYA_FUZZ_S=1\n");
    let Ok(interpreter) = Interpreter::open(settings, Arc::default()) else {
        return;
    };
    let mut starters = vec![(Phase::Init, code(fuzz::HOSTILE))];
    if random.below(3) == 0 {
        starters.push((
            Phase::WorkerInit,
            code("GC.interval_ratio = 0; GC.step_ratio = 1000"),
        ));
        told.push_str("GC.interval_ratio = 0; GC.step_ratio = 1000\n");
    }
    if interpreter.start(starters).await.is_err() {
        return;
    }
    for _ in 0..SCRIPTS {
        let text = Writer::new(&mut random, known).script();
        told.push_str(BETWEEN);
        told.push_str(&text);
        fs::write(written_down(), &told).unwrap();
        run(&interpreter, &text, &mut random).await;
    }
}

/// Runs a script. Most of its waits are given up; those that end at once go on.
async fn run(interpreter: &Rc<Interpreter>, text: &str, random: &mut Random) {
    let mut request = Trial::get("/a.php?x=1&y=%zz");
    request.body = b"a=1&b=2".to_vec();
    let Ok(mut run) = interpreter.begin(Phase::Access, &code(text)).await else {
        return;
    };
    for _ in 0..WAITS_MAX {
        match run.step(Some(&mut request)) {
            Ok(Step::Waits(wait)) if wait.needs_request() && random.below(4) > 0 => {
                if run.wait(wait, Some(&mut request)).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

/// Ends the process when a round does not end, which nothing else could.
fn watch(beats: &mpsc::Receiver<u64>) {
    let mut seed = 0;
    loop {
        match beats.recv_timeout(ROUND_MAX) {
            Ok(next) => seed = next,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("round {seed} does not end");
                std::process::abort();
            }
        }
    }
}

#[test]
fn no_method_of_any_class_ends_the_process() {
    alone(|| {
        let usual_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Relaxed);
            usual_hook(panic);
        }));
        if let Ok(file) = env::var("NAGAYA_FUZZ_FILE") {
            return on_a_worker(again(&file));
        }
        let known = known();
        assert!(
            known.iter().any(|line| line.starts_with("Proc i ")),
            "{known:?}"
        );
        let first = number("NAGAYA_FUZZ_SEED").unwrap_or(1);
        let until = number("NAGAYA_FUZZ_S").map(|s| Instant::now() + Duration::from_secs(s));
        let (beat, beats) = mpsc::channel();
        let watching = thread::spawn(move || watch(&beats));
        let mut seed = first;
        loop {
            beat.send(seed).unwrap();
            on_a_worker(round(seed, &known));
            assert_eq!(
                PANICS.load(Relaxed),
                0,
                "a native panicked in round {seed}: {:?}",
                written_down()
            );
            seed += 1;
            let over = match until {
                Some(until) => Instant::now() >= until,
                None => seed - first >= USUAL_ROUNDS,
            };
            if over {
                break;
            }
        }
        drop(beat);
        watching.join().unwrap();
        println!("{} rounds from {first} on", seed - first);
    });
}
