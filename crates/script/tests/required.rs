//! `require`: files below the directories that an operator names.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::bed::{code, on_a_worker, run, settings};
use script::{Datum, Interpreter, Library, LibraryFile, Phase, Step, Trial};

const FILES: &[(&str, &str)] = &[
    (
        "greeting",
        "module Greeting; local = 1; def self.to(whom) \"hello #{whom}\"; end; end\n$runs = ($runs || 0) + 1",
    ),
    (
        "shop/cart",
        "require_relative 'price'\nclass Cart; def sum; PRICE * 2; end; end",
    ),
    ("shop/price", "PRICE = 21"),
    ("circle_a", "require 'circle_b'; CIRCLE_A = 1"),
    ("circle_b", "$seen = require('circle_a'); CIRCLE_B = 2"),
    (
        "broken",
        "$tries = ($tries || 0) + 1\nraise 'not today' if $tries < 3\nFINE = 1",
    ),
    ("waits", "sleep 0.01\nWAITED = 1"),
    (
        "loops",
        "$loops = ($loops || 0) + 1\nwhile $loops < 2; end\nLOOPED = 1",
    ),
    ("json", "MINE = 1"),
];

fn library() -> Arc<Library> {
    let file = |(name, text): &(&str, &str)| LibraryFile {
        name: Arc::from(*name),
        path: format!("/etc/nagaya/lib/{name}.rb").into(),
        text: Arc::from(text.as_bytes()),
    };
    Arc::new(Library {
        directories: vec!["/etc/nagaya/lib".to_owned()],
        files: FILES.iter().map(file).collect(),
    })
}

async fn opened(init: &str) -> Rc<Interpreter> {
    let mut settings = settings();
    settings.library = library();
    settings.budgets.cpu = Duration::from_millis(200);
    let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
    let started = interpreter.start(vec![(Phase::Init, code(init))]).await;
    started.expect("it starts");
    interpreter
}

async fn told(interpreter: &Rc<Interpreter>, text: &str) -> String {
    let text = format!(
        "begin; ({text}).inspect; rescue LoadError, StandardError => e; \"#{{e.class}}: #{{e.message}}\"; end"
    );
    match run(interpreter, &text, &mut Trial::get("/")).await {
        Ok(ran) => match ran.value {
            Datum::Bytes(text) => String::from_utf8_lossy(&text).into_owned(),
            other => format!("{other:?}"),
        },
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn a_file_is_run_once_a_vm_and_by_every_name_of_it() {
    on_a_worker(async {
        let vm = opened("$first = require 'greeting'").await;
        for (script, expected) in [
            ("[$first, $runs]", "[true, 1]"),
            (
                "[require('greeting'), require('greeting.rb'), $runs]",
                "[false, false, 1]",
            ),
            ("Greeting.to('you')", "\"hello you\""),
            ("local", "NoMethodError: undefined method 'local' for main"),
            (
                "[require('shop/cart'), Cart.new.sum, require('shop/price')]",
                "[true, 42, false]",
            ),
            (
                "[require('circle_a'), CIRCLE_A, CIRCLE_B, $seen]",
                "[true, 1, 2, false]",
            ),
            // What lies in the directory goes before what is here anyway.
            (
                "[require('json'), MINE, require('digest')]",
                "[true, 1, false]",
            ),
        ] {
            let found = told(&vm, script).await;
            assert!(found.starts_with(expected), "{script}: {found}");
        }
    });
}

#[test]
fn what_raises_can_be_required_again() {
    on_a_worker(async {
        let vm = opened("1").await;
        for _ in 0..2 {
            assert_eq!(
                told(&vm, "require 'broken'").await,
                "RuntimeError: not today"
            );
        }
        assert_eq!(
            told(&vm, "[require('broken'), FINE, require('broken')]").await,
            "[true, 1, false]"
        );
        // Ended in the middle for its time, it counts as not run.
        let said = told(&vm, "require 'loops'").await;
        assert!(said.contains("scripts.cpu"), "{said}");
        assert_eq!(told(&vm, "[require('loops'), LOOPED]").await, "[true, 1]");
        assert_eq!(told(&vm, "sleep 0.001").await, "0");
    });
}

#[test]
fn names_lead_nowhere_else() {
    on_a_worker(async {
        let vm = opened("1").await;
        for name in [
            "nothing",
            "../lib/greeting",
            "/etc/nagaya/lib/greeting",
            "/etc/passwd",
            "shop",
            "shop/../greeting",
            "./greeting",
            "",
            "a\\0b",
            "greeting.rb.rb",
        ] {
            let found = told(&vm, &format!("require \"{name}\"")).await;
            assert!(
                found.starts_with("LoadError: cannot load such file -- "),
                "{name}: {found}"
            );
            assert!(
                found.contains("looked for below /etc/nagaya/lib"),
                "{name}: {found}"
            );
        }
        let found = told(&vm, "require_relative 'lib/greeting'").await;
        assert!(found.starts_with("LoadError"), "{found}");
        for wrong in ["require 5", "require nil", "require 'x' * 300"] {
            let found = told(&vm, wrong).await;
            assert!(found.starts_with("TypeError"), "{found}");
        }
    });
}

#[test]
fn a_script_finds_files_beside_itself() {
    on_a_worker(async {
        let vm = opened("1").await;
        let source = script::Source::Code {
            text: Arc::from(b"def within; require_relative '../lib/shop/price.rb'; end\n[require_relative('../lib/greeting'), within]".as_slice()),
            line: 1,
        };
        let hook = script::Script::new("/etc/nagaya/hooks/a.rb".into(), source);
        let ran = vm
            .run(Phase::Access, &hook, Some(&mut Trial::get("/")))
            .await;
        let both = Datum::Array(vec![Datum::Bool(true), Datum::Bool(true)]);
        assert_eq!(ran.expect("it runs").value, both);
    });
}

#[test]
fn a_file_waits_in_init_and_not_in_the_middle_of_a_request() {
    on_a_worker(async {
        let vm = opened("require 'waits'").await;
        assert_eq!(told(&vm, "WAITED").await, "1");
        let vm = opened("1").await;
        let said = told(&vm, "require 'waits'").await;
        assert!(
            said.starts_with("FiberError: a file that is required in the middle"),
            "{said}"
        );
        // Nobody is held up by it.
        let mut request = Trial::get("/");
        let mut other = vm
            .begin(Phase::Access, &code("sleep 0.001; 7"))
            .await
            .expect("it begins");
        let waits = other
            .step(Some(&mut request))
            .is_ok_and(|step| matches!(step, Step::Waits(_)));
        assert!(waits);
    });
}

#[test]
fn a_library_that_is_no_ruby_refuses_the_vm() {
    on_a_worker(async {
        let mut settings = settings();
        let mut broken = Library::clone(&library());
        broken.files[1].text = Arc::from(b"def (".as_slice());
        settings.library = Arc::new(broken);
        let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
        let said = interpreter
            .start(Vec::new())
            .await
            .expect_err("it does not start");
        assert!(
            said.to_string()
                .starts_with("/etc/nagaya/lib/shop/cart.rb: line 1"),
            "{said}"
        );
    });
}
