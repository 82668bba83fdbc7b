# agentfense. `make` alone lists the targets; docs/architecture.md says where things are. On
# a fresh Debian or Ubuntu, `make demo` and `make test` need only Go and make, and install
# the other packages themselves (scripts/setup).

GO         ?= go
PREFIX     ?= /usr/local
# The architecture to build for, as in GOARCH; empty means this machine's.
ARCH       ?=
BIN        := bin/agentfense
MODULE     := github.com/agentfense/agentfense
VERSION    ?= $(shell scripts/version)
LDFLAGS    := -s -w -X $(MODULE)/internal/lib/executable.version=$(VERSION)
LINT       := $(GO) tool -modfile=tools/go.mod golangci-lint
# The stories and attacks use the static programs; all other tests run under the race
# detector. The linters include go vet.
UNIT        = $(shell $(GO) list ./... | grep -v '^$(MODULE)/test/')
TESTFLAGS  ?=
BENCHFLAGS ?=
FUZZTIME   ?= 20s

export CGO_ENABLED = 0

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

GOBUILD = GOARCH=$(ARCH) $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'

# Two programs, see internal/lib/executable.
.PHONY: build
build: build-light ## build the static programs bin/agentfense and bin/agentfense-server
	$(GOBUILD) -o $(BIN)-server ./cmd/agentfense-server

.PHONY: build-light
build-light:
	$(GOBUILD) -o $(BIN) ./cmd/agentfense

.PHONY: share
share: ## write the man pages and the completions of bash, zsh and fish below bin/share
	rm -rf bin/share
	$(GO) run -trimpath -buildvcs=false ./internal/cli/sharegen bin/share '$(VERSION)'

.PHONY: install
install: build share ## install the programs, man pages and completions below PREFIX (/usr/local)
	cd bin/share && find . -type f -exec install -D -m 0644 {} $(abspath $(DESTDIR)$(PREFIX))/share/{} \;
	install -D -m 0755 $(BIN)-server $(DESTDIR)$(PREFIX)/libexec/agentfense/agentfense-server
	install -D -m 0755 $(BIN) $(DESTDIR)$(PREFIX)/bin/agentfense

.PHONY: setup
setup: ## install the system packages the tests need (root or sudo)
	@scripts/setup test

.PHONY: demo
demo: ## install what running needs, build, and show the main job
	@scripts/setup run
	@$(MAKE) --no-print-directory build-light
	@scripts/demo $(BIN)

# Two at a time: a suite waits for about half of its time, which the linters use.
.PHONY: test
test: setup ## set up, then check and test everything
	@echo "test: two of lint, race and e2e, python at a time; each suite says how it ended" >&2
	@$(MAKE) --no-print-directory -j2 --output-sync=none lint suites python

# The Go suites, one after the other.
.PHONY: suites
suites:
	@$(MAKE) --no-print-directory race
	@$(MAKE) --no-print-directory e2e

.PHONY: lint
lint: lint-api ## formatting (gofumpt), go vet, the linters of .golangci.yml and the API's files
	$(LINT) run --allow-serial-runners ./...

.PHONY: lint-api
lint-api: ## the API's files: style, promises kept, generated code up to date
	@GO=$(GO) scripts/api check

.PHONY: format
format: ## format the Go files
	$(LINT) fmt ./...

.PHONY: race
race: ## unit, property and self-tests under the race detector
	CGO_ENABLED=1 $(GO) test -vet=off -race -timeout 15m $(TESTFLAGS) $(UNIT)

.PHONY: e2e
e2e: ## stories, attacks and the documentation's examples on the real binary; the longest first
	$(GO) test -vet=off -count=1 -timeout 15m $(TESTFLAGS) ./test/serve ./test/attack ./test/...

CHAOS_TIME ?= 10m
CHAOS_SEED ?= 0

# 0 means a random seed, which the test prints. e2e runs it for a minute with a fixed seed.
.PHONY: chaos
chaos: setup ## kill every process at random moments for CHAOS_TIME (10m), from CHAOS_SEED
	$(GO) test -vet=off -count=1 -timeout 0 -v $(TESTFLAGS) ./test/chaos -chaos.duration=$(CHAOS_TIME) -chaos.seed=$(CHAOS_SEED)

.PHONY: test-long
test-long: chaos ## what make test does a sample of: chaos, transactions, extremes, proofs, learning, git histories, all agents
	$(GO) test -vet=off -count=1 -timeout 0 $(TESTFLAGS) ./internal/sandbox/cleangit -cleangit.commits=10000 -cleangit.histories=500
	$(GO) test -vet=off -count=1 -timeout 0 $(TESTFLAGS) ./test/transactions -rapid.checks=500 -rapid.seed=0
	$(GO) test -vet=off -count=1 -timeout 0 -v $(TESTFLAGS) ./test/extremes -extremes.large=2147483649 -extremes.changes=1000000
	$(GO) test -vet=off -count=1 -timeout 0 $(TESTFLAGS) ./internal/sandbox/learn -rapid.checks=2000 -learn.exact=20
	$(GO) test -vet=off -count=1 -timeout 0 $(TESTFLAGS) ./test/realwork -run TestLearn -learn.all
	$(GO) test -vet=off -count=1 -timeout 30m -v $(TESTFLAGS) ./test/agents/... -agents.others
	$(GO) test -vet=off -count=1 -timeout 0 -v $(TESTFLAGS) ./internal/view/policy/prove -run TestAnswersAreExact -prove.policies=50000 -prove.paths=100

PYTHON_BIN  := ../../bin/python
PYTEST      := AGENTFENSE_BINARY=$(abspath $(BIN)) PYTHONPATH=src timeout 10m
PYTESTFLAGS ?=

.PHONY: python
python: build ## check and test the Python package on the real binary
	@scripts/python test >/dev/null
	cd sdk/python && $(PYTHON_BIN)/test/bin/ruff format --check --quiet && $(PYTHON_BIN)/test/bin/ruff check --quiet && $(PYTHON_BIN)/test/bin/mypy
	cd sdk/python && $(PYTHON_BIN)/test/bin/python unasync.py check && $(PYTHON_BIN)/test/bin/python reference.py check
	cd sdk/python && $(PYTEST) $(PYTHON_BIN)/test/bin/python -m pytest --ignore=tests/integrations $(PYTESTFLAGS)
	@if scripts/python has integrations || [ -n "$${AGENTFENSE_REQUIRE-}" ]; then $(MAKE) --no-print-directory python-integrations; \
	else echo "python: no Python 3.11 or newer here: agentfense.integrations is neither checked nor tested" >&2; fi

.PHONY: python-integrations
python-integrations: build ## check and test agentfense.integrations with the real frameworks (Python 3.11)
	@scripts/python integrations >/dev/null
	cd sdk/python && MYPYPATH=src $(PYTHON_BIN)/integrations/bin/mypy --cache-dir .mypy_cache/integrations src/agentfense/integrations/*.py tests/integrations/*.py examples/integrations/*.py
	cd sdk/python && $(PYTEST) $(PYTHON_BIN)/integrations/bin/python -m pytest tests/integrations $(PYTESTFLAGS)

WHEEL_ARCH = $(or $(ARCH),$(shell $(GO) env GOARCH))

.PHONY: wheel
wheel: ## build the Python wheel with the program for ARCH (this machine's), and the sdist, in dist
	@$(MAKE) --no-print-directory build ARCH=$(WHEEL_ARCH) BIN=bin/$(WHEEL_ARCH)/agentfense
	GO=$(GO) scripts/wheel bin/$(WHEEL_ARCH)/agentfense dist

.PHONY: wheels
wheels: ## build the wheels of all machines, in dist
	@for arch in amd64 arm64; do $(MAKE) --no-print-directory wheel ARCH=$$arch || exit 1; done

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: build $(if $(filter python,$(BENCHFLAGS)),wheel) ## compare with native, overlayfs and a plain bwrap
	$(GO) run ./bench $(BENCHFLAGS)

.PHONY: gen
gen: ## regenerate what is generated; must leave no difference
	$(GO) generate ./...
	@scripts/python test >/dev/null
	bin/python/test/bin/python sdk/python/unasync.py
	bin/python/test/bin/python sdk/python/reference.py

.PHONY: clean
clean: ## remove what make built
	rm -rf bin dist
