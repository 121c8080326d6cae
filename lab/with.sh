#!/bin/sh
# Runs a server and the program it cannot be without as one process tree: what PHP costs then counts
# as the server's, as it does where PHP lives inside the server.
#
#   with.sh SOCKET LINE COMMAND...
#
# LINE is for the shell and ends in `exec PROGRAM`; COMMAND is run once SOCKET is there.
set -u
socket=$1 line=$2
shift 2
sh -c "$line" &
first=$!
trap 'kill "$first" 2>/dev/null' EXIT
turns=200
until [ -S "$socket" ]; do
  turns=$((turns - 1))
  if [ "$turns" -eq 0 ] || ! kill -0 "$first" 2>/dev/null; then
    echo "with: nothing listens on $socket; see what \`$line\` logs" >&2
    exit 1
  fi
  sleep 0.05
done
"$@" &
server=$!
trap 'kill "$server" "$first" 2>/dev/null' TERM INT
wait "$server"
status=$?
# A trapped signal ends the first wait; the server may take its time.
wait "$server"
exit "$status"
