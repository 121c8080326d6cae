//! Interpreters with a small world of their own.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod budgets;
mod fibers;
mod hostile;
mod values;

use std::any::Any;
use std::rc::Rc;
use std::time::Duration;

use crate::{
    Answer, Budget, Call, ClassKind, Datum, Error, Halt, Host, Memory, MethodOf, Resume, Slot,
    Takes, Vm,
};

#[derive(Default)]
struct World {
    finished: Option<Datum>,
    waits: usize,
    cancelled: usize,
    seen: Vec<Datum>,
}

impl Host for World {
    type Lent = String;

    fn cancel_wait(&mut self) {
        self.cancelled += 1;
        self.waits -= 1;
    }
}

const PRELUDE: &str = "
class Box
  def initialize(what); __hold(what); end
end
";

fn opened() -> Vm<World> {
    opened_with(64 << 20)
}

fn opened_with(memory_bytes: usize) -> Vm<World> {
    opened_in(&Memory::of(memory_bytes))
}

/// All scripts but an interpreter's first begin in the way that the first has shown.
fn opened_in(memory: &Rc<Memory>) -> Vm<World> {
    let mut vm = unused_in(memory);
    start(&mut vm, "nil").expect("a script runs");
    vm.host().finished = None;
    vm
}

/// One that has run no script.
fn unused_in(memory: &Rc<Memory>) -> Vm<World> {
    let budget = Budget {
        memory: Rc::clone(memory),
        cpu: Duration::from_millis(5) * patience(),
    };
    let mut vm = Vm::open(World::default(), budget).expect("an interpreter opens");
    let any = Takes {
        least: 0,
        most: 64,
        texts: 0,
    };
    let words = Takes {
        texts: 0xffff,
        ..any
    };
    vm.define("", "Box", "Object", ClassKind::Holding).unwrap();
    let natives: [(&str, &str, MethodOf, Takes, crate::Native<World>); 7] = [
        ("Nagaya", "wait", MethodOf::Class, any, wait),
        ("Nagaya", "see", MethodOf::Class, any, see),
        ("Nagaya", "words", MethodOf::Class, words, see),
        ("Nagaya", "lent", MethodOf::Class, any, lent),
        ("Nagaya", "boom", MethodOf::Class, any, |_| {
            panic!("a native's bug")
        }),
        ("Box", "__hold", MethodOf::Object, any, hold),
        ("Box", "held", MethodOf::Object, any, held),
    ];
    for (class, name, of, takes, native) in natives {
        vm.method(class, name, of, takes, native).unwrap();
    }
    let prelude = vm.compile(PRELUDE.as_bytes(), "prelude.rb", 1).unwrap();
    vm.run(prelude).unwrap();
    vm.unseal();
    vm
}

/// How much longer everything may take than usual: sanitizers are slow.
fn patience() -> u32 {
    let asked = std::env::var("NAGAYA_PATIENCE").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn wait(call: &mut Call<'_, World>) -> Answer {
    call.host.waits += 1;
    Answer::Wait
}

fn see(call: &mut Call<'_, World>) -> Answer {
    for index in 0..call.count() {
        let seen = call.datum(index);
        call.host.seen.push(seen);
    }
    Answer::Argument(0)
}

fn lent(call: &mut Call<'_, World>) -> Answer {
    match call.lent() {
        Some(text) => Answer::Bytes(text.clone().into_bytes()),
        None => Answer::Nil,
    }
}

fn hold(call: &mut Call<'_, World>) -> Answer {
    Answer::Attach(Rc::new(call.datum(0)) as Rc<dyn Any>)
}

fn held(call: &mut Call<'_, World>) -> Answer {
    match call.attached::<Datum>() {
        Some(held) => Answer::Datum((*held).clone()),
        None => Answer::runtime_error("holds nothing"),
    }
}

/// Runs `source` in a fiber up to its end or first wait.
fn start(vm: &mut Vm<World>, source: &str) -> Result<Slot, Error> {
    let script = vm.compile(source.as_bytes(), "script.rb", 1)?;
    let fiber = vm.fiber()?;
    go(vm, fiber, Resume::Script(script))?;
    vm.let_go(script);
    Ok(fiber)
}

/// Goes on with a fiber, and notes what its script ended with.
fn go(vm: &mut Vm<World>, fiber: Slot, with: Resume) -> Result<(), Error> {
    if let Halt::Ended(value) = vm.resume(fiber, with, None)? {
        vm.host().finished = Some(value);
    }
    Ok(())
}

fn value(source: &str) -> Datum {
    let mut vm = opened();
    start(&mut vm, source).unwrap_or_else(|error| panic!("{source}: {error:?}"));
    vm.host()
        .finished
        .take()
        .expect("the script came to its end")
}

fn raised(source: &str) -> (String, String) {
    let mut vm = opened();
    match start(&mut vm, source) {
        Err(Error::Raised(raised)) => {
            alive(&mut vm);
            (raised.class, raised.message)
        }
        other => panic!("{source}: {other:?}"),
    }
}

/// The interpreter goes on as if nothing had been.
fn alive(vm: &mut Vm<World>) {
    start(vm, "1 + 1").expect("the next script runs");
    assert_eq!(vm.host().finished.take(), Some(Datum::Int(2)));
}
