#!/bin/sh
# Runs php-fpm and the server in front of it as one process tree: what PHP costs then counts as the
# server's, as it does where PHP lives inside the server.
#
#   with-php.sh FPM_CONFIG SOCKET COMMAND...    SOCKET is awaited before COMMAND is run
set -u
config=$1 socket=$2
shift 2
program=$(command -v php-fpm || ls /usr/sbin/php-fpm* | tail -n 1)
"$program" -F -y "$config" &
php=$!
trap 'kill "$php" 2>/dev/null' EXIT
turns=200
until [ -S "$socket" ]; do
  turns=$((turns - 1))
  if [ "$turns" -eq 0 ] || ! kill -0 "$php" 2>/dev/null; then
    echo "with-php: $program does not listen on $socket; see its log beside $config" >&2
    exit 1
  fi
  sleep 0.05
done
"$@" &
server=$!
trap 'kill "$server" "$php" 2>/dev/null' TERM INT
wait "$server"
status=$?
# A trapped signal ends the first wait; the server may take its time.
wait "$server"
exit "$status"
