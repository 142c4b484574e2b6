# `make test` is all of CI. The tools that pip, npm and cargo have come into .venv, .venv-sam, .venv-lint,
# tests/node_modules and target/tools; Rust, cargo-nextest, Python 3.11 and Node 20 must be there.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
PIP_FLAGS := --quiet --disable-pip-version-check --no-input

# Named after what they were installed from: changed pins make a new name, and so a new install.
digest = $(shell cat $(1) | sha256sum | cut -c1-16)
VENV_READY := .venv/.ready-$(call digest,tests/requirements.txt)
SAM_READY := .venv-sam/.ready-$(call digest,tests/requirements-sam.txt)
LINT_READY := .venv-lint/.ready-$(call digest,tests/requirements-lint.txt)
DYNOXIDE := 3.2.0
DYNOXIDE_READY := target/tools/.ready-dynoxide-$(DYNOXIDE)
BENCH_STORE_READY := target/bench/tools/.ready-dynoxide-$(DYNOXIDE)
NODE_READY := tests/node_modules/.ready-$(call digest,tests/package-lock.json)

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: test
test: tools ## Everything that must hold
	$(PYTHON) tests/run.py

.PHONY: check
check: tools ## Format, lints and infrastructure, without running anything
	$(PYTHON) tests/run.py tools fmt template deny clippy

.PHONY: test-localstack
test-localstack: tools ## The end-to-end tests against the LocalStack at AWS_ENDPOINT_URL
	$(PYTHON) tests/run.py --external tools build e2e

.PHONY: test-mutants
test-mutants: tools ## Takes guards out of the code; the tests must notice
	$(PYTHON) tests/run.py tools mutants drills

.PHONY: bench
bench: tools $(BENCH_STORE_READY) ## The released worker beside a hand-written handler and Powertools (a quarter of an hour)
	$(PYTHON) benches/run.py

.PHONY: bench-docs
bench-docs: tools $(BENCH_STORE_READY) ## The same, and its report is copied into docs/bench
	$(PYTHON) benches/run.py --docs

SEEDS ?= 1000000

.PHONY: soak
soak: ## The simulation over SEEDS seeds (1,000,000), and a tenth beyond the clocks' margin
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=3 \
	cargo run --locked --release --no-default-features --features test-util --bin soak -- $(SEEDS)

CARGO_MUTANTS := 27.1.0

.PHONY: mutants
mutants: ## Changes the protocol's code at random; its own tests must notice (half an hour)
	cargo install cargo-mutants --version $(CARGO_MUTANTS) --locked --quiet --debug --root target/tools
	PATH="$(CURDIR)/target/tools/bin:$$PATH" cargo mutants --file 'src/protocol/**' --jobs 2 --timeout 60 \
		--no-default-features --features test-util --output target/mutants/random -- --lib --test worker

.PHONY: fuzz
fuzz: ## Feeds every reader changed input, for SECONDS_EACH (60)
	ONLYONCE_FUZZ_SECONDS=$(or $(SECONDS_EACH),60) cargo nextest run --locked --lib --profile fuzz \
		-E 'test(/(^|::)fuzz::/)' --no-capture

FUZZED := $(notdir $(wildcard tests/fuzz/corpus/*))
CARGO_FUZZ := 0.13.2

.PHONY: fuzz-guided
fuzz-guided: ## The same by libFuzzer, which sees what an input reaches, and within 1 GiB of memory
	cargo install cargo-fuzz --version $(CARGO_FUZZ) --locked --quiet --debug --root target/tools
	for target in $(FUZZED); do \
		mkdir -p target/fuzz/corpus/$$target; \
		RUSTC_BOOTSTRAP=1 PATH="$(CURDIR)/target/tools/bin:$$PATH" cargo fuzz run --sanitizer none --target-dir target/fuzz/build \
			$$target target/fuzz/corpus/$$target tests/fuzz/corpus/$$target -- \
			-max_total_time=$(or $(SECONDS_EACH),60) -rss_limit_mb=1024 -timeout=5 -print_final_stats=1; \
	done

.PHONY: fmt
fmt: ## Formats the Rust code
	cargo fmt

.PHONY: tools
tools: $(VENV_READY) $(SAM_READY) $(LINT_READY) $(NODE_READY) $(DYNOXIDE_READY) redis-server postgres

# A service of the system's own packages, unless a program of that name is there.
install = command -v $(1) >/dev/null || { \
	command -v apt-get >/dev/null || { echo "$(1) is missing, and there is no apt-get: install $(2)" >&2; exit 1; }; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	$$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(3) >/dev/null; }

.PHONY: redis-server
redis-server:
	@$(call install,redis-server,Redis 6.2 or later or Valkey,redis-server)

# Debian keeps each version's programs in a folder of its own.
.PHONY: postgres
postgres:
	@$(call install,/usr/lib/postgresql/*/bin/postgres,PostgreSQL 14 or later,postgresql)
	@$(call install,openssl,OpenSSL 3,openssl)

$(VENV_READY):
	rm -rf .venv
	$(PYTHON) -m venv .venv
	.venv/bin/pip install $(PIP_FLAGS) --requirement tests/requirements.txt
	touch $@

# Its own environment: SAM and MiniStack ask for different versions of boto3.
$(SAM_READY):
	rm -rf .venv-sam
	$(PYTHON) -m venv .venv-sam
	.venv-sam/bin/pip install $(PIP_FLAGS) --requirement tests/requirements-sam.txt
	touch $@

# Checkov, too, asks for a boto3 of its own.
$(LINT_READY):
	rm -rf .venv-lint
	$(PYTHON) -m venv .venv-lint
	.venv-lint/bin/pip install $(PIP_FLAGS) --requirement tests/requirements-lint.txt
	touch $@

$(NODE_READY):
	npm --prefix tests ci --silent --no-audit --no-fund
	touch $@

# The second DynamoDB. Unoptimised it is there in two minutes, and fast enough.
$(DYNOXIDE_READY):
	cargo install dynoxide-rs --version $(DYNOXIDE) --locked --force --quiet --debug --root target/tools \
		--no-default-features --features native-sqlite,http-server,cli
	touch $@

# Optimised: otherwise a benchmark would measure little else.
$(BENCH_STORE_READY):
	CARGO_PROFILE_RELEASE_LTO=off cargo install dynoxide-rs --version $(DYNOXIDE) --locked --force --quiet \
		--root target/bench/tools --no-default-features --features native-sqlite,http-server,cli
	touch $@
