//! What is made ready before the first script of a VM runs: files that scripts may require are
//! compiled, and those that `Cache` is kept in read.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Interpreter;
use crate::failure::Failure;
use crate::script::{Script, Source};

/// How long files are compiled before others have their turn.
const AT_A_STRETCH: Duration = Duration::from_millis(2);

impl Interpreter {
    /// Waits until the files that `Cache` is kept in are read.
    pub(super) async fn read_kept(&self) {
        let (settings, shared) = (&self.settings, &self.shared);
        let bounds = settings.budgets.of_cache();
        let directories = &settings.cache_files;
        shared.kept.follow(&shared.pool, directories, bounds).await;
    }

    /// Compiles what this VM has not compiled yet.
    pub(super) async fn compile_library(self: &Rc<Self>) -> Result<(), Failure> {
        let library = Arc::clone(&self.settings.library);
        let known = self.open.borrow_mut().vm.host().features.count();
        let mut since = Instant::now();
        for file in library.files.iter().skip(known) {
            let source = Source::Code {
                text: Arc::clone(&file.text),
                line: 1,
            };
            let script = Script::new(Arc::clone(&file.path), source);
            let slot = self.compile(&script, &file.text, 1)?;
            self.open.borrow_mut().vm.host().features.add(file, slot);
            if since.elapsed() > AT_A_STRETCH {
                tokio::task::yield_now().await;
                since = Instant::now();
            }
        }
        Ok(())
    }
}
