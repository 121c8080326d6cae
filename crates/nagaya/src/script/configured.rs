//! The scripts of a configuration: whether each is Ruby, as a gateway finds out when it starts.
//!
//! Those that are compiled for every request a gateway reads when one comes; here they are read as
//! well, by whoever asks.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use config::model::{self, Model};
use script::{Budgets, Interpreter, Script, Source};

use super::text::Text;
use super::{on_a_worker, open, report};
use crate::outcome::Outcome;

/// What is wrong with the scripts of a configuration, each as `FILE:LINE: MESSAGE`.
pub(crate) fn problems(model: &Model) -> Vec<String> {
    let mut problems = Vec::new();
    if model.all_scripts().next().is_some() || !model.scripts.lib.is_empty() {
        on_a_worker(async {
            gather(model, &mut problems).await;
            Outcome::Fine
        });
    }
    problems
}

async fn gather(model: &Model, problems: &mut Vec<String>) {
    let memory_bytes = model.scripts.budgets.memory_bytes;
    let budgets = Budgets {
        memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
        ..Budgets::default()
    };
    // What `get_server_class` answers matters to scripts that run.
    let interpreter = match open(script::ServerClass::Nginx, budgets, &[]) {
        Ok(interpreter) => interpreter,
        Err(failure) => return problems.push(report::failure(&failure)),
    };
    let required = model.scripts.lib.iter().flat_map(|library| &library.files);
    for file in required {
        let name = file.path.to_string_lossy().into();
        if let Err(problem) = judge(&interpreter, script_of(name, file)).await {
            problems.push(problem);
        }
    }
    let mut seen = HashSet::new();
    for script in model.all_scripts() {
        if seen.insert(said(script))
            && let Err(problem) = judge(&interpreter, as_script(script)).await
        {
            problems.push(problem);
        }
    }
}

/// What tells scripts apart.
fn said(script: &model::Script) -> (Option<&Path>, Option<&str>) {
    match &script.source {
        model::Source::File(file) => (Some(&file.path), None),
        model::Source::Code(code) => (None, Some(code)),
    }
}

async fn judge(
    interpreter: &std::rc::Rc<Interpreter>,
    script: Result<Script, String>,
) -> Result<(), String> {
    let checked = interpreter.check(&script?).await;
    checked.map_err(|failure| report::failure(&failure))
}

fn as_script(script: &model::Script) -> Result<Script, String> {
    match &script.source {
        model::Source::Code(code) => {
            let (file, line) = script.place();
            let text = Arc::from(code.as_bytes());
            Ok(Script::new(file.into(), Source::Code { text, line }))
        }
        model::Source::File(file) => script_of(Arc::clone(&script.name), file),
    }
}

fn script_of(name: Arc<str>, file: &model::ScriptFile) -> Result<Script, String> {
    match &file.text {
        Some(text) => {
            let text = Arc::clone(text);
            Ok(Script::new(name, Source::Code { text, line: 1 }))
        }
        None => Text::read(&file.path).map(|text| text.script()),
    }
}
