#!/usr/bin/env bash
# Writes into documents what lab/results keeps: the pictures of lab/figures.toml, the README's table
# of figures with what was missed, and the table of `make demo`.
#
#   scripts/readme-figures.sh NAGAYA_LAB
#
# The last is what `make demo` printed: make -s demo >lab/results/demo.txt
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$1
results=(proxy static respond fastcgi)

main() {
  local document
  "$binary" figures
  # Drawn elsewhere: only what is kept is used, and reports stay as they are.
  drawn=$(mktemp -d) # not local: it is removed at the very end
  trap 'rm -rf "$drawn"' EXIT
  for result in "${results[@]}"; do
    install -D -m 644 "lab/results/$result/summary.jsonl" "$drawn/$result/summary.jsonl"
  done
  "$binary" draw "${results[@]/#/$drawn/}" --readme README.md >/dev/null 2>&1
  for document in README.md README.ja.md; do
    show_demo "$document" >"$drawn/document"
    cp "$drawn/document" "$document"
    echo "$document"
  done
}

# The document with the demo's table between its marks.
show_demo() {
  awk '
    /^<!-- demo -->$/ {
      print; print "```text"
      while ((getline line <"lab/results/demo.txt") > 0) print line
      print "```"
      shown = 1
    }
    /^<!-- \/demo -->$/ { shown = 0 }
    !shown { print }' "$1"
}

main
