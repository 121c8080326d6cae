#!/usr/bin/env bash
# Builds a .deb from a built binary.
#
#   scripts/package.sh BINARY DIRECTORY     prints the path of the package it wrote
#
# The tree is staged by hand and packed by dpkg-deb: what is in the package is what is written here.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

binary=$1
mkdir -p "$2"
out=$(realpath "$2")
version=$("$binary" --version | awk '{ print $2 }')
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"

put() { install -D -m "$1" "$2" "$stage/$3"; }

main() {
  program
  configuration
  documents
  control
  local package="$out/nagaya_${version}_$architecture.deb"
  dpkg-deb --root-owner-group --build "$stage" "$package" >/dev/null
  echo "$package"
}

program() {
  put 755 "$binary" usr/bin/nagaya
  # Symbols stay, so that a report from the field can be read; line tables do not.
  if command -v strip >/dev/null; then strip --strip-debug "$stage/usr/bin/nagaya"; fi
  put 644 packaging/nagaya.service usr/lib/systemd/system/nagaya.service
  put 755 packaging/alert-webhook usr/lib/nagaya/alert-webhook
  put 644 packaging/welcome/index.html usr/share/nagaya/welcome/index.html
  put 644 examples/demo/site/nagaya.svg usr/share/nagaya/welcome/nagaya.svg
  put 644 examples/demo/site/style.css usr/share/nagaya/welcome/style.css
}

configuration() {
  put 644 packaging/nagaya.toml etc/nagaya/nagaya.toml
  put 644 packaging/nagaya.logrotate etc/logrotate.d/nagaya
  put 644 packaging/fail2ban/filter.conf etc/fail2ban/filter.d/nagaya-auth.conf
  put 644 packaging/fail2ban/jail.conf etc/fail2ban/jail.d/nagaya.conf
  put 644 packaging/fail2ban/action.conf etc/fail2ban/action.d/nagaya-deny.conf
  for file in packaging/hestiacp/*; do
    put "$([ "${file##*.}" = sh ] && echo 755 || echo 644)" "$file" "usr/share/nagaya/hestiacp/${file##*/}"
  done
  # What the configuration names is there before the first start, so that it can be checked.
  put 644 packaging/nagaya.tmpfiles usr/lib/tmpfiles.d/nagaya.conf
  install -d -m 755 "$stage/etc/nagaya/sites.d" "$stage/var/log/nagaya"
  install -d -m 711 "$stage/var/lib/nagaya"
}

# Manual and completions come from the same definitions as the flags.
documents() {
  install -d "$stage/usr/share/man/man1" "$stage/usr/share/bash-completion/completions" \
    "$stage/usr/share/zsh/vendor-completions" "$stage/usr/share/fish/vendor_completions.d"
  "$binary" man | gzip -9n >"$stage/usr/share/man/man1/nagaya.1.gz"
  "$binary" completions bash >"$stage/usr/share/bash-completion/completions/nagaya"
  "$binary" completions zsh >"$stage/usr/share/zsh/vendor-completions/_nagaya"
  "$binary" completions fish >"$stage/usr/share/fish/vendor_completions.d/nagaya.fish"
  local document
  for document in README.md CHANGELOG.md docs/reference/config.md packaging/example-site.toml; do
    put 644 "$document" "usr/share/doc/nagaya/$(basename "$document")"
  done
  put 644 LICENSE usr/share/doc/nagaya/copyright
  # Scripts to begin with, and the configuration that serves them.
  local file
  while IFS= read -r file; do
    put 644 "$file" "usr/share/doc/nagaya/$file"
  done < <(find examples/scripts -type f)
}

control() {
  mkdir "$stage/DEBIAN"
  cat >"$stage/DEBIAN/control" <<TEXT
Package: nagaya
Version: $version
Architecture: $architecture
Maintainer: The Nagaya authors <nagaya@localhost>
Depends: libc6
Suggests: curl, fail2ban, logrotate
Section: httpd
Priority: optional
Installed-Size: $(du -sk "$stage" | cut -f1)
Description: web gateway for machines that many sites share
 Serves files and forwards HTTP for many sites, strictly, and keeps each of
 them inside its walls.
TEXT
  (cd "$stage" && find etc -type f -printf "/%p\n" | sort) >"$stage/DEBIAN/conffiles"
  local script
  for script in postinst prerm postrm; do
    put 755 "packaging/debian/$script" "DEBIAN/$script"
  done
}

main
