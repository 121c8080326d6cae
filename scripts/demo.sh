#!/usr/bin/env bash
# Serves the demo and prints what to try.
#
#   scripts/demo.sh BINARY PORT         serve until Ctrl-C
#   scripts/demo.sh --port-free PORT    only see whether the port is free
#
# Run by root, the server becomes `nobody`, who may not be able to read this checkout; and where
# others may write, no program is started. In both cases a copy of the files is served. Another port
# than nagaya.toml's, and a php-fpm, need another configuration: a copy of that. All gone at exit.
#
# PHP is run by a php-fpm of the demo's own, on a socket in its temporary directory. PHP_FPM says
# which (default: the newest installed); empty is none.
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
  place=$PWD php=
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/nagaya-demo.XXXXXX")
  trap clean_up EXIT
  own_port=$(sed -n 's/^address = "127\.0\.0\.1:\([0-9]*\)"$/\1/p' nagaya.toml)
  if files_need_copy; then
    place=$scratch
    mkdir "$place/examples"
    cp -R examples/demo "$place/examples/demo"
    chmod -R a+rX,go-w "$place"
  fi
  start_php
  if [ "$place" = "$scratch" ] || [ -n "$php" ] || [ "$port" != "$own_port" ]; then
    stage_configuration
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

files_need_copy() {
  [ "$(id -u)" = 0 ] ||
    [ -n "$(find examples/demo ! -type l '(' -perm /022 -o ! -uid "$(id -u)" ')' -print -quit)" ]
}

# Beside the configuration stand the files it names: a copy of them, or the checkout's own.
stage_configuration() {
  [ -e "$scratch/examples" ] || ln -s "$PWD/examples" "$scratch/examples"
  place=$scratch
  sed "s/127\.0\.0\.1:$own_port/127.0.0.1:$port/g" nagaya.toml >"$place/nagaya.toml"
  [ -z "$php" ] || sed -i "s|unix:/run/php/php-fpm.sock|unix:$scratch/php.sock|" "$place/nagaya.toml"
}

# As the user the server becomes, so that it can ask; each worker may keep a few processes.
start_php() {
  local fpm=${PHP_FPM-$(newest_php_fpm)} user
  [ -n "$fpm" ] || return 0
  user=$(id -un)
  [ "$user" != root ] || user=nobody
  cat >"$scratch/php-fpm.conf" <<CONF
[global]
error_log = $scratch/php-fpm.log
daemonize = no
[demo]
user = $user
group = $(id -gn "$user")
listen = $scratch/php.sock
listen.owner = $user
listen.mode = 0600
pm = ondemand
pm.max_children = $(($(nproc) * 4 + 4))
CONF
  # Its own process group, as the server has.
  set -m
  "$fpm" --fpm-config "$scratch/php-fpm.conf" </dev/null >"$scratch/php-said" 2>&1 &
  php=$!
  set +m
  local looks
  for looks in {1..400}; do
    if [ -S "$scratch/php.sock" ]; then return; fi
    kill -0 "$php" 2>/dev/null || break
    sleep 0.05
  done
  echo "make run: php-fpm does not start: $(tail -n 1 "$scratch/php-said")" >&2
  end_php
}

newest_php_fpm() {
  local found
  found=$(PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" compgen -c php-fpm | grep -E '^php-fpm[0-9.]*$' | sort -uV | tail -n 1) || true
  [ -z "$found" ] || PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" type -P "$found"
}

end_php() {
  [ -n "$php" ] || return 0
  kill -TERM "$php" 2>/dev/null || true
  wait "$php" 2>/dev/null || true
  php=
}

clean_up() {
  end_php
  rm -rf "$scratch"
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
  local left_out=
  [ -n "$php" ] || left_out='/\.php/d;'
  sed "$left_out s/127\.0\.0\.1:8080/127.0.0.1:$port/g; s/^./    &/" examples/demo/try.txt
  echo
  if [ -z "$php" ]; then
    echo "  The page of PHP is left out: it takes a php-fpm. On Debian and Ubuntu: apt install php-fpm"
    echo
  fi
  echo "  Ctrl-C ends it."
  echo
}

main "$@"
