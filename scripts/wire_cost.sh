#!/bin/sh
# Prints the instructions crate wire spends on typical pieces of work, counted by callgrind.
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 0; }
cargo build -q --release -p wire --example wire_cost
program=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/examples/wire_cost
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 | sed -n 's/.*Collected : //p'
}
for work in wrk browser escaped partial reply chunked; do
    few=$(count "$work" 1000)
    many=$(count "$work" 11000)
    echo "$work: $(((many - few) / 10000)) instructions"
done
