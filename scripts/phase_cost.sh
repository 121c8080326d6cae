#!/bin/bash
# Prints what a request costs, by phase: instructions outside the kernel, counted by callgrind.
#
# Serves a reply out of the configuration, and one from a back end of its own, on loopback.
# REQUESTS=2000 says how many of each, PROFILE=release counts what is shipped: that builds longer.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "phase_cost: valgrind is not installed: apt-get install valgrind" >&2; exit 1; }
requests=${REQUESTS:-2000} profile=${PROFILE:-quick}
cargo build -q --profile "$profile" -p engine --example in_process
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
program=$target/$profile/examples/in_process

work=$(mktemp -d)
trap 'exec 8>&- 9>&-; wait; rm -rf "$work"' EXIT

# A configuration that listens on a port of its own; the rest is read from standard input.
configure() {
    printf 'workers = 1\n[log]\naccess = "-"\nlevel = "warn"\n[[listen]]\naddress = "127.0.0.1:%s"\n[[sites]]\nhosts = ["*"]\n' "$2" >"$work/$1.toml"
    cat >>"$work/$1.toml"
}

# Runs a server, maybe under a tool, until its pipe is closed.
serve() {
    local name=$1 end=$2
    shift 2
    mkfifo "$work/$name.pipe"
    "$@" "$program" "$work/$name.toml" <"$work/$name.pipe" >"$work/$name.out" 2>"$work/$name.err" 8>&- 9>&- &
    eval "exec $end>\"$work/$name.pipe\""
    for _ in $(seq 300); do
        grep -q '^Ready' "$work/$name.out" && return
        sleep 0.1
    done
    echo "phase_cost: $name does not start:" >&2
    cat "$work/$name.err" >&2
    exit 1
}

# Asks so often on one connection.
ask() {
    curl -sS "http://127.0.0.1:$port/$1?[1-$2]" >"$work/replies"
    [ "$(grep -c Hello "$work/replies")" = "$2" ] || { echo "phase_cost: /$1 does not answer as it should" >&2; exit 1; }
}

port=$((20000 + $$ % 10000)) back=$((30001 + $$ % 2000))
configure back "$back" <<<'rules = [{ handler = { respond = { body = "Hello, world\n" } } }]'
configure front "$port" <<END
[[sites.rules]]
match = { path = "/respond" }
handler = { respond = { body = "Hello, world\n" } }
[[sites.rules]]
match = { path = "/proxy" }
handler = { proxy = "http://127.0.0.1:$back" }
END
serve back 8
serve front 9 valgrind -q --tool=callgrind --callgrind-out-file="$work/cost" --compress-strings=no --compress-pos=no
server=$!
part=0
for path in respond proxy; do
    ask "$path" 200
    callgrind_control --zero "$server" >/dev/null 2>&1
    ask "$path" "$requests"
    callgrind_control --dump "$server" >/dev/null 2>&1
    part=$((part + 1))
    mv "$work/cost.$part" "$work/$path.cost"
done
echo "instructions a request, profile $profile, $requests requests on one connection, access log on"
awk -v requests="$requests" -f scripts/phase_cost.awk "$work/respond.cost" "$work/proxy.cost"
