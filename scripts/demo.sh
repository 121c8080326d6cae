#!/usr/bin/env bash
# Serves the demo and prints what to try.
#
#   scripts/demo.sh BINARY PORT TLS_PORT         serve until Ctrl-C
#   scripts/demo.sh --ports-free PORT TLS_PORT   only see whether the ports are free
#
# Run by root, the server becomes `nobody`, who may not be able to read this checkout; and where
# others may write, no program is started. In both cases a copy of the files is served. Other ports
# than nagaya.toml's, and a php-fpm, need another configuration: a copy of that. All gone at exit,
# but for the authority for development: it stays in the checkout, so that a browser is told of it
# once. The gateway makes it where it is missing or its time is over.
#
# PHP is run by a php-fpm of the demo's own, on a socket in its temporary directory. PHP_FPM says
# which (default: the newest installed); empty is none.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

# The control socket stands beside the configuration, and its path is no longer than 107 bytes.
socket_directory_max=90

main() {
  port=$2 tls_port=$3
  ports_must_be_free
  if [ "$1" = --ports-free ]; then return; fi
  local binary=$1
  place=$PWD php=
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/nagaya-demo.XXXXXX")
  trap clean_up EXIT
  { read -r own_port && read -r own_tls_port; } < <(sed -n 's/^address = "127\.0\.0\.1:\([0-9]*\)"$/\1/p' nagaya.toml)
  if files_need_copy; then
    place=$scratch
    mkdir "$place/examples"
    cp -R examples/demo "$place/examples/demo"
    chmod -R a+rX,go-w "$place"
  fi
  start_php
  if [ "$place" = "$scratch" ] || [ -n "$php" ] || [ "$port $tls_port" != "$own_port $own_tls_port" ] ||
    ! authority_can_stay || [ ${#PWD} -gt "$socket_directory_max" ]; then
    stage_configuration
  fi
  serve "$(realpath "$binary")"
}

ports_must_be_free() {
  port_must_be_free PORT "$port"
  port_must_be_free TLS_PORT "$tls_port"
  [ "$port" != "$tls_port" ] || { echo "make run: PORT and TLS_PORT are both $port" >&2; exit 2; }
}

port_must_be_free() {
  case "$2" in '' | *[!0-9]*) echo "make run: $1=$2 is not a port" >&2; exit 2 ;; esac
  listening "$2" || return 0
  cat >&2 <<TEXT
make run: something listens on 127.0.0.1:$2 already. Stop it, or choose another port:

    make run $1=$(($2 + 10))

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
  on_our_ports "$own_port" "$own_tls_port" nagaya.toml >"$place/nagaya.toml"
  if authority_can_stay && [ -e nagaya-development.pem ]; then
    cp -p nagaya-development.* "$place/"
  fi
  [ -z "$php" ] || sed -i "s|unix:/run/php/php-fpm.sock|unix:$scratch/php.sock|" "$place/nagaya.toml"
}

# A file that names two ports, with ours in their place; either may be the other's.
on_our_ports() {
  sed "s/:$1\b/:{port}/g; s/:$2\b/:{tls_port}/g; s/{port}/$port/g; s/{tls_port}/$tls_port/g" "$3"
}

# Whether the authority in the checkout is ours, or can be: in another's, links lead where he likes.
authority_can_stay() {
  if ! [ -O . ]; then return 1; fi
  if [ -e nagaya-development.pem ]; then [ -O nagaya-development.pem ]; else [ -w . ]; fi
}

# Has the authority that was used stay in the checkout, and says where its certificate is found.
keep_authority() {
  authority=nagaya-development.crt
  if [ "$place" = "$PWD" ]; then return; fi
  if ! authority_can_stay || ! cp -p --remove-destination "$place"/nagaya-development.* .; then
    authority=$place/nagaya-development.crt
  fi
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
  program=$1
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
  kill -0 "$server" 2>/dev/null && keep_authority && print_lines
  # A signal ends `wait` early; the server is still draining then.
  while kill -0 "$server" 2>/dev/null; do
    status=0
    wait "$server" || status=$?
  done
  return "$status"
}

print_lines() {
  echo
  echo "  Nagaya serves http://127.0.0.1:$port/ and https://localhost:$tls_port/ from $place/nagaya.toml"
  echo "  Try, in another terminal, from $PWD:"
  echo
  local left_out=
  [ -n "$php" ] || left_out='/\.php/d;'
  on_our_ports 8080 8443 examples/demo/try.txt |
    sed "$left_out s|nagaya-development\.crt|$authority|; s/^./    &/"
  echo
  echo "  And what it does, and who waits:"
  echo
  echo "    $program status -c $place/nagaya.toml"
  echo
  echo "  For a browser that believes https://localhost:$tls_port/ have it trust $authority,"
  echo "  as an authority for web sites. Its key stays beside it: take its trust away when you are done."
  echo
  if [ -z "$php" ]; then
    echo "  The page of PHP is left out: it takes a php-fpm. On Debian and Ubuntu: apt install php-fpm"
    echo
  fi
  echo "  Ctrl-C ends it."
  echo
}

main "$@"
