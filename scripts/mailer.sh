#!/usr/bin/env bash
# Runs exim4 or postfix as Debian installs it, for tests: for local mail alone, on a port of its own.
#
#   scripts/mailer.sh exim4|postfix PORT MAILBOXES
#
# It is installed into memory that lies over this machine's files, in namespaces of its own: the
# machine gets neither, and a kill leaves nothing. Mail for USER@localhost is put into the file USER
# of the directory MAILBOXES. As root.
set -euo pipefail

name=$1 port=$2 mailboxes=$3
place=/mnt
machine=$place/root

main() {
  [ "${MAILER_INSIDE:-}" = yes ] || MAILER_INSIDE=yes exec unshare --mount --pid --fork --kill-child -- bash "$0" "$@"
  mount -t tmpfs tmpfs "$place"
  mkdir "$place"/{upper,work,root}
  mount -t overlay overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$machine"
  mount -t proc proc "$machine/proc"
  mount --bind /dev "$machine/dev"
  install_mailer >&2
  chmod 1777 "$mailboxes"
  mount --bind "$mailboxes" "$machine/var/mail"
  "run_$name"
}

install_mailer() {
  local package=$name
  [ "$name" != exim4 ] || package=exim4-daemon-light
  printf '#!/bin/sh\nexit 101\n' >"$machine/usr/sbin/policy-rc.d"
  chmod 755 "$machine/usr/sbin/policy-rc.d"
  echo 'postfix postfix/main_mailer_type select Local only' | chroot "$machine" debconf-set-selections
  chroot "$machine" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" </dev/null
}

run_exim4() {
  chroot "$machine" exim4 -bdf -q30m -oX "127.0.0.1.$port"
}

run_postfix() {
  sed -i "s/^[^# ]* *inet .* smtpd\$/127.0.0.1:$port inet n - n - - smtpd/" "$machine/etc/postfix/master.cf"
  chroot "$machine" postconf -e 'inet_interfaces = all' 'mydestination = localhost' 'maillog_file = /dev/stdout'
  chroot "$machine" postfix start-fg
}

main "$@"
