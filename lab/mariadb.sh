#!/bin/sh
# Makes a database in a directory of its own, has it do what own.sql there says, and becomes the server
# that answers from it.
#
#   mariadb.sh PROGRAM HOME PORT
set -eu
program=$1 home=$2 port=$3

tables() {
  directory=/usr/share/mysql
  [ -e "$directory/mysql_system_tables.sql" ] || directory=/usr/share/mariadb
  printf 'create database mysql;\nuse mysql;\nset @auth_root_socket = NULL;\n'
  cat "$directory/mysql_system_tables.sql" "$directory/mysql_performance_tables.sql" \
    "$directory/mysql_system_tables_data.sql"
  echo 'flush privileges;'
  cat "$home/own.sql"
}

mkdir "$home/data"
set -- --no-defaults --user="$(id -un)" --datadir="$home/data" --innodb-buffer-pool-size=16M \
  --innodb-log-file-size=4M --innodb-doublewrite=0 --innodb-flush-log-at-trx-commit=0
tables >"$home/tables.sql"
"$program" "$@" --bootstrap --skip-networking <"$home/tables.sql"
exec "$program" "$@" --bind-address=127.0.0.1 --port="$port" --socket="$home/mariadb.sock" \
  --skip-name-resolve --max-connections=1400 --thread-cache-size=128
