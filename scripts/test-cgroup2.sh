#!/usr/bin/env bash
# Runs the tests that need a kernel of their own: those of control groups on one with cgroup v2
# alone, and that of a table of connections on one that follows connections and has few places.
#
#   scripts/test-cgroup2.sh [NAME ...]     test programs whose names begin so; default: cgroup conntrack
#
# Debian's cloud kernel starts under qemu, in software, with an initial file system that holds the
# test programs as cargo built them, at the same paths. Nothing is installed on the machine: the
# kernel's package is unpacked below target/. The console is the report.
set -euo pipefail
cd "$(dirname "$0")/.."

names=("$@")
[ $# -gt 0 ] || names=(cgroup conntrack)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/cgroup2
memory_mb=2048
minutes_max=${CGROUP2_MINUTES:-15}

main() {
  local kernel tool
  for tool in qemu-system-x86_64 busybox cpio strip dash setpriv apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || { echo "test-cgroup2: skipped, no $tool here"; exit 0; }
  done
  mkdir -p "$work"
  kernel=$(kernel_image)
  if [ -z "$kernel" ]; then
    echo "test-cgroup2: skipped, no cloud kernel of Debian is to be had here (apt-get update?)"
    exit 0
  fi
  pack_files
  echo "test-cgroup2: starting $(basename "$kernel"), at most $minutes_max minutes"
  boot "$kernel"
}

# The newest cloud kernel Debian offers, unpacked once; nothing where there is none.
kernel_image() {
  local image package
  image=$(find "$work/kernel" -name 'vmlinuz-*' 2>/dev/null | head -n 1)
  if [ -z "$image" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | grep -oE 'linux-image-[0-9][^ ]*-cloud-amd64' | head -n 1)
    [ -n "$package" ] || return 0
    (cd "$work" && apt-get download -qq "$package" >/dev/null 2>&1) || return 0
    dpkg-deb --extract "$work"/linux-image-*.deb "$work/kernel"
    rm -f "$work"/linux-image-*.deb
    image=$(find "$work/kernel" -name 'vmlinuz-*' | head -n 1)
  fi
  echo "$image"
}

# The gateway, the tests chosen and what they need to run, as one archive.
pack_files() {
  local root=$work/root test php tests=()
  rm -rf "$root"
  mkdir -p "$root"/{bin,etc,proc,sys,dev,tmp,run,root,var/tmp}
  chmod 1777 "$root/tmp" "$root/var/tmp"
  cp "$(command -v busybox)" "$root/bin/busybox"
  printf '%s\n' 'root:x:0:0::/root:/bin/sh' 'daemon:x:1:1::/:/bin/sh' 'www-data:x:33:33::/:/bin/sh' \
    'nobody:x:65534:65534::/:/bin/sh' >"$root/etc/passwd"
  printf '%s\n' 'root:x:0:' 'daemon:x:1:' 'www-data:x:33:' 'nogroup:x:65534:' >"$root/etc/group"
  echo '127.0.0.1 localhost' >"$root/etc/hosts"
  # busybox's own shell adds variables to what it starts; programs here meet the shell of Debian.
  add_program "$(realpath "$(command -v dash)")"
  ln -s "$(realpath "$(command -v dash)")" "$root/bin/sh"
  # Its own setpriv knows too little as well.
  add_program "$(command -v setpriv)"
  add_program "$target/debug/nagaya"
  # Of pools; without any file of settings.
  php=$(compgen -G '/usr/sbin/php-fpm*' | tail -n 1) || true
  [ -z "$php" ] || add_program "$php"
  add_modules nf_defrag_ipv4 nf_defrag_ipv6 libcrc32c nf_conntrack
  mapfile -t tests < <(chosen_tests)
  [ ${#tests[@]} -gt 0 ] || { echo "test-cgroup2: no tests named ${names[*]}" >&2; exit 1; }
  for test in "${tests[@]}"; do
    add_program "$test"
    printf 'run %q\n' "$test" >>"$work/run"
  done
  { init_head; echo "export CI=${CI:-}"; cat "$work/run"; init_end; } >"$root/init"
  rm -f "$work/run"
  chmod 755 "$root/init"
  (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/files.gz"
}

# The test programs that cargo builds under the names wanted, in the order of their names.
chosen_tests() {
  local name
  cargo test --locked --no-run -p nagaya -p os 2>&1 | tee "$work/build.log" |
    sed -nE 's|.*Executable tests/([a-z_0-9]+)(/main)?\.rs \((.*)\)|\1 \3|p' |
    while read -r name path; do
      for wanted in "${names[@]}"; do
        case $name in "$wanted"*) realpath -m "$path" ;; esac
      done
    done | awk -F/ '{ print $NF "\t" $0 }' | sort | cut -f 2
}

# Copies a program without its debugging symbols to the same path, with its libraries.
add_program() {
  local root=$work/root library
  mkdir -p "$root$(dirname "$1")"
  strip -o "$root$1" "$1"
  for library in $(ldd "$1" | grep -oE '/[^ ]+'); do
    [ -e "$root$library" ] && continue
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
}

# Copies modules of the kernel; what it has built in is not among them.
add_modules() {
  local module file
  mkdir -p "$work/root/modules"
  for module in "$@"; do
    file=$(find "$work/kernel" -name "$module.ko*" | head -n 1)
    case $file in
      *.xz) xz -dc "$file" >"$work/root/modules/$module.ko" ;;
      *.ko) cp "$file" "$work/root/modules/" ;;
    esac
  done
}

init_head() {
  cat <<'TEXT'
#!/bin/busybox sh
# The first root of all is nobody's to leave, as pools with walls leave theirs.
if [ "${1:-}" != inside ]; then
  /bin/busybox mkdir -p /machine
  /bin/busybox mount --bind / /machine
  exec /bin/busybox chroot /machine /init inside
fi
/bin/busybox --install -s /bin
[ ! -e /usr/bin/setpriv ] || ln -sf /usr/bin/setpriv /bin/setpriv
export PATH=/bin HOME=/root RUST_BACKTRACE=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
# Not over /tmp: the programs lie below it where the checkout does.
mount -t tmpfs tmpfs /run
mkdir -m 1777 /run/tests
export TMPDIR=/run/tests
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up 2>/dev/null || ifconfig lo 127.0.0.1 up
ulimit -n 20000
failed=
# Follows all connections, in every network namespace, without a firewall.
follow_connections() {
  for module in nf_defrag_ipv4 nf_defrag_ipv6 libcrc32c; do
    [ ! -e "/modules/$module.ko" ] || insmod "/modules/$module.ko"
  done
  insmod /modules/nf_conntrack.ko enable_hooks=1
  echo 4096 >/proc/sys/net/netfilter/nf_conntrack_max
  export NAGAYA_TEST_NEEDED="connection tracking"
}
run() {
  echo "cgroup2-run $1"
  # Last of all, for other tests' connections would fill that table, too.
  case ${1##*/} in conntrack*) follow_connections ;; esac
  mkdir -p "$(dirname "$1")"
  "$1" --test-threads=2 || failed="$failed $1"
}
uname -r
cat /sys/fs/cgroup/cgroup.controllers
TEXT
}

init_end() {
  cat <<'TEXT'
if [ -n "$failed" ]; then echo "cgroup2-result failed:$failed"; else echo "cgroup2-result passed"; fi
poweroff -f
TEXT
}

# Under emulation a kernel sometimes stops on its way up; one that is up runs to its end.
boot() {
  local try
  for try in 1 2 3 4; do
    run_machine "$1" && break
    echo "test-cgroup2: the kernel did not come up, try $try" >&2
  done
  grep -q '^cgroup2-result passed' "$work/console.log" || { echo "test-cgroup2: failed" >&2; exit 1; }
}

# Runs to the end; fails where the kernel is not up within a minute.
run_machine() {
  local machine shown up=
  : >"$work/console.log"
  timeout "$((minutes_max * 60))" qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 1 -m "$memory_mb" \
    -nic none -nographic -no-reboot -kernel "$1" -initrd "$work/files.gz" \
    -append "console=ttyS0 quiet panic=-1" </dev/null >"$work/console.log" 2>&1 &
  machine=$!
  tail -n +1 -f --pid="$machine" "$work/console.log" &
  shown=$!
  trap 'kill "$machine" 2>/dev/null || true' EXIT
  for _ in {1..600}; do
    if grep -q '^cgroup2-run' "$work/console.log"; then up=1; break; fi
    kill -0 "$machine" 2>/dev/null || break
    sleep 0.1
  done
  [ -n "$up" ] || kill "$machine" 2>/dev/null || true
  wait "$machine" || true
  wait "$shown" || true
  trap - EXIT
  [ -n "$up" ]
}

main
