# The only front door. `make` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
export PATH := $(HOME)/.cargo/bin:$(PATH)

PORT ?= 8080
TLS_PORT ?= 8443
ARGS ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
FIRST_BUILD = [ -e "$(TARGET_DIR)/release/nagaya" ] || echo "The first build is optimised for speed: on two cores it takes some ten minutes. The next ones are short."

.PHONY: help run demo test test-cgroup2 bench lab moving-in soak lint fmt package readme-figures

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

run: ## build, then serve the demo on 127.0.0.1:8080 and, over TLS, 8443 (PORT=8090 TLS_PORT=8453 for others)
	@scripts/demo.sh --ports-free $(PORT) $(TLS_PORT)
	@scripts/bootstrap.sh build
	@$(FIRST_BUILD)
	cargo build --release --locked -p nagaya
	@scripts/demo.sh "$(TARGET_DIR)/release/nagaya" $(PORT) $(TLS_PORT)

demo: ## one crawler, twenty sites, four PHP workers: on nginx, then on Nagaya, and a page without end, in a minute
	@scripts/bootstrap.sh demo
	@$(FIRST_BUILD)
	cargo build --release --locked -p nagaya
	cargo build --release --locked -p lab --example demo
	"$(TARGET_DIR)/release/examples/demo" "$(TARGET_DIR)/release/nagaya"

test: ## every test
	@scripts/bootstrap.sh test
	umask 022; scripts/test.sh # tests serve temporary files as another user
	@scripts/test-demo.sh "$(TARGET_DIR)/debug/nagaya"
	@scripts/test-package.sh "$(TARGET_DIR)/debug/nagaya"
	@$(MAKE) test-cgroup2
	@sed '1i test: flaky, they passed only when run once more, alone:' "$(TARGET_DIR)/flaky-tests"

test-cgroup2: ## the tests of control groups on a cgroup v2 kernel, and of connection tracking, under qemu
	@scripts/bootstrap.sh cgroup2
	cargo build --locked -p nagaya
	@scripts/test-cgroup2.sh

bench: ## the figures: beside nginx, HAProxy, h2o and Apache, written to lab/results; an hour and a half
	@scripts/bootstrap.sh bench
	cargo build --release --locked -p nagaya -p lab
	"$(TARGET_DIR)/release/nagaya-lab" run proxy static respond fastcgi many-sites access-limiter connection-reuse --together lab/results/bench.md $(ARGS)

lab: ## PHP, pools, conditions, programs, control groups, overload, scripts that wait and TLS measured: lab/results/NAME/; four hours
	@scripts/bootstrap.sh lab
	cargo build --release --locked -p nagaya -p lab
	cargo build --release --locked -p lab --examples
	"$(TARGET_DIR)/release/nagaya-lab" run static-and-php php-or-config rule-cost cgroup overload script-waits \
	  pools pools-warm pools-applications tls-handshakes tls-kept tls-flood tls-idle recorder \
	  --peer birth="$(TARGET_DIR)/release/examples/birth" --peer attach="$(TARGET_DIR)/release/examples/attach" $(ARGS)

moving-in: ## as root: thirteen applications moved from Apache, each answer compared, and whether differences that are put in are found; ten minutes
	@scripts/bootstrap.sh build
	cargo build --locked -p nagaya
	lab/moving-in/moving_in.py "$(TARGET_DIR)/debug/nagaya"
	lab/moving-in/moving_in.py "$(TARGET_DIR)/debug/nagaya" --seeded

soak: ## the long run, three hours: reloads under load, programs, scripts, mutated requests, a million `.htaccess` answers beside Apache, comparisons, fuzzing
	@scripts/bootstrap.sh test
	umask 022; NAGAYA_RELOAD_PAUSE_MS=600 cargo test --locked -p nagaya --test operated -- reload_under_load --nocapture
	umask 022; for round in {1..60}; do cargo test --locked -p nagaya --test operated -- reload_under_load; done
	umask 022; NAGAYA_PROGRAMS=10000 cargo test --locked -p nagaya --test programs -- after_many_requests
	umask 022; NAGAYA_MIXED=100000 cargo test --locked -p nagaya --test programs -- settings_of_one_site
	umask 022; cargo test --locked -p nagaya --test programs -- mail_of_a_pool --ignored
	umask 022; NAGAYA_RECORDED=1000000 cargo test --locked -p nagaya --test operated -- many_requests_are_counted --nocapture
	umask 022; NAGAYA_SOAK_S=600 cargo test --locked -p nagaya --test scripted -- scripts_soak --nocapture
	NAGAYA_HISTORIES=50000 cargo test --locked -p limits --lib -- fleet
	umask 022; NAGAYA_HISTORIES=500 cargo test --locked -p directory --test directory_tests -- the_script_decides
	umask 022; NAGAYA_MUTATIONS=200000 cargo test --locked -p nagaya --test http -- mutations
	umask 022; NAGAYA_HTACCESS_PAIRS=1000000 cargo test --locked -p nagaya --test operated -- htaccess_beside_apache --nocapture
	umask 022; NAGAYA_CERTIFICATE_CHANGES=100 cargo test --locked -p nagaya --test http -- certificates_change --nocapture
	umask 022; NAGAYA_PEBBLE=$$(scripts/pebble.sh) cargo test --locked -p keeper -- acme
	umask 022; NAGAYA_PEBBLE=$$(scripts/pebble.sh) cargo test --locked -p nagaya --test operated -- acme:: certs:: --include-ignored
	umask 022; NAGAYA_H2SPEC=$$(scripts/h2spec.sh) cargo test --locked -p nagaya --test http -- h2spec --ignored --nocapture
	cargo run --locked --profile quick -p load --example memory
	NAGAYA_SIMULATIONS=400 cargo test --locked --profile quick -p bench --lib simulation -- --nocapture
	cargo run --release --locked -p bench --example comparisons
	cargo build --locked -p nagaya -p lab --bins --examples
	umask 022; cargo test --locked -p lab --test run -- shipped --ignored
	@scripts/sanitize.sh gc address methods
	@scripts/fuzz.sh

lint: ## formatting, clippy, documentation, the rules of ARCHITECTURE.md
	@scripts/bootstrap.sh build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --document-private-items --locked
	cargo test --locked -p testkit --test repository -- layers

fmt: ## format the code
	cargo fmt --all

package: ## a .deb in target/package
	@scripts/bootstrap.sh build
	cargo build --release --locked -p nagaya
	@scripts/package.sh "$(TARGET_DIR)/release/nagaya" "$(TARGET_DIR)/package"

readme-figures: ## the pictures and tables of README and docs/figures.md, from what lab/results keeps
	cargo build --quiet --locked -p lab
	@scripts/readme-figures.sh "$(TARGET_DIR)/debug/nagaya-lab"
