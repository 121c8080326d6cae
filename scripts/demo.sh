#!/usr/bin/env bash
# Serves the demo and prints what to try.
#
#   scripts/demo.sh BINARY PORT         serve until Ctrl-C
#   scripts/demo.sh --port-free PORT    only see whether the port is free
#
# Run by root, the server becomes `nobody`, who may not be able to read this checkout; and another
# port than nagaya.toml's needs another configuration. In both cases a copy is served, gone at exit.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

main() {
  if [ "$1" = --port-free ]; then
    port_must_be_free "$2"
    return
  fi
  local binary=$1
  port=$2
  port_must_be_free "$port"
  place=$PWD
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/nagaya-demo.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  own_port=$(sed -n 's/^address = "127\.0\.0\.1:\([0-9]*\)"$/\1/p' nagaya.toml)
  if [ "$(id -u)" = 0 ] || [ "$port" != "$own_port" ]; then
    stage_copy
  fi
  serve "$(realpath "$binary")"
}

port_must_be_free() {
  case "$1" in '' | *[!0-9]*) echo "make run: PORT=$1 is not a port" >&2; exit 2 ;; esac
  listening "$1" || return 0
  cat >&2 <<TEXT
make run: something listens on 127.0.0.1:$1 already. Stop it, or choose another port:

    make run PORT=$(($1 + 10))

TEXT
  exit 1
}

listening() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

stage_copy() {
  place=$scratch
  mkdir "$place/examples"
  cp -R examples/demo "$place/examples/demo"
  sed "s/127\.0\.0\.1:$own_port/127.0.0.1:$port/g" nagaya.toml >"$place/nagaya.toml"
  chmod -R a+rX "$place"
}

serve() {
  local server status=0
  # What it says is shown and kept. Who keeps it hears the last line too: only its end ends that.
  exec 4> >(trap '' INT TERM HUP; exec tee "$scratch/said" >&2)
  # Its own process group: Ctrl-C reaches it once, through the trap, and not a second time.
  set -m
  "$1" serve -c "$place/nagaya.toml" </dev/null 2>&4 4>&- &
  server=$!
  set +m
  exec 4>&-
  trap 'kill -TERM $server 2>/dev/null || true' INT TERM HUP
  # The port listens from the first moment on; what is asked before `ready` has to wait.
  while kill -0 "$server" 2>/dev/null && ! grep -qs ' ready: ' "$scratch/said"; do
    sleep 0.05
  done
  kill -0 "$server" 2>/dev/null && print_lines
  # A signal ends `wait` early; the server is still draining then.
  while kill -0 "$server" 2>/dev/null; do
    status=0
    wait "$server" || status=$?
  done
  return "$status"
}

print_lines() {
  echo
  echo "  Nagaya serves http://127.0.0.1:$port/ from $place/nagaya.toml"
  echo "  Try, in another terminal:"
  echo
  sed "s/127\.0\.0\.1:8080/127.0.0.1:$port/g; s/^./    &/" examples/demo/try.txt
  echo
  echo "  Ctrl-C ends it."
  echo
}

main "$@"
