//! One line on the terminal that says what is running, and the flag Ctrl-C sets.
//!
//! Loops ask [`check`]; it fails once a signal came, and the error unwinds through the owners of
//! every started server. A second signal ends the harness at once; the servers then get TERM from
//! the kernel, because each is started with a parent-death signal.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::Error;

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes INT and TERM set the flag instead of ending the process.
pub(crate) fn catch_interrupts() -> Result<(), Error> {
    let flag = INTERRUPTED.get_or_init(|| Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|e| Error::new("catch signals", e))?;
    }
    Ok(())
}

/// Fails when the run was interrupted.
pub(crate) fn check() -> Result<(), Error> {
    match INTERRUPTED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::new(
            "bench",
            "interrupted; everything started here is stopped",
        )),
        _ => Ok(()),
    }
}

/// Shows `text` in place of the last one; on anything but a terminal, as a line of its own.
pub(crate) fn show(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = if stderr.is_terminal() {
        write!(stderr, "\r\x1b[K{text}")
    } else {
        writeln!(stderr, "{text}")
    };
    let _ = stderr.flush();
}

/// Takes the line away.
pub(crate) fn clear() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}
