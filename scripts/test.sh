#!/usr/bin/env bash
# Runs every test, and once more, alone, each that failed: so a machine that stood still for a moment
# is told from a mistake.
#
#   scripts/test.sh [ARGUMENT ...]     for `cargo test`; without any: --workspace
#
# A test that passes alone is flaky: it is listed below target/flaky-tests, and has to be mended. One
# that fails again fails the run, as do more than three flaky ones. CARGO names another cargo.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-target}
list=$target/flaky-tests
flaky_max=3
export CARGO_TERM_COLOR=never

main() {
  local status=0
  [ $# -gt 0 ] || set -- --workspace
  mkdir -p "$target"
  : >"$list"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  "$cargo" test --locked --no-fail-fast "$@" 2>&1 </dev/null | tee "$log" || status=$?
  [ "$status" -ne 0 ] || return 0
  try_again
}

try_again() {
  local program package target_of name flaky=0 failed=0
  while IFS=$'\t' read -r program package target_of name; do
    echo "test: once more, alone: $target_of ${name:-(the whole program)}"
    if alone "$program" "$package" "$name"; then
      flaky=$((flaky + 1))
      echo "$target_of ${name:-(the whole program)}" >>"$list"
    else
      failed=$((failed + 1))
    fi
  done < <(failures)
  # Without a failed test it was the compiler, or cargo.
  [ $((flaky + failed)) -gt 0 ] || { echo "test: failed before a test did" >&2; exit 1; }
  if [ "$failed" -gt 0 ]; then echo "test: $failed failed, and alone once more" >&2; exit 1; fi
  if [ "$flaky" -gt "$flaky_max" ]; then
    echo "test: $flaky passed only when they were run alone, at most $flaky_max may:" >&2
    cat "$list" >&2
    exit 1
  fi
}

# What failed by what cargo said: program, package, cargo's words for the program, and the test's full
# name, none where the program ended without a list.
failures() {
  awk -v OFS='\t' '
    /^ +Running / { program = $0; sub(/^[^(]*\(/, "", program); sub(/\)$/, "", program); count = 0 }
    /^ +Doc-tests / { program = "doc"; count = 0 }
    # The first of two lists has what tests said, the second their names.
    /^failures:$/ { listing = 1; count = 0; next }
    /^test result: / { listing = 0 }
    listing && /^    [^ ]/ { names[count++] = substr($0, 5) }
    /^error: test failed, to rerun pass `/ {
      words = $0; sub(/^[^`]*`/, "", words); sub(/`.*/, "", words)
      split(words, word, " ")
      if (program == "doc" || count == 0) print program, word[2], words, ""
      else for (i = 0; i < count; i++) print program, word[2], words, names[i]
      count = 0
    }' "$log"
}

# Runs the program that was built, where cargo would: `cargo test -p` would build it anew, with the
# features of one package. Of tests of documentation there is no program, and no name without blanks.
alone() {
  local program=$1 package=$2 name=$3 said
  if [ "$program" = doc ]; then
    "$cargo" test --locked -p "$package" --doc </dev/null
    return
  fi
  program=$(realpath "$program")
  if [ -z "$name" ]; then
    (cd "crates/$package" && "$program" </dev/null)
    return
  fi
  said=$(cd "crates/$package" && "$program" --exact "$name" </dev/null 2>&1) || { echo "$said"; return 1; }
  grep -q '^test result: ok\. 1 passed' <<<"$said"
}

main "$@"
