//! The flag that Ctrl-C sets.
//!
//! Loops ask [`check`]; it fails once a signal came, and the error unwinds through the owners of
//! every started process. A second signal ends the program at once; servers then get TERM from the
//! kernel, because each is started with a parent-death signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use load::Error;

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Exit status of a program that a second signal ends.
const ENDED_BY_SIGNAL: i32 = 130;

/// Makes INT, TERM and HUP set the flag instead of ending the process.
pub fn catch() -> Result<(), Error> {
    let flag = INTERRUPTED.get_or_init(|| Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, ENDED_BY_SIGNAL, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|e| Error::new("catch signals", e))?;
    }
    Ok(())
}

/// Whether a signal came.
pub(crate) fn came() -> bool {
    INTERRUPTED
        .get()
        .is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Fails when a signal came.
pub fn check() -> Result<(), Error> {
    if came() {
        return Err(Error::new(
            "run the experiment",
            "interrupted; what was started is being stopped",
        ));
    }
    Ok(())
}
