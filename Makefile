# SPDX-License-Identifier: Apache-2.0
# One word for everything; the build itself is meson's (meson.build). `make help` lists the words.
# The interpreter and meson are named by path: a python of the user's own (pyenv, conda) would shadow them.
SHELL  := /bin/bash
.SHELLFLAGS := -o pipefail -c
BUILD  ?= build
PREFIX ?= /usr/local
DESTDIR ?=
MESON  = /usr/bin/meson
PYTHON = /usr/bin/python3
NINJA  = ninja -C $(BUILD) --quiet

all: packages $(BUILD)/build.ninja ## build into build/ (installs missing Debian packages when root)
	@test -e $(BUILD)/cay || echo "building into $(BUILD)/; the first time takes a minute or two"
	@$(NINJA) | sed '/^ninja: no work to do/d'

packages:
	@tools/packages.sh

$(BUILD)/build.ninja:
	@$(MESON) setup $(BUILD) --prefix $(PREFIX) >$(BUILD)-setup.log 2>&1 || { cat $(BUILD)-setup.log; exit 1; }
	@rm -f $(BUILD)-setup.log

test: packages-test all sanitized ## every test but the long ones
	@$(PYTHON) tests/run.py --build $(BUILD) --sanitized $(BUILD)-sanitize $(ARGS)

test-vm: ## the core tests on a virtual machine: Linux 6.1, systemd, cgroup v2 (ARGS="exec/ store/ …"; without KVM it takes hours)
	@tools/packages.sh vm
	@tests/vm/run $(ARGS)

test-long: packages-test all sanitized ## the long tests too
	@$(PYTHON) tests/run.py --build $(BUILD) --sanitized $(BUILD)-sanitize --long $(ARGS)

test-package: packages-test all ## build and try it as a distribution packages it (LTO, NDEBUG, other directories)
	@$(PYTHON) tests/run.py --build $(BUILD) --long --only install/test_package $(ARGS)

# The unit tests and the corpora once more, with address and undefined-behaviour sanitizers (static programs cannot have them).
sanitized: packages
	@[ -e $(BUILD)-sanitize/build.ninja ] || $(MESON) setup $(BUILD)-sanitize --buildtype debug -Db_sanitize=address,undefined -Dc_args=-Wno-format-truncation >/dev/null
	@ninja -C $(BUILD)-sanitize --quiet $$(ninja -C $(BUILD)-sanitize -t targets all | \
		sed -nE 's,^(tests/unit/test_[a-z0-9_]+|fuzz/replay_[a-z0-9_]+): .*,\1,p') | sed '/^ninja: no work to do/d'

quick: all ## unit tests and the quick part of lint
	@$(PYTHON) tests/run.py --build $(BUILD) --quick $(ARGS)

packages-test:
	@tools/packages.sh test

lint: packages-test all ## layers, documentation, banned calls, tables, formatting
	@$(PYTHON) tools/lint.py

demo: all ## the guided tour, on real input
	@tools/packages.sh demo
	@tools/demo $(ARGS)

attack: packages-test ## the attack suite: a table of defences
	@tests/attack/run $(ARGS)

bench-fork: all ## live snapshots and forks, beside plain fork()
	@tools/packages.sh test bench
	@bench/fork $(ARGS)

bench: all ## measure, side by side with the peers
	@tools/packages.sh test bench
	@bench/run $(ARGS)

bench-gateway: all ## the gateway beside mitmproxy, Squid, nginx and HAProxy
	@tools/packages.sh test bench
	@bench/gateway $(ARGS)

fuzz: packages-test ## every codec under libFuzzer, ASan and UBSan (ARGS="--seconds N TARGET…")
	@fuzz/run $(ARGS)

asan: packages-test ## the whole suite in a build with AddressSanitizer and UndefinedBehaviorSanitizer (ARGS as for make test)
	@test -e build-asan/build.ninja || $(MESON) setup build-asan -Db_sanitize=address,undefined >/dev/null
	@ninja -C build-asan --quiet
	@ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(PYTHON) tests/run.py --build build-asan $(ARGS)

install: all ## install into $(DESTDIR)$(PREFIX)
	@$(MESON) configure $(BUILD) -Dprefix=$(PREFIX) >/dev/null
	@DESTDIR=$(DESTDIR) $(MESON) install -C $(BUILD) --quiet

clean: ## remove the build directory
	rm -rf $(BUILD) $(BUILD)-sanitize $(BUILD)-setup.log

help:
	@sed -n 's/^\([a-z-]*\):[^#]*## */\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: all packages packages-test test test-vm test-long test-package quick lint demo attack bench bench-fork bench-gateway fuzz asan install clean help
