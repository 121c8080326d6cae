//! Prints the reference manual: `cargo run -p config --example reference > docs/reference/config.md`.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(config::reference().as_bytes())
}
