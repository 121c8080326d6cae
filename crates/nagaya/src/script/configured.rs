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
    if model.all_scripts().next().is_some() {
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
    let mut seen = HashSet::new();
    for script in model.all_scripts() {
        if seen.insert(said(script))
            && let Err(problem) = judge(&interpreter, script).await
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
    script: &model::Script,
) -> Result<(), String> {
    let script = match &script.source {
        model::Source::Code(code) => {
            let (file, line) = script.place();
            let text = Arc::from(code.as_bytes());
            Script::new(file.into(), Source::Code { text, line })
        }
        model::Source::File(model::ScriptFile {
            text: Some(text), ..
        }) => {
            let text = Arc::clone(text);
            Script::new(Arc::clone(&script.name), Source::Code { text, line: 1 })
        }
        model::Source::File(file) => Text::read(&file.path)?.script(),
    };
    let checked = interpreter.check(&script).await;
    checked.map_err(|failure| report::failure(&failure))
}
