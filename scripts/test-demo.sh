#!/usr/bin/env bash
# Runs the demo as `make run` does and tries every line it prints: each must succeed, and its
# output must hold what the line's comment promises.
#
#   scripts/test-demo.sh BINARY
#
# From a checkout that only its owner can read. Root tries three: as root; as an ordinary user; and
# as an ordinary user on the port nagaya.toml names and without PHP, which serves the checkout
# itself, not a copy.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
chmod 755 "$work"
demo=
trap 'stop; rm -rf "$work"' EXIT

main() {
  local binary=$1
  if [ "$(id -u)" = 0 ]; then
    try_as root "$binary" another-port
    try_as nobody "$binary" another-port
    try_as nobody "$binary" own-port
  else
    try_as "$(id -un)" "$binary" another-port
    try_as "$(id -un)" "$binary" own-port
  fi
}

try_as() {
  local user=$1 checkout="$work/$1-$3" port tls_port
  port=$(free_port) tls_port=$(free_port)
  private_checkout "$user" "$2" "$checkout"
  # The real one may be taken on this machine.
  if [ "$3" = own-port ]; then
    sed -i "s/:8080/:$port/; s/:8443/:$tls_port/" "$checkout/nagaya.toml"
    chown --reference="$checkout" "$checkout/nagaya.toml"
  fi
  start_demo "$user" "$3"
  local line lines=0
  while IFS= read -r line; do
    try_line "$user" "$line"
    lines=$((lines + 1))
  done < <(sed -n 's/^    \(curl .*\)/\1/p' "$work/output")
  [ "$lines" -ge 13 ] || fail "only $lines lines to try were printed"
  php_is_tried_or_left_out
  status_is_told "$user"
  taken_port_is_said "$user" PORT "$port" "$(free_port)"
  taken_port_is_said "$user" TLS_PORT "$(free_port)" "$tls_port"
  local authority
  authority=$(cksum <"$checkout/nagaya-development.crt")
  stop
  if listening "$port" || listening "$tls_port"; then fail "something still listens on $port or $tls_port"; fi
  nothing_is_left "$checkout"
  start_demo "$user" "$3"
  [ "$(cksum <"$checkout/nagaya-development.crt")" = "$authority" ] || fail "another authority after another start"
  try_line "$user" "$(grep -m 1 -- '--cacert' "$work/output")"
  stop
  nothing_is_left "$checkout"
  echo "test-demo: as $user on $3, all $lines lines do what they say"
}

# The demo as make run starts it: the names are those of try_as.
start_demo() {
  : >"$work/output" # what the last one printed must not be taken for this one's
  local php=()
  [ "$2" != own-port ] || php=(PHP_FPM=)
  as "$1" env "${php[@]}" "$checkout/scripts/demo.sh" "$checkout/nagaya" "$port" "$tls_port" \
    >"$work/output" 2>&1 </dev/null &
  demo=$!
  until grep -q 'Ctrl-C ends it' "$work/output"; do
    kill -0 "$demo" 2>/dev/null || fail "as $1 the demo ended: $(cat "$work/output")"
    sleep 0.05
  done
}

# What a clone made under umask 077 holds of the demo.
private_checkout() {
  local user=$1 binary=$2 checkout=$3
  mkdir "$checkout"
  cp -R nagaya.toml examples scripts "$checkout/"
  cp "$binary" "$checkout/nagaya"
  chmod -R u=rwX,go= "$checkout"
  [ "$(id -u)" != 0 ] || chown -R "$user" "$checkout"
}

as() {
  local user=$1
  shift
  if [ "$user" = "$(id -un)" ]; then exec "$@"; fi
  exec setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups "$@"
}

try_line() {
  local user=$1 line=$2
  local command=${line%%  #*} promise=${line##*# } said
  said=$(cd "$checkout" && bash -c "$command" 2>/dev/null </dev/null) || fail "as $user: exit status $? from: $command"
  grep -qiF -- "$promise" <<<"$said" || fail "as $user: no '$promise' from: $command
$said"
}

php_is_tried_or_left_out() {
  grep -q '/hello\.php' "$work/output" || grep -q 'PHP is left out' "$work/output" ||
    fail "PHP is neither shown nor left out: $(cat "$work/output")"
}

status_is_told() {
  local command said
  command=$(sed -n 's|^    \(/.* status -c .*\)|\1|p' "$work/output")
  [ -n "$command" ] || fail "nothing is said of the status: $(cat "$work/output")"
  said=$(as "$1" bash -c "$command") || fail "as $1: exit status $? from: $command"
  grep -qF generation <<<"$said" || fail "as $1: no status from: $command
$said"
}

# Where a copy was served, it is gone, and so is what was started for it.
nothing_is_left() {
  local place
  place=$(sed -n 's|.* from \(/.*\)/nagaya\.toml$|\1|p' "$work/output")
  [ "$place" = "$1" ] || [ ! -e "$place" ] || fail "$place is still there"
  local running=(/proc/[0-9]*/cmdline) process
  for process in "${running[@]}"; do
    if grep -qsaF -- "$place/" "$process"; then fail "still running: $(tr '\0' ' ' <"$process")"; fi
  done
}

taken_port_is_said() {
  local said
  if said=$(as "$1" "$checkout/scripts/demo.sh" --ports-free "$3" "$4" 2>&1); then fail "a taken $2 passes for free"; fi
  grep -q "make run $2=" <<<"$said" || fail "of a taken $2 is said: $said"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

listening() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

stop() {
  [ -z "$demo" ] || { kill -TERM "$demo" 2>/dev/null && wait "$demo"; } || true
  demo=
}

fail() {
  echo "test-demo: $*" >&2
  exit 1
}

main "$@"
