# telecl: one command each to see it work, to test it, and to compare it with the real driver.
# `make help` lists the targets. All of them may be run again at any time.

# rustup puts cargo here; a login shell would have it in PATH.
export PATH := $(HOME)/.cargo/bin:$(PATH)

BUILT := $(or $(CARGO_TARGET_DIR),target)
BIN := $(BUILT)/release
PYTHON := python3
PREFIX := /usr/local

# One profile for everything: two cores build the workspace once, and what is tested is what is shipped.
PROFILE := --release

# What a program with OpenCL needs, a driver to serve, programs to try it with, and a Prometheus to scrape it.
PACKAGES := gcc libc6-dev binutils python3 python3-venv \
	ocl-icd-libopencl1 ocl-icd-opencl-dev opencl-headers pocl-opencl-icd \
	clinfo hashcat piglit valgrind prometheus g++

.PHONY: help demo test test-in-order check parity build driver-portable spank e2e-slurm images e2e-kube kube-api packages install uninstall format lint unit guard \
	guard-bless symbols system parity-ci fuzz fuzz-ci clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: packages build ## start a service, list its devices, run clinfo and hashcat through it (minutes)
	@.ci/demo $(BIN)

# Kubernetes is built for minutes, of which no other test needs the result: while these wait, not before them.
test: ## everything that a change must pass: packages, build, lints, all tests, parity subset, Slurm and Kubernetes (needs root)
	$(MAKE) packages
	@.ci/install $(KUBE_PACKAGES)
	@.ci/beside $(BUILT)/kube-ahead.log tests/kube/ahead -- $(MAKE) test-in-order

test-in-order:
	$(MAKE) build
	$(MAKE) format
	$(MAKE) lint
	$(MAKE) unit
	$(MAKE) guard
	$(MAKE) symbols
	$(MAKE) system
	$(MAKE) parity-ci
	@.ci/beside --both $(BUILT)/fuzz-ci.log $(MAKE) fuzz-ci -- $(MAKE) e2e-slurm
	$(MAKE) kube-api
	$(MAKE) e2e-kube
	@echo "All tests passed."

check: format lint ## for developers: format, lints, and the tests that need neither loader nor service
	cargo test $(PROFILE) -p telecl-wire -p telecl-net -p telecl-config -p telecl-policy

parity: packages build ## run all suites directly and through telecl; writes docs/parity.md (an hour or more)
	$(PYTHON) tests/parity/parity.py --telecl $(BIN)/telecl --driver $(BIN)/libtelecl.so --report docs/parity.md

build: ## the command and the driver, in target/release
	@.ci/need-cargo
	cargo build $(PROFILE) --workspace

driver-portable: ## the driver for containers, with glibc 2.17 or later or with musl, in target/portable
	@.ci/install gcc libc6-dev binutils python3 python3-venv musl
	@.ci/need-cargo
	@.ci/driver-portable $(BUILT)

spank: ## the option --remote-accel for this system's release of Slurm: target/release/libspank_telecl.so
	@.ci/install gcc libc6-dev libslurm-dev
	@.ci/need-cargo
	@# Said aloud, so that what was built before there were headers is built again: they are older than that.
	SLURM_INCLUDE="$${SLURM_INCLUDE:-/usr/include}" cargo build $(PROFILE) -p telecl-spank

packages: ## install the Debian packages that are missing (uses sudo if need be)
	@.ci/install $(PACKAGES)

# Does not build: root may have no Rust, and should not own what is built.
install: ## put telecl below PREFIX (/usr/local) and its ICD file where loaders look; needs root
	@test -e $(BIN)/libtelecl.so || { echo "error: nothing is built yet. Try: make build" >&2; exit 1; }
	install -D -m 755 $(BIN)/telecl $(DESTDIR)$(PREFIX)/bin/telecl
	install -D -m 644 $(BIN)/libtelecl.so $(DESTDIR)$(PREFIX)/lib/telecl/libtelecl.so
	test ! -e $(BUILT)/portable/libtelecl.so || install -D -m 644 $(BUILT)/portable/libtelecl.so $(DESTDIR)$(PREFIX)/lib/telecl/portable/libtelecl.so
	install -D -m 644 include/telecl.h $(DESTDIR)$(PREFIX)/include/telecl.h
	install -d $(DESTDIR)/etc/OpenCL/vendors
	echo $(PREFIX)/lib/telecl/libtelecl.so > $(DESTDIR)/etc/OpenCL/vendors/telecl.icd

uninstall: ## remove what `make install` put there
	rm -f $(DESTDIR)$(PREFIX)/bin/telecl $(DESTDIR)$(PREFIX)/include/telecl.h
	rm -f $(DESTDIR)/etc/OpenCL/vendors/telecl.icd
	rm -rf $(DESTDIR)$(PREFIX)/lib/telecl

format: ## is the source formatted?
	@.ci/if-component fmt rustfmt cargo fmt --all --check

lint: ## clippy, warnings are errors
	@.ci/if-component clippy clippy cargo clippy $(PROFILE) --workspace --all-targets -- -D warnings

unit: ## the tests of all crates but the system tests
	cargo test $(PROFILE) --workspace --exclude telecl-system-tests

# Any Go will do: an old one fetches the one that is needed (tests/kube/programs/go).
GO_PACKAGE := $(shell (command -v go || command -v /usr/local/go/bin/go) >/dev/null || echo golang-go)

# The programs are built from Go modules once, and kept.
kube-api: ## the chart and the controller against a real API server, without nodes (builds Kubernetes the first time)
	@.ci/install gcc libc6-dev python3 openssl ocl-icd-opencl-dev opencl-headers ocl-icd-libopencl1 pocl-opencl-icd $(GO_PACKAGE)
	@.ci/need-cargo
	cargo build $(PROFILE) -p telecl-kube -p telecl-cli -p telecl-driver
	tests/kube/agent "$$(tests/kube/programs/build)" $(BIN)
	tests/kube/api "$$(tests/kube/programs/build)" $(BIN)

guard: ## count the instructions of the hot path; more than the limits in crates/*/benches is an error
	@.ci/install gcc libc6-dev valgrind
	@.ci/need-cargo
	@.ci/guard $(BUILT)

guard-bless: ## make what `make guard` counts now the measure of its limits
	@.ci/install gcc libc6-dev valgrind python3
	@.ci/need-cargo
	@.ci/guard $(BUILT) bless

symbols: build ## the driver exports the three names that a loader looks up, and no other
	@.ci/check-symbols $(BIN)/libtelecl.so

system: build ## C programs through a real loader, a real service and the real driver
	cargo test $(PROFILE) -p telecl-system-tests

parity-ci: build ## the part of the parity run that every change must pass
	$(PYTHON) tests/parity/parity.py --subset ci --telecl $(BIN)/telecl --driver $(BIN)/libtelecl.so

# Debian's Slurm, and containers that need no daemon.
SLURM_PACKAGES := slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libslurm-dev charliecloud-runtime podman runc fuse-overlayfs catatonit musl-tools \
	iproute2 util-linux procps uidmap libseccomp2 libsqlite3-0 gcc libc6-dev ocl-icd-opencl-dev opencl-headers clinfo hashcat pocl-opencl-icd ocl-icd-libopencl1

e2e-slurm: ## jobs on a real Slurm of several nodes, each in namespaces of its own; needs root
	@.ci/install $(SLURM_PACKAGES)
	$(MAKE) spank driver-portable
	cargo build $(PROFILE) -p telecl-cli -p telecl-driver
	$(PYTHON) tests/slurm/apptainer.py $(BUILT)/apptainer \
		|| echo "warning: no Apptainer could be had; what needs it is left out"
	$(PYTHON) tests/slurm/debian11.py $(BUILT)/debian11 \
		|| echo "warning: Debian 11 could not be had; what needs it is left out"
	$(PYTHON) tests/slurm/e2e.py --built $(BUILT) --apptainer $(BUILT)/apptainer --debian11 $(BUILT)/debian11

# Debian roots, a certificate authority, and static programs for containers.
KUBE_PACKAGES := gcc libc6-dev binutils python3 python3-venv mmdebstrap ocl-icd-libopencl1 openssl iproute2 util-linux \
	musl-tools busybox-static ocl-icd-opencl-dev opencl-headers $(GO_PACKAGE)

images: driver-portable ## container images as OCI archives, in target/images: no registry, no docker; needs root
	@.ci/install $(KUBE_PACKAGES)
	cargo build $(PROFILE) -p telecl-cli -p telecl-driver -p telecl-kube
	@deploy/images/driver-musl $(BUILT)
	@deploy/images/build $(BUILT)

e2e-kube: images ## telecl in a Kubernetes cluster: that of KUBECONFIG, or a real one started here; SCENARIO=name for one; needs root
	deploy/images/check $(BUILT)
	tests/kube/images $(BUILT)
	tests/kube/e2e $(BUILT) $(SCENARIO)

# What `fuzz-ci` runs, and for how many seconds each.
TARGETS := handshake request reply channel config policy token shm worker
SECONDS := 10

fuzz: ## look for inputs that break something: TARGET=request [RUNS=10000000]; fuzz/README.md lists the targets
	@.ci/install gcc g++ libc6-dev opencl-headers
	@.ci/need-cargo
	fuzz/run $(or $(TARGET),$(error name one: make fuzz TARGET=request)) $(if $(RUNS),-runs=$(RUNS))

fuzz-ci: ## a few seconds of every fuzz target
	@.ci/install gcc g++ libc6-dev opencl-headers
	@.ci/need-cargo
	fuzz/run build
	for target in $(TARGETS); do \
		echo "fuzzing $$target"; \
		fuzz/run $$target -max_total_time=$(SECONDS) -print_final_stats=1 >fuzz/target/$$target.log 2>&1 \
			|| { tail -n 60 fuzz/target/$$target.log; exit 1; }; \
		grep -e number_of_executed_units fuzz/target/$$target.log; \
	done

clean: ## remove what was built (not what was installed)
	cargo clean
