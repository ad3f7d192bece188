# bigiron: build, try, test, install. Every target installs its requirements (scripts/setup); nothing must be installed by hand.

PREFIX ?= /usr/local
TARGET := x86_64-unknown-linux-musl
BIN := target/$(TARGET)/release/bigiron
# The folder of `make demo`'s study and report.
DEMO_DIR ?= bigiron-results/demo

# rustup looks for its toolchains below HOME. Under another HOME (a test of a fresh one, sudo) use those beside the cargo in PATH.
ifeq ($(RUSTUP_HOME),)
toolchains := $(shell [ -d "$$HOME/.rustup/toolchains" ] || (cd "$$(dirname "$$(command -v cargo)")/../../.rustup" && pwd) 2>/dev/null)
ifneq ($(toolchains),)
export RUSTUP_HOME := $(toolchains)
endif
endif

.PHONY: all build datafusion java demo test test-busy test-long test-hosts test-datafusion lint install man completions deb tarball clean

all: build

build:
	scripts/setup build
	scripts/build

# DataFusion for the workload `dss`: a second executable, beside bigiron's.
datafusion:
	scripts/setup build
	scripts/build-datafusion

# The jar of the Java programs, which the repository contains (java/): needed only after a change there.
java:
	scripts/setup java
	scripts/build-java

# Boots two real Debian kernels in pairs in a VM; prints the verdict and the path of the HTML report.
demo:
	scripts/setup run
	scripts/build
	$(BIN) compare debian:6.1 debian:6.12 micro dbsim --clock exact --seed 7 --out $(DEMO_DIR)

# Everything: lints, unit and property tests, the smoke run of the simulation, and tests that boot kernels.
test:
	scripts/setup test
	scripts/test

# The tests again, beside a busy loop for each CPU: finds those that depend on timing.
test-busy:
	scripts/setup test
	scripts/test beside-load

# Long runs: each reader of foreign bytes gets changed inputs for BIGIRON_FUZZ_SECONDS (600); two and a half hours in all.
test-long:
	scripts/setup test
	scripts/test long

# Tests with other machines: over SSH two that boot, Debian 12 in QEMU with GRUB and with UEFI and systemd-boot, each of which the first run makes in
# four minutes; 200 kills on a simulated one; Slurm with four nodes on this machine; and the schemas of Kubernetes. Not part of `make test`: under
# emulation each boot takes half a minute.
test-hosts:
	scripts/setup test
	scripts/setup hosts
	tests/ssh/make-target grub >/dev/null
	tests/ssh/make-target systemd-boot >/dev/null
	cargo test -p bigiron --test cli --locked -- --ignored --test-threads=1 fleet:: slurm:: ssh::

# The lints and tests of bigiron-datafusion. Not part of `make test`, because DataFusion takes too long to compile in CI.
test-datafusion:
	scripts/setup build
	scripts/build-datafusion test

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

install: build man completions
	install -d $(PREFIX)/bin $(PREFIX)/share/man/man1 $(PREFIX)/share/bash-completion/completions \
		$(PREFIX)/share/zsh/site-functions $(PREFIX)/share/fish/vendor_completions.d
	install -m 755 $(BIN) $(PREFIX)/bin/bigiron
	[ ! -f $(BIN)-datafusion ] || install -m 755 $(BIN)-datafusion $(PREFIX)/bin/bigiron-datafusion
	install -m 644 target/man/*.1 $(PREFIX)/share/man/man1/
	install -m 644 target/completions/bigiron.bash $(PREFIX)/share/bash-completion/completions/bigiron
	install -m 644 target/completions/_bigiron $(PREFIX)/share/zsh/site-functions/_bigiron
	install -m 644 target/completions/bigiron.fish $(PREFIX)/share/fish/vendor_completions.d/bigiron.fish

# From the parser.
man:
	cargo xtask man target/man

# A script for each shell, which asks bigiron at each Tab.
completions: build
	install -d target/completions
	cd target/completions && for shell in bash zsh fish; do \
		PATH="$(abspath $(dir $(BIN))):$$PATH" COMPLETE=$$shell bigiron >$$shell.new || exit 1; done && \
		mv bash.new bigiron.bash && mv zsh.new _bigiron && mv fish.new bigiron.fish

# A Debian package and an archive, in target/package. Lintian finds nothing, or it is no package.
deb: build man completions
	scripts/setup package
	lintian -EviIL +pedantic --fail-on error,warning,info,pedantic "$$(scripts/package deb)"

tarball: build man completions
	scripts/package tarball

clean:
	cargo clean
