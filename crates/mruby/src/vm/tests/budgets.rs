//! What ends a runaway: CPU time, memory, depth.

use super::*;
use crate::raw::OPENING_BYTES;

#[test]
fn runaways_end_and_the_interpreter_goes_on() {
    for source in [
        "while true; end",
        "loop {}",
        "begin; while true; end; rescue Exception; end; while true; end",
        "begin; while true; end; ensure; while true; end; end",
        "def again; begin; while true; end; ensure; again; end; end; again",
        "loop { begin; while true; end; rescue Exception; retry; end }",
        "x = 'a'; loop { x = x.upcase }",
        "[1].each { |x| [2].cycle { } }",
    ] {
        let (class, message) = raised(source);
        assert_eq!(class, "ScriptBudgetError", "{source}: {message}");
    }
}

#[test]
fn deep_recursion_raises_and_the_interpreter_goes_on() {
    for source in [
        "def deeper; deeper; end; deeper",
        "def f(x); [x].each { |y| f(y) }; end; f(1)",
        "class S; def to_s; \"#{self}\"; end; end; S.new.to_s",
        "a = []; a << a; a.flatten",
        "x = nil; 5000.times { x = [x] }; x.inspect",
        "eval('[' * 20000 + ']' * 20000)",
        "eval('-' * 100000 + '1')",
        "def method_missing(n, *a); send(n.to_s + 'x'); end; foo",
    ] {
        let mut vm = opened();
        if let Err(error) = start(&mut vm, source) {
            assert!(matches!(error, Error::Raised(_)), "{source}: {error}");
        }
        vm.host().finished = None;
        alive(&mut vm);
    }
}

#[test]
fn memory_beyond_the_budget_raises_and_the_interpreter_goes_on() {
    for source in [
        "x = []; while true; x << 'a' * 1_000_000; end",
        "h = {}; i = 0; while true; h[i] = 'a' * 1_000_000; i += 1; end",
        "x = 'a' * 10_000_000; y = []; while true; y << x + 'b'; end",
    ] {
        let mut vm = opened_with(16 << 20);
        match start(&mut vm, source) {
            Err(Error::Raised(raised)) => assert!(
                ["NoMemoryError", "ScriptBudgetError"].contains(&raised.class.as_str()),
                "{source}: {raised:?}"
            ),
            other => panic!("{source}: {other:?}"),
        }
        assert!(vm.bytes() <= 16 << 20);
        vm.collect().unwrap();
        alive(&mut vm);
    }
}

/// Keeps so many texts of a MiB in a global; whether there was room.
fn keep(vm: &mut Vm<World>, texts: usize) -> bool {
    vm.set_cpu(Duration::from_secs(1) * patience());
    let source = format!("$kept = nil; $kept = Array.new({texts}) {{ 'x' * 1_048_576 }}; nil");
    let script = vm.compile(source.as_bytes(), "keep.rb", 1).unwrap();
    let kept = vm.run(script).is_ok();
    vm.let_go(script);
    vm.collect().unwrap();
    kept
}

#[test]
fn one_interpreter_that_takes_all_leaves_a_quarter_to_those_below_their_share() {
    let memory = Memory::of(16 << 20);
    let mut greedy = opened_in(&memory);
    assert!(keep(&mut greedy, 14), "alone it may have all");
    assert!(keep(&mut greedy, 0));
    let mut modest = opened_in(&memory);
    assert!(keep(&mut greedy, 10), "what nobody else has taken");
    assert!(!keep(&mut greedy, 13), "beyond three quarters");
    assert!(keep(&mut greedy, 10));
    assert!(keep(&mut modest, 3), "below its share there is room");
    assert!(memory.bytes() <= 16 << 20);
    assert!(!keep(&mut modest, 8), "even so all together have an end");
    assert!(greedy.bytes() + modest.bytes() == memory.bytes());
    drop(greedy);
    assert_eq!(memory.bytes(), modest.bytes());
    assert!(keep(&mut modest, 14), "alone again");
    modest.give_up();
    let left = (
        memory.bytes(),
        memory.vms(),
        modest.bytes(),
        modest.objects(),
    );
    assert_eq!(left, (0, 0, 0, 0), "one that was given up holds nothing");
}

/// Texts of this many bytes, which lie in blocks of a size of their own, kept in a global.
fn fill(vm: &mut Vm<World>, bytes: usize) {
    let source = format!("$kept = Array.new(4_000) {{ |at| at.to_s.ljust({bytes}, 'x') }}; nil");
    let script = vm.compile(source.as_bytes(), "fill.rb", 1).unwrap();
    vm.run(script).unwrap();
    vm.let_go(script);
}

#[test]
fn what_one_size_gave_back_is_there_for_another() {
    let mut vm = opened_with(16 << 20);
    vm.set_cpu(Duration::from_secs(1) * patience());
    // All of them together are more than the interpreter may have.
    for bytes in (24..601).step_by(17).chain((24..601).step_by(31).rev()) {
        fill(&mut vm, bytes);
        let script = b"wrong = $kept.each_with_index.find { |text, at| text.to_i != at }
            raise \"#{wrong} was overwritten\" if wrong";
        let script = vm.compile(script, "look.rb", 1).unwrap();
        vm.run(script).unwrap();
        vm.let_go(script);
    }
    let empty = vm.compile(b"$kept = nil", "empty.rb", 1).unwrap();
    vm.run(empty).unwrap();
    vm.collect().unwrap();
    let kept = vm.bytes();
    assert!(
        kept < 3 << 20,
        "{kept} bytes are kept of what was given back"
    );
}

#[test]
fn a_long_call_in_c_gives_the_interpreter_up() {
    for source in [
        "x = 'a' * 300_000 + 'b'; y = 'a' * 1_000_000; y.index(x)",
        "x = 'a' * 200_000 + 'b'; y = 'a' * 1_000_000; y.include?(x)",
    ] {
        let mut vm = opened();
        let script = vm.compile(source.as_bytes(), "script.rb", 1).unwrap();
        let fiber = vm.fiber().unwrap();
        // Patience is for what such a run makes slow; this call takes as long as ever.
        vm.set_cpu(Duration::from_millis(5) * patience().min(40));
        let ended = go(&mut vm, fiber, Resume::Script(script));
        assert_eq!(ended, Err(Error::Lost), "{source}");
        assert!(vm.is_lost());
        assert_eq!(start(&mut vm, "1"), Err(Error::Lost));
        drop(vm);
        alive(&mut opened());
    }
}

#[test]
fn an_interpreter_opens_or_says_that_there_is_no_room_however_little_there_is() {
    let opened = |bytes| {
        let memory = Memory::of(bytes);
        let budget = Budget {
            memory: Rc::clone(&memory),
            cpu: Duration::from_millis(5) * patience(),
        };
        let held = Vm::open(World::default(), budget).map(|vm| vm.bytes());
        assert_eq!((memory.bytes(), memory.vms()), (0, 0), "{bytes} bytes");
        held.ok()
    };
    // Where mruby itself runs out of memory as it begins, it ends the process.
    for bytes in (0..OPENING_BYTES).step_by(16 << 10) {
        assert_eq!(opened(bytes), None, "{bytes} bytes");
    }
    let held = opened(OPENING_BYTES).expect("it opens");
    assert!(held < OPENING_BYTES / 8 * 7, "{held} bytes are close to it");
}

#[test]
fn one_that_finds_no_room_beside_others_does_not_open() {
    let memory = Memory::of(4 << 20);
    let mut others: Vec<_> = (0..5).map(|_| opened_in(&memory)).collect();
    for held in (1_000..600_000).step_by(20_000).rev() {
        for vm in &mut others {
            let source = format!("$kept = ($kept || []) << 'x' * {held}; nil");
            let script = vm.compile(source.as_bytes(), "keep.rb", 1);
            // Without room for it there is one text less.
            let _ = script.and_then(|script| vm.run(script));
        }
        let has_room = memory.has_room_for_another(0);
        let budget = Budget {
            memory: Rc::clone(&memory),
            cpu: Duration::from_millis(5) * patience(),
        };
        let opened = Vm::open(World::default(), budget).is_ok();
        assert!(opened || !has_room);
    }
    assert!(!memory.has_room_for_another(0), "they have filled it");
}
