#!/usr/bin/env bash
# Prints the lines of each crate without its tests, and of all.
#
#   scripts/count-lines.sh [CRATE ...]
#
# Counted are the Rust files below src/ and the C below shim/, blank lines and comments with them.
# Not counted is what stands under #[cfg(test)]: modules, in their file or in one of their own, and
# single items. Text is laid out by rustfmt, so an item ends where its indentation comes back.
set -euo pipefail
cd "$(dirname "$0")/../crates"

main() {
  local crate lines total=0
  [ $# -gt 0 ] || set -- *
  for crate in "$@"; do
    lines=$(sources "$crate" | without_tests | wc -l)
    printf '%8d  %s\n' "$lines" "$crate"
    total=$((total + lines))
  done
  printf '%8d  in all\n' "$total"
}

# The files of a crate, but for those that are modules of tests.
sources() {
  local file tests=() places=("$1/src")
  [ ! -d "$1/shim" ] || places+=("$1/shim")
  mapfile -t tests < <(find "$1/src" -name '*.rs' -exec awk "$test_modules" {} +)
  find "${places[@]}" '(' -name '*.rs' -o -name '*.[ch]' ')' | sort |
    while IFS= read -r file; do
      is_below "$file" "${tests[@]}" || echo "$file"
    done
}

# Whether a file is one of these modules, or lies in one.
is_below() {
  local file=$1 module
  shift
  for module in "$@"; do
    case $file in "$module.rs" | "$module"/*) return 0 ;; esac
  done
  return 1
}

# Of `#[cfg(test)] mod x;` the path of the module, without its ending.
# shellcheck disable=SC2016 # awk's own variables
test_modules='
  /^ *#\[cfg\(test\)\]$/ { tested = 1; next }
  tested && /^ *#\[/ { next }
  tested && /^ *(pub(\([a-z]+\))? )?mod [a-z_0-9]+;$/ {
    place = FILENAME
    if (!sub(/\/(mod|lib|main)\.rs$/, "", place)) sub(/\.rs$/, "", place)
    name = $0; sub(/;$/, "", name); sub(/.* /, "", name)
    print place "/" name
  }
  { tested = 0 }'

# The lines of the files named on the input, but for items under #[cfg(test)].
without_tests() {
  tr '\n' '\0' | xargs -0 -r awk '
    FNR == 1 { inside = 0; tested = 0 }
    inside { if ($0 == end) inside = 0; next }
    /^ *#\[cfg\(test\)\]$/ { tested = 1; next }
    tested && /^ *#\[/ { next }
    tested {
      tested = 0
      if ($0 ~ /[;,]$/ || $0 ~ /}$/) next
      end = $0; sub(/[^ ].*/, "", end); end = end "}"
      inside = 1; next
    }
    { print }'
}

main "$@"
