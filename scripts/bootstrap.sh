#!/usr/bin/env bash
# Installs what the build, the tests or the benchmark need and this machine lacks.
#
#   scripts/bootstrap.sh build|demo|test|bench|lab|moving-in|cgroup2
#
# Looks first: with nothing missing it does nothing. On Debian and Ubuntu it uses apt, with sudo
# when not root; elsewhere it prints what to install and stops. Services a package would start
# (nginx, haproxy, h2o, apache2, php-fpm, MariaDB, PostgreSQL, memcached, Redis, fail2ban) are neither started nor enabled.
set -euo pipefail

# what:package:need, where what is a command or a file (`*` for any text) that must exist.
# An optional one that cannot be installed is said and skipped.
build_tools=(
  cc:gcc:required
  /usr/include/stdio.h:libc6-dev:required
  make:make:required
  git:git:required
  pkg-config:pkg-config:required
  ruby:ruby:required
  rake:rake:required
  /usr/lib/llvm-*/lib/libclang.so:libclang-dev:required
  patch:patch:required
)
demo_tools=(
  /usr/sbin/php-fpm*:php-fpm:required
  nginx:nginx-light:optional
)
test_tools=(
  curl:curl:required
  nginx:nginx-light:required
  /usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream:required
  haproxy:haproxy:required
  node:nodejs:required
  python3:python3:required
  ab:apache2-utils:required
  h2load:nghttp2-client:required
  htpasswd:apache2-utils:required
  apache2:apache2-bin:required
  /usr/lib/apache2/modules/libphp*.so:libapache2-mod-php:required
  slowhttptest:slowhttptest:required
  /usr/share/perl5/Sys/Statistics/Linux/LoadAVG.pm:libsys-statistics-linux-perl:required
  /usr/sbin/php-fpm*:php-fpm:required
  /usr/lib/php/*/sqlite3.so:php-sqlite3:required
  memcached:memcached:required
  mariadbd:mariadb-server:required
  /usr/lib/postgresql/*/bin/postgres:postgresql:required
  redis-server:redis-server:required
  openssl:openssl:required
  pebble:pebble:required
  testssl:testssl.sh:required
  fail2ban-regex:fail2ban:required
  pip3:python3-pip:required
  /usr/bin/chromium*:chromium:optional
  ip:iproute2:optional
  nft:nftables:optional
)
bench_tools=(
  wrk:wrk:optional
  h2load:nghttp2-client:optional
  setpriv:util-linux:optional
  python3:python3:optional
  nginx:nginx-light:optional
  haproxy:haproxy:optional
  h2o:h2o:optional
  apache2:apache2-bin:optional
  /usr/sbin/php-fpm*:php-fpm:optional
  /usr/lib/nginx/modules/ngx_http_lua_module.so:libnginx-mod-http-lua:optional
  /usr/share/lua/5.1/resty/core.lua:lua-resty-core:optional
  memcached:memcached:optional
  mariadbd:mariadb-server:optional
  redis-server:redis-server:optional
  perf:linux-perf:optional
)
lab_tools=(
  wrk:wrk:required
  taskset:util-linux:required
  python3:python3:required
  nginx:nginx-light:required
  apache2:apache2-bin:required
  haproxy:haproxy:required
  /usr/share/perl5/Sys/Statistics/Linux/LoadAVG.pm:libsys-statistics-linux-perl:required
  fcgiwrap:fcgiwrap:required
  cc:gcc:required
  /usr/sbin/php-fpm*:php-fpm:required
  /usr/lib/php/*/sqlite3.so:php-sqlite3:required
  /usr/lib/nginx/modules/ngx_http_lua_module.so:libnginx-mod-http-lua:required
  /usr/share/lua/5.1/resty/core.lua:lua-resty-core:required
  memcached:memcached:required
  mariadbd:mariadb-server:required
  redis-server:redis-server:required
  /usr/lib/apache2/modules/libphp*.so:libapache2-mod-php:optional
  /usr/lib/apache2/modules/mpm_itk.so:libapache2-mpm-itk:optional
  /usr/lib/apache2/modules/mod_fcgid.so:libapache2-mod-fcgid:optional
  php-cgi:php-cgi:optional
  uwsgi-core:uwsgi-core:optional
  /usr/lib/uwsgi/plugins/php_plugin.so:uwsgi-plugin-php:optional
  php:php-cli:optional
  /usr/share/wordpress/wp-login.php:wordpress:optional
  /usr/share/wordpress/wp-content/themes/twenty*:wordpress-theme-twentytwentythree:optional
  /usr/share/mediawiki/index.php:mediawiki:optional
  /usr/share/dokuwiki/doku.php:dokuwiki:optional
  /usr/share/phpmyadmin/index.php:phpmyadmin:optional
  /usr/share/roundcube/index.php:roundcube:optional
  gunicorn:gunicorn:optional
)
moving_in_tools=(
  unshare:util-linux:required
  ip:iproute2:required
  curl:curl:required
  python3:python3:required
  /usr/share/doc/apache2/examples/apache2.monit:apache2:required
  mariadbd:mariadb-server:required
  /usr/sbin/php-fpm8.2:php8.2-fpm:required
  php:php-cli:required
  /usr/lib/php/*/sqlite3.so:php-sqlite3:required
  /usr/lib/php/*/mysqli.so:php-mysql:required
  gunicorn:gunicorn:required
  /usr/sbin/sendmail:msmtp-mta:required
  /usr/share/dbconfig-common/dpkg:dbconfig-no-thanks:required
  /usr/share/wordpress/wp-login.php:wordpress:required
  /usr/share/wordpress/wp-content/themes/twenty*:wordpress-theme-twentytwentythree:required
  /usr/share/mediawiki/index.php:mediawiki:required
  /usr/share/dokuwiki/doku.php:dokuwiki:required
  /usr/share/phpmyadmin/index.php:phpmyadmin:required
  /usr/share/roundcube/index.php:roundcube:required
  /usr/share/tt-rss/www/index.php:tt-rss:required
  /usr/share/shaarli/index.php:shaarli:required
  /etc/gitweb.conf:gitweb:required
  /usr/lib/cgit/cgit.cgi:cgit:required
  /usr/lib/cgi-bin/awstats.pl:awstats:required
  /usr/lib/munin/cgi/munin-cgi-graph:munin:required
  /usr/lib/cgi-bin/smokeping.cgi:smokeping:required
  /usr/lib/python3/dist-packages/flask:python3-flask:required
)
cgroup2_tools=(
  qemu-system-x86_64:qemu-system-x86:optional
  busybox:busybox-static:optional
  cpio:cpio:optional
  strip:binutils:optional
)

main() {
  case "${1:-}" in
    build) tools=("${build_tools[@]}") ;;
    demo) tools=("${build_tools[@]}" "${demo_tools[@]}") ;;
    test) tools=("${build_tools[@]}" "${test_tools[@]}") ;;
    bench) tools=("${build_tools[@]}" "${bench_tools[@]}") ;;
    lab) tools=("${build_tools[@]}" "${lab_tools[@]}") ;;
    moving-in) tools=("${moving_in_tools[@]}") ;;
    cgroup2) tools=("${build_tools[@]}" "${cgroup2_tools[@]}") ;;
    *) echo "usage: scripts/bootstrap.sh build|demo|test|bench|lab|moving-in|cgroup2" >&2; exit 2 ;;
  esac
  # nginx and haproxy live in sbin, which an ordinary user's PATH may lack.
  PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
  install_missing
  [ "${1:-}" != test ] || install_python
  require_cargo
}

# Clients that speak TLS wrongly, of which Debian has no package: beside what is built, for tests alone.
install_python() {
  local place="${CARGO_TARGET_DIR:-target}/test-python"
  [ -d "$place/tlslite" ] && return 0
  python3 -m pip install --quiet --disable-pip-version-check --target "$place" tlslite-ng==0.8.2 ||
    echo "bootstrap: tlslite-ng is not to be had here; going on without it" >&2
}

install_missing() {
  local required optional
  required=$(missing required)
  optional=$(missing optional)
  [ -n "$required$optional" ] || return 0
  if ! command -v apt-get >/dev/null; then
    [ -z "$optional" ] || echo "bootstrap: these would make the run complete:" $optional >&2
    [ -n "$required" ] || return 0
    echo "bootstrap: please install (Debian's package names):" $required >&2
    exit 1
  fi
  choose_root
  hold_services
  echo "bootstrap: installing" $required $optional >&2
  as_root apt-get update -qq || echo "bootstrap: apt-get update failed; trying with the lists at hand" >&2
  # shellcheck disable=SC2086 # package names, split on purpose
  [ -z "$required" ] || apt_install $required
  for package in $optional; do
    apt_install "$package" || echo "bootstrap: $package is not to be had here; going on without it" >&2
  done
}

# The packages of the given need that are not there, each once.
missing() {
  local entry what package need
  for entry in "${tools[@]}"; do
    IFS=: read -r what package need <<<"$entry"
    [ "$need" = "$1" ] || continue
    compgen -G "$what" >/dev/null || command -v "$what" >/dev/null || echo "$package"
  done | sort -u
}

choose_root() {
  if [ "$(id -u)" = 0 ]; then
    as_root() { "$@"; }
  elif command -v sudo >/dev/null; then
    as_root() { sudo "$@"; }
  else
    echo "bootstrap: not root and no sudo; as root, run: apt-get install" $(missing required) >&2
    exit 1
  fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null || return 1
  local service
  for service in nginx haproxy h2o fcgiwrap php-fpm mariadb postgresql memcached redis-server fail2ban; do
    # Only what this call installed: a server somebody runs here on purpose stays as it is.
    case " $* " in *" $service"*) disable_service "$service" ;; esac
  done
}

# policy-rc.d is Debian's way to say that packages must not start their services.
hold_services() {
  [ -e /usr/sbin/policy-rc.d ] && return 0
  printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
  as_root chmod 755 /usr/sbin/policy-rc.d
  trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
}

disable_service() {
  [ -d /run/systemd/system ] || return 0
  local units=("$1")
  case $1 in
    fcgiwrap) units=(fcgiwrap.service fcgiwrap.socket) ;;
    php-fpm) units=("$(basename /usr/lib/systemd/system/php*-fpm.service)") ;; # named by its version
  esac
  as_root systemctl disable --quiet "${units[@]}" 2>/dev/null || true
}

require_cargo() {
  PATH="$HOME/.cargo/bin:$PATH"
  command -v cargo >/dev/null && return 0
  cat >&2 <<'TEXT'
bootstrap: no cargo. Install Rust (1.88 or newer), then try again:

    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh

TEXT
  exit 1
}

main "$@"
