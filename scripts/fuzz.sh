#!/bin/sh
# Runs every fuzz target for some seconds each (default 120), starting from the committed seeds.
# Needs a nightly toolchain and cargo-fuzz; says so and ends well where they are missing.
set -eu
seconds=${1:-120}
cd "$(dirname "$0")/../fuzz"
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "fuzzing skipped: 'cargo +nightly fuzz' is not available (rustup toolchain install nightly; cargo install cargo-fuzz)"
    exit 0
fi
for target in $(cargo +nightly fuzz list); do
    echo "fuzzing $target for $seconds s"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -max_len=1024 -verbosity=0 -print_final_stats=1
done
echo "fuzzing found nothing"
