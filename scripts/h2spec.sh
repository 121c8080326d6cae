#!/usr/bin/env bash
# Builds h2spec, which asks a server 146 questions on RFC 9113 and RFC 7541, as tests/h2spec/go.mod pins it, below
# target/h2spec, and prints its path: for NAGAYA_H2SPEC.
set -euo pipefail
cd "$(dirname "$0")/.."
place=${CARGO_TARGET_DIR:-$PWD/target}/h2spec

if [ ! -x "$place/h2spec" ]; then
  echo "h2spec: building it" >&2
  GOPATH=$place/go GOFLAGS=-modcacherw scripts/go.sh build -C tests/h2spec -o "$place/h2spec" \
    github.com/summerwind/h2spec/cmd/h2spec
fi
echo "$place/h2spec"
