#!/usr/bin/env bash
# Builds an authority for tests that knows profiles and windows of renewal, which Debian's does not
# yet, below target/pebble, and prints its path: for NAGAYA_PEBBLE. Takes a Go of its own where
# there is none that can build it.
set -euo pipefail
cd "$(dirname "$0")/.."
place=${CARGO_TARGET_DIR:-$PWD/target}/pebble
version=v2.10.0

main() {
  [ -x "$place/pebble" ] || build
  echo "$place/pebble"
}

build() {
  echo "pebble: building $version" >&2
  GOBIN=$place GOPATH=$place/go GOFLAGS=-modcacherw scripts/go.sh install \
    "github.com/letsencrypt/pebble/v2/cmd/pebble@$version"
}

main
