//! An interpreter to try scripts in.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use script::{
    Budgets, Datum, Failure, Files, Interpreter, Phase, Ran, Script, ServerClass, Settings, Source,
    Trial,
};

/// Runs `test` as a worker would.
pub(crate) fn on_a_worker<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime starts");
    runtime.block_on(test)
}

/// Runs `test` so with a store that was started; not where that is none of this machine's.
pub(crate) fn with<S>(store: Option<S>, test: impl AsyncFnOnce(S)) {
    if let Some(store) = store {
        on_a_worker(test(store));
    }
}

/// Settings as by default.
pub(crate) fn settings() -> Settings {
    Settings {
        server: ServerClass::Nginx,
        budgets: Budgets::default(),
        env: Vec::new(),
        cache_files: Arc::default(),
        library: Arc::default(),
        worker: 0,
        reader: Rc::new(Files),
    }
}

/// An interpreter as by default.
pub(crate) fn interpreter() -> Rc<Interpreter> {
    Interpreter::open(settings(), Arc::default()).expect("an interpreter opens")
}

/// A script of inline code.
pub(crate) fn code(text: &str) -> Script {
    let source = Source::Code {
        text: Arc::from(text.as_bytes()),
        line: 1,
    };
    Script::new(Arc::from("script.rb"), source)
}

/// Runs `text` in the access phase of `request`.
pub(crate) async fn run(
    interpreter: &Rc<Interpreter>,
    text: &str,
    request: &mut Trial,
) -> Result<Ran, Failure> {
    interpreter
        .run(Phase::Access, &code(text), Some(request))
        .await
}

/// An interpreter whose scripts may take their time, as they do on a busy machine.
pub(crate) fn patient() -> Rc<Interpreter> {
    let mut settings = settings();
    settings.budgets.cpu = Duration::from_secs(5);
    settings.budgets.wall = Duration::from_secs(120);
    settings.budgets.connect_timeout = Duration::from_secs(30);
    settings.budgets.store_timeout = Duration::from_secs(60);
    Interpreter::open(settings, Arc::default()).expect("an interpreter opens")
}

/// The value of a script run for a made-up GET of `/a.php?x=1`.
pub(crate) fn value(text: &str) -> Datum {
    on_a_worker(async {
        let mut request = Trial::get("/a.php?x=1");
        let ran = run(&patient(), text, &mut request).await;
        ran.unwrap_or_else(|failure| panic!("{text}: {failure}"))
            .value
    })
}

/// What a script said of its failure.
pub(crate) fn failure(text: &str) -> String {
    on_a_worker(async {
        let mut request = Trial::get("/a.php?x=1");
        let ran = run(&patient(), text, &mut request).await;
        ran.expect_err("the script fails").to_string()
    })
}

/// Runs each script of a table and compares what it came to, inspected; of an exception `rescued`
/// tells, which knows it as `e`.
pub(crate) fn check(table: &[(&str, &str)], rescued: &str) {
    on_a_worker(async {
        let mut settings = settings();
        settings.budgets.cpu = Duration::from_secs(60);
        let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
        let mut wrong = Vec::new();
        for (script, expected) in table {
            let mut request = Trial::get("/a.php?x=1");
            let text = format!("begin; ({script}).inspect; rescue => e; {rescued}; end");
            let found = match run(&interpreter, &text, &mut request).await {
                Ok(ran) => match ran.value {
                    Datum::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                    other => format!("{other:?}"),
                },
                Err(failure) => failure.to_string(),
            };
            if found != *expected {
                wrong.push(format!("{script}\n    is {found}\n   not {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
