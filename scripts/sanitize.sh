#!/usr/bin/env bash
# The interpreter's tests under conditions that bring hidden faults to light:
# with a garbage collection at every allocation, and with AddressSanitizer (which needs a nightly toolchain).
#
#   scripts/sanitize.sh [gc|address|methods]...
#
# `methods` is an hour (NAGAYA_FUZZ_S seconds) of crates/script/tests/method_fuzz.rs alone, under
# AddressSanitizer. All build mruby anew, below target/sanitize.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}/sanitize

main() {
  [ $# -gt 0 ] || set -- gc address
  local kind
  for kind in "$@"; do
    case $kind in
      gc) under_gc_stress ;;
      address) under_address_sanitizer ;;
      methods) NAGAYA_FUZZ_S=${NAGAYA_FUZZ_S:-3600} under_address_sanitizer --test script_tests -- method_fuzz --nocapture ;;
      *) echo "usage: scripts/sanitize.sh [gc|address|methods]..." >&2; exit 2 ;;
    esac
  done
}

# A value that Rust or the shim holds unseen by the collector is gone at the next allocation.
under_gc_stress() {
  echo "sanitize: a collection at every allocation" >&2
  # Everything takes longer by orders of magnitude; what is about time is left to the ordinary run.
  CARGO_TARGET_DIR=$target/gc NAGAYA_MRUBY_FLAGS=-DMRB_GC_STRESS NAGAYA_PATIENCE=1000 \
    cargo test --locked -p mruby -p script
}

under_address_sanitizer() {
  if ! rustc +nightly --version >/dev/null 2>&1; then
    echo "sanitize: no nightly toolchain, AddressSanitizer is left out (rustup toolchain install nightly)" >&2
    return 0
  fi
  echo "sanitize: AddressSanitizer" >&2
  # Rust links its own runtime; gcc's calls fit it, and clang would want its runtime installed as well.
  # Leaks are told by the tests' own counts: an interpreter that is given up is freed block by block.
  CC=gcc CARGO_TARGET_DIR=$target/address NAGAYA_MRUBY_FLAGS="-fsanitize=address -fno-omit-frame-pointer" \
    RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0 NAGAYA_PATIENCE=20 \
    cargo +nightly test --locked -p mruby -p script --target x86_64-unknown-linux-gnu "$@"
}

main "$@"
