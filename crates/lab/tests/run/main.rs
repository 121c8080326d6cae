//! The program `nagaya-lab`, with the gateway that was built beside it.

mod shipped;
mod small;

use std::path::Path;
use std::process::Command;

/// The program, ready for its words.
fn nagaya_lab() -> Command {
    let program = env!("CARGO_BIN_EXE_nagaya-lab");
    let gateway = Path::new(program).with_file_name("nagaya");
    assert!(gateway.exists(), "first: cargo build -p nagaya");
    Command::new(program)
}
