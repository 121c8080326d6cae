//! What a run of a script costs by itself, its compilation and a full collection: for `perf stat`
//! and callgrind.
//!
//!     cargo run --release -p script --example run_cost -- 1000000 'Nginx::Request.new.filename'

use std::env;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use script::{
    Begun, Budgets, Files, Interpreter, Phase, Script, ServerClass, Settings, Source, Trial,
};

fn main() {
    let mut arguments = env::args().skip(1);
    let runs = arguments.next().and_then(|text| text.parse().ok());
    let runs: u32 = runs.unwrap_or(1_000_000);
    let code = arguments.next().unwrap_or_else(|| "1".to_owned());
    let settings = Settings {
        server: ServerClass::Nginx,
        budgets: Budgets::default(),
        env: Vec::new(),
        cache_files: Arc::default(),
        library: Arc::default(),
        worker: 0,
        reader: Rc::new(Files),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let interpreter = Interpreter::open(settings, Arc::default()).expect("an interpreter opens");
    let text = Arc::from(code.as_bytes());
    let script = Script::new(Arc::from("cost.rb"), Source::Code { text, line: 1 });
    let before = interpreter.memory_bytes();
    let began = Instant::now();
    let compiled = runtime.block_on(interpreter.check(&script));
    compiled.expect("the script is Ruby");
    println!(
        "{} us and {} bytes to compile it",
        began.elapsed().as_micros(),
        interpreter.memory_bytes() - before
    );
    let began = Instant::now();
    runtime.block_on(async {
        let mut request = Trial::get("/a.php?x=1");
        let first = interpreter.run(Phase::Access, &script, Some(&mut request));
        first.await.expect("the script runs");
        for _ in 0..runs {
            // As the engine does it.
            let now = Instant::now();
            let begun = interpreter.run_at_once(Phase::Access, &script, now, Some(&mut request));
            let begun = begun.expect("it is compiled").expect("the script runs");
            assert!(
                matches!(begun, Begun::Done(_)),
                "only scripts that do not wait"
            );
            request.scope.output.clear();
        }
    });
    let ns = began.elapsed().as_nanos() / u128::from(runs);
    println!("{ns} ns a run, {} bytes held", interpreter.memory_bytes());
    let began = Instant::now();
    let objects = interpreter.objects();
    let us = began.elapsed().as_micros();
    println!("{us} us for a full collection that left {objects} objects");
}
