#!/usr/bin/env bash
# Packs a built binary, unpacks the package into a directory and serves from there.
#
#   scripts/test-package.sh BINARY
#
# What cannot hold outside of / (port 80, absolute paths) is rewritten to lie below that directory.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$1
if ! command -v dpkg-deb >/dev/null; then
  echo "test-package: skipped, no dpkg-deb here"
  exit 0
fi
root=$(mktemp -d)
chmod 755 "$root"
server=
trap 'stop; rm -rf "$root"' EXIT

main() {
  local package
  package=$(scripts/package.sh "$binary" "$root/out")
  readonly package
  dpkg-deb --extract "$package" "$root"
  dpkg-deb --ctrl-tarfile "$package" | tar -x -C "$root/out"
  expect "conffiles name the configuration" grep -qx /etc/nagaya/nagaya.toml "$root/out/conffiles"
  for script in postinst prerm postrm; do
    expect "$script is a script" sh -n "$root/out/$script"
  done
  expect "the program that posts alerts is a script" sh -n "$root/usr/lib/nagaya/alert-webhook"
  expect "the manual is there" gzip -t "$root/usr/share/man/man1/nagaya.1.gz"
  expect "bash reads the completions" bash -n "$root/usr/share/bash-completion/completions/nagaya"
  expect "the example site is right" check_example
  expect "the example scripts are right" check_scripts
  check_unit
  serve_unpacked
  echo "test-package: $(basename "$package") unpacks, serves, rotates, is upgraded and stops"
}

expect() {
  local what=$1
  shift
  "$@" || { echo "test-package: not so: $what" >&2; exit 1; }
}

check_example() {
  sed 's|"/usr/share|"'"$root"'/usr/share|' "$root/usr/share/doc/nagaya/example-site.toml" >"$root/site.toml"
  printf '\n[[listen]]\naddress = "127.0.0.1:1"\n' >>"$root/site.toml"
  "$root/usr/bin/nagaya" check -c "$root/site.toml" >/dev/null
}

check_scripts() {
  local config="$root/usr/share/doc/nagaya/examples/scripts/nagaya.toml"
  # Of what is behind the gateway there, nothing is here.
  "$root/usr/bin/nagaya" check -c "$config" >/dev/null 2>&1
}

check_unit() {
  command -v systemd-analyze >/dev/null || return 0
  local unit="$root/nagaya.service" said
  sed "s|/usr/bin/nagaya|$root/usr/bin/nagaya|" "$root/usr/lib/systemd/system/nagaya.service" >"$unit"
  said=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep -F nagaya.service || true)
  expect "systemd takes the unit: $said" [ -z "$said" ]
}

serve_unpacked() {
  local port config="$root/etc/nagaya/nagaya.toml"
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  mkdir -p "$root/run/nagaya" # as tmpfiles.d makes it
  chmod 777 "$root/var/log/nagaya"
  sed -i "s|\"/usr|\"$root/usr|; s|\"/run|\"$root/run|; s|\"/var|\"$root/var|; s|0\.0\.0\.0:80|127.0.0.1:$port|; s|\[::\]:80|unix:$root/run/nagaya/http.sock|; s|^user = .*|user = \"nobody\"|" "$config"
  expect "the configuration is right" "$root/usr/bin/nagaya" check -c "$config" >/dev/null
  "$root/usr/bin/nagaya" serve -c "$config" 2>"$root/errors" </dev/null &
  server=$!
  expect "the welcome page is served" eventually curl -fsS -o "$root/page" "http://127.0.0.1:$port/"
  expect "it is the welcome page" grep -q 'Nagaya is running' "$root/page"
  expect "status answers" "$root/usr/bin/nagaya" status -c "$config" >/dev/null
  reload_unpacked "$config" "$port"
  install_over "$port"
  local log="$root/var/log/nagaya/access.log"
  expect "the request is logged" eventually grep -q '"GET / HTTP/1.1" 200' "$log"
  mv "$log" "$log.1"
  kill -USR1 "$server"
  expect "the log is opened anew" eventually test -e "$log"
  kill -TERM "$server"
  expect "it stops when asked: $(cat "$root/errors")" wait "$server"
  server=
}

# As the unit does, with a file in sites.d that is right, broken, and away.
reload_unpacked() {
  local config=$1 port=$2 site="$root/etc/nagaya/sites.d/site.toml"
  local reload=("$root/usr/bin/nagaya" reload -c "$config" --pid "$server")
  printf '[[sites]]\nhosts = ["localhost"]\nrules = [{ handler = { respond = { body = "mine" } } }]\n' >"$site"
  expect "a reload takes the site" "${reload[@]}" >/dev/null
  expect "the site is served" [ "$(curl -fsS "http://localhost:$port/")" = mine ]
  expect "its version is stored" grep -q mine "$root/var/lib/nagaya/last-good.toml"
  printf 'hosts = [' >>"$site"
  expect "a reload sets the broken site aside" "${reload[@]}" >/dev/null 2>&1
  expect "it is served as it was" [ "$(curl -fsS "http://localhost:$port/")" = mine ]
  "$root/usr/bin/nagaya" check -c "$config" >/dev/null 2>&1 && expect "check names it" false
  rm "$site"
  expect "a reload takes it away" "${reload[@]}" >/dev/null
}

# dpkg installs over the program that runs, as an upgrade does, beside a stub of the service manager.
install_over() {
  local port=$1 stub="$root/stub" before
  [ "$(id -u)" = 0 ] || return 0
  mkdir -p "$stub" "$root/run/systemd/system" "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
  touch "$root/var/lib/dpkg/status" "$root/failed"
  printf '#!/bin/sh\n[ "$1" != show ] || echo %s\n' "$server" >"$stub/systemctl"
  printf '#!/bin/sh\n' >"$stub/systemd-tmpfiles"
  chmod 755 "$stub"/*
  local dpkg=(env PATH="$stub:$PATH" dpkg --root="$root" --force-script-chrootless --force-depends --force-confold -i "$package")
  expect "dpkg installs the package" "${dpkg[@]}" >"$root/dpkg" 2>&1
  before=$(pgrep -P "$server" | sort)
  while :; do curl -fsS -o /dev/null "http://127.0.0.1:$port/" || echo x >>"$root/failed"; done &
  local load=$!
  "${dpkg[@]}" >"$root/dpkg" 2>&1 || expect "dpkg installs it anew: $(cat "$root/dpkg")" false
  kill "$load"
  wait "$load" 2>/dev/null || true
  expect "the upgrade says what serves: $(cat "$root/dpkg")" grep -q '^generation [0-9]* serves' "$root/dpkg"
  expect "no request fails" [ ! -s "$root/failed" ]
  expect "the process stays and runs the new file" [ "$(stat -Lc %i "/proc/$server/exe")" = "$(stat -c %i "$root/usr/bin/nagaya")" ]
  expect "its children are others" [ "$before" != "$(pgrep -P "$server" | sort)" ]
}

# Tries for ten seconds.
eventually() {
  local end=$((SECONDS + 10))
  until "$@" 2>"$root/last"; do
    [ "$SECONDS" -lt "$end" ] || { cat "$root/last" "$root/errors" >&2; return 1; }
    sleep 0.05
  done
}

stop() {
  [ -z "$server" ] || kill -TERM "$server" 2>/dev/null || true
}

main
