//! Prints the page of sensors: `cargo run -p config --example sensors > docs/reference/sensors.md`.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(config::sensor_reference().as_bytes())
}
