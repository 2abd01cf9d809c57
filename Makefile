# SPDX-License-Identifier: Apache-2.0
# tegracast: `make run` streams on any Linux machine and needs Go alone; `make test` checks everything and installs what it misses.

.DEFAULT_GOAL := help
.PHONY: help docs go setup setup-deb setup-test release run test test-units test-programs test-unraced test-module test-short test-long test-long-kernel test-long-machine test-long-streams test-long-peers test-long-packages test-long-newcomer test-long-chaos check build deb soak lint lint-kmod bench estimate bench-peers gpu-test gpu-bench fuzz needs-kernel-source test-sanitized test-sanitized-kfuzz vjetson rtl rtl-long rtl-size

# What one clone compiles serves another.
export GOFLAGS := $(shell go env GOFLAGS 2>/dev/null) -trimpath

BIN := bin/tegracast
UNITS = $(shell go list ./... | grep -v -e /cmd/ -e /kmodtest)
# Peers of the tests, what simulates the FPGA's design, what the race detector links with, the virtual Jetson, and what judges packages and manual pages.
PACKAGES := ffmpeg fio gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gcc g++ libc6-dev \
	qemu-system-arm qemu-system-x86 qemu-user gcc-aarch64-linux-gnu dcraw libraw-bin chromium firefox-esr fonts-dejavu-core make iproute2 e2fsprogs zsh fish \
	dkms kmod ethtool groff-base curl xz-utils xfsprogs libucx0 ucx-utils libucx-dev \
	libopenh264-7 libopenh264-dev libturbojpeg0 gstreamer1.0-nice python3-gi gir1.2-gst-plugins-bad-1.0 nats-server mosquitto mosquitto-clients nginx-light caddy haproxy lintian mandoc shellcheck crun skopeo umoci prometheus verilator yosys python3-numpy python3-opencv
# What go test says, and at the end what was skipped, and what each test needs. Tests that run make get none of this make's flags.
gotest = env -u MAKEFLAGS go test -json $(1) | go -C $(CURDIR)/.ci/tools run ./skipped
test-units test-programs test-unraced test-module test-short: SHELL := /bin/bash
test-units test-programs test-unraced test-module test-short: .SHELLFLAGS := -o pipefail -c
# When go test takes a package for hung. It decides nothing else: tests have bounds of their own, and a machine whose load is 10 gets through.
TIMEOUT := 75m
# What of $(1) is missing is installed.
install = missing=$$(for p in $(1); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		echo "$@: installing" $$missing; \
		if [ $$(id -u) != 0 ]; then echo "$@: run as root: apt-get install" $$missing >&2; exit 1; fi; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
# NVIDIA's own provider of nv-p2p, where it is beside this tree: the kernel module is tested on it.
export TEGRACAST_NVP2P ?= $(realpath ../shared/peers/nvidia-p2p)
FUZZTIME ?= 30s
# What the pages that are written by hand may have together: CHANGELOG.md, the references that TestReferences writes, and docs/peers.md do not count.
WORDS := 36000
# JavaScript that tests use: readers of MCAP and MP4 for recordings, axe-core for the page, a client made from the OpenAPI document, and what editors
# make of the schema.
NODE_MODULES := pipeline/record/testdata/core pipeline/record/mp4/testdata/mp4box cmd/tegracast/testdata/axe cmd/tegracast/testdata/client cmd/tegracast/testdata/schema
# The tests of each target of make test-long: they count in thousands, repeat, or last a minute. A target takes at most 75 minutes alone.
LONG_KERNEL := TestKernels|TestConvertedSRCU|TestKfuzz
LONG_MACHINE := TestCameras|TestUSBCameras|TestMock|TestKernels|TestDKMSUpdates|TestSeries|TestBootsLeaveNothing|TestVirtualBoard|TestVirtualFrames|TestPowerCuts|TestReceiveFromARM64|TestPTP
LONG_STREAMS := TestPeersReceiveSlices|TestBadInput.*|TestKilled|TestConformance|TestDiskFaults|TestConnects|TestReceiversFail|TestReleasesOfUCX|TestNetworkFails|TestPeersReadAMinute|TestPeersReadAGroupAMinute|TestStalledReaders|TestWatchThousand|TestRecordingsThousand|TestFloods|TestLoad|TestWebLoad|TestThousandClients|TestKilledConsumers|TestNoise|TestCutLink|TestIdleLink|TestTwentyBoards|TestDesign.*|TestShareMinute|TestGroupsAMinute|TestPagesRun|TestLiveKit|TestMediaMTX|TestMediaMTXPulls|TestBottleneck|TestVicodec
LONG_STREAMS_IN := ./cudahost/cufile ./cmd/tegracast ./pipeline/record ./pipeline/ucx ./pipeline/rtp/rtsp ./pipeline/rtp/webrtc ./pipeline/share ./pipeline/bus ./capture ./pipeline/codec/v4l2
long = TEGRACAST_LONG=1 go test -count=1 -p 1 -timeout 75m -v -run '^($(1))$$' $(2)
SOAK ?= 1h
SOAK_GUEST ?= 20m
HAS_GPU = [ -e /dev/nvidiactl ] || [ -e /dev/nvhost-gpu ] || [ -e /dev/nvgpu ]
GPU_BENCH = TEGRACAST_GPU=1 bin/gpu-bench -test.run TestGPUBench -rounds 40 -out docs/results.md

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Go 1.21 and newer fetch the release that go.mod asks for; older ones cannot read it.
go:
	@v=$$(go version 2>/dev/null | cut -d ' ' -f 3); case "$${v:-none}" in none | go1.[0-9] | go1.[0-9].* | go1.1[0-9] | go1.1[0-9].* | go1.20 | go1.20.*) \
		echo "make: tegracast needs Go 1.21 or newer, which fetches 1.26 by itself, and here is $${v:-no Go}: take https://go.dev/dl," \
			"Debian 13's golang-go, or Debian 12's from backports (README.md)" >&2; exit 1 ;; esac

setup: go ## what running needs: the Go modules, no root
	@go mod download

setup-deb: setup ## what packaging needs: git, and the Go modules of what packs
	@command -v git >/dev/null || { $(call install,git); }
	@go -C systemd/deb mod download

setup-test: setup-deb ## what testing needs: Debian packages (as root), Go modules and node packages
	@$(call install,$(PACKAGES))
	@command -v npm >/dev/null || { $(call install,nodejs npm); }
	@go -C .ci/tools mod download
	@for d in $(NODE_MODULES); do (cd $$d && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent --ignore-scripts --no-audit --no-fund; }) || exit 1; done

build: go ## build bin/tegracast
	@mkdir -p bin
	@flags=$$(systemd/version --ldflags) && set -x && CGO_ENABLED=0 go build -trimpath -ldflags "$$flags" -o $(BIN) ./cmd/tegracast

deb: setup-deb ## Debian packages for arm64 and amd64, and the module's for DKMS, in bin/; the same commit gives the same bytes
	@rm -f bin/tegracast_*.deb bin/tegracast-dkms_*.deb # of other commits
	@go -C systemd/deb run . --root ../.. --out "$(CURDIR)/bin"

release: setup-deb ## a release in bin/release: programs and container images for arm64 and amd64, packages as a repository for apt, SPDX, checksums
	@rm -rf bin/release && go -C systemd/deb run . --root ../.. --out "$(CURDIR)/bin/release" --release
	@echo "bin/release is not signed: sign SHA256SUMS before you publish it; bin/release/apt/README says how apt uses the packages"

run: build ## stream the test chart to this machine; prints how to watch (stop with ctrl-C)
	@mkdir -p run
	@$(BIN) config default > run/tegracast.yaml
	$(BIN) serve --config run/tegracast.yaml --sdp-dir run

check: setup-test build ## the quick round: build, lint, tests without race detector and virtual machine
	@$(MAKE) --no-print-directory --jobs 2 lint test-short

test-short:
	@$(call gotest,-short -p 4 $$(go list ./... | grep -v -e /vjetson -e /kmodtest))
	go -C systemd/deb test -short .

test: setup-test ## everything: lint, tests with the race detector, programs and long comparisons without it
	@$(MAKE) --no-print-directory --jobs 3 lint test-units test-programs test-unraced test-module

# Parts of make test, side by side, three at a time: programs wait for machines while units compute.
test-units:
	@$(call gotest,-race -p 1 -timeout $(TIMEOUT) $(UNITS))

test-programs:
	@$(call gotest,-count=1 -p 1 -timeout $(TIMEOUT) ./cmd/...)

# What the race detector would make too long: units run a part of it.
test-unraced:
	@cd systemd/deb && $(call gotest,-timeout 30m .)
	@$(call gotest,-timeout 30m ./pipeline/isp ./pipeline/isp/cuda)
	@$(call gotest,-timeout 30m -run 'TestFaults|TestOutputSurvivesFaults|TestRevocationsUnderRefusals' ./capture)

# The kernel module in its virtual machines: last, where there is a free place.
test-module:
	@$(call gotest,-race -p 1 -timeout $(TIMEOUT) ./tegra/kmod/kmodtest/...)

lint: ## gofumpt, vet, staticcheck, errors, spelling, scripts, code that nothing reaches, tidy modules
	@bad=$$(go tool gofumpt -l $$(git ls-files '*.go')); if [ -n "$$bad" ]; then echo "gofumpt would change:" $$bad; exit 1; fi
	go vet ./...
	go vet -tags modelcontrol ./cmd/tegracast/device
	go tool staticcheck ./...
	$$(go -C .ci/tools tool -n go-errorlint) ./...
	@$$(go -C .ci/tools tool -n misspell) -i mosquitto -error $$(git ls-files | grep -v /testdata/)
	shellcheck --severity=warning $$(git ls-files '*.sh' ':(glob).ci/*' systemd/version systemd/deb/scripts)
	go -C systemd/deb vet .
	go -C .ci/tools vet ./...
	go -C .ci/tools test -count=1 ./...
	go mod tidy -diff
	go -C systemd/deb mod tidy -diff
	go -C .ci/tools mod tidy -diff

test-long: test-long-kernel test-long-machine test-long-streams test-long-peers test-long-packages test-long-newcomer test-long-chaos ## what make test leaves out because it takes long, in seven targets of at most 75 minutes each

test-long-kernel: setup-test ## other kernels, and the kernel module's fuzzer for ten minutes
	$(call long,$(LONG_KERNEL),./tegra/kmod/kmodtest)

test-long-machine: setup-test ## virtual Jetsons: 50 unplugs, 10 power cuts, 1,000 frames, other kernels, an update of the kernel, PTP
	$(call long,$(LONG_MACHINE),./board/vjetson ./board/phc ./capture ./cmd/tegracast)

test-long-streams: setup-test ## 1,000 connections, 1,000 killed consumers, disks and networks that fail, 20 boards, a minute to each peer, LiveKit, MediaMTX, the simulated FPGA design
	go -C pipeline/rtp/webrtc/livekittest vet .
	go -C pipeline/rtp/webrtc/livekittest mod tidy -diff
	$(call long,$(LONG_STREAMS),$(LONG_STREAMS_IN))

test-long-peers: setup-test ## each of the other programs that tests use, and its version; into docs/peers.md (as root, 15 min)
	@$(call install,mmdebstrap vlc-bin vlc-plugin-base)
	go -C .ci/tools run ./peers

test-long-packages: setup-test ## the packages judged by lintian of Debian 13, and installed, updated, removed and purged by apt, also on bare Debian 11, 12 and 13; the service reloaded by the systemd of Debian 12 and of 13
	@$(call install,mmdebstrap qemu-user-static)
	$(call long,TestReloadsBySystemd|TestDoctorUsesCUDAAsTheService,./cmd/tegracast)
	TEGRACAST_LONG=1 go -C systemd/deb test -count=1 -timeout 60m -v -run '^(TestAptLives|TestLintianOfDebian13|TestRoots)$$' .

test-long-newcomer: setup-test ## README's commands in a bare Debian 12
	@$(call install,mmdebstrap)
	.ci/newcomer run

# How long the service lives through it, and the seed of what is taken away; 0: a new one, which is printed.
CHAOS ?= 30m
CHAOS_SEED ?= 0
test-long-chaos: setup-test ## the service for half an hour while network, disk, bus, readers, FPGAs, memory and descriptors are taken away: CHAOS=30m CHAOS_SEED=0
	TEGRACAST_LONG=1 go test -count=1 -timeout 20m -v -run '^TestFaultsAlone$$' ./cmd/tegracast/chaos -held 1s
	go test -count=1 -timeout 75m -v -run '^TestChaos$$' ./cmd/tegracast/chaos -chaos $(CHAOS) -seed $(CHAOS_SEED)

sanitized = TEGRACAST_SANITIZED=1 go test -count=1 -timeout 180m -run '^($(1))$$' -v ./tegra/kmod/kmodtest
needs-kernel-source: setup-test
	@$(call install,flex bison bc libssl-dev xz-utils)

test-sanitized: needs-kernel-source ## the kernel module's tests on an instrumented kernel, which is built once
	$(call sanitized,TestModule|TestInjection)

test-sanitized-kfuzz: needs-kernel-source ## an hour of the kernel module's fuzzer on that kernel
	$(call sanitized,TestKfuzz)

rtl: setup-test ## the FPGA's design in fpga/rtl: lint, simulation by Verilator, 500 frames compared with the model's, proofs of CRC and registers
	go test -count=1 -v ./fpga/rtl

rtl-long: setup-test ## the same with 10,000 frames, all proofs, coverage, and faults planted in the design, each of which must be found
	TEGRACAST_LONG=1 go test -count=1 -timeout 60m -v ./fpga/rtl

rtl-size: setup-test ## what the design takes of an FPGA of Xilinx's 7 series, and of an ECP5, by yosys
	fpga/rtl/sim/size.sh

vjetson: setup-test ## boot the virtual Jetson and log in; CMD='…' runs one command, ARGS='--help' tells more
	@mkdir -p bin
	@go build -o bin/vjetson ./board/vjetson/boot
	@bin/vjetson $(if $(CMD),--command "$$CMD") $(ARGS)

export CMD

gpu-test: build ## the tests that need a GPU: builds bin/gpu-test and its kin, one file each, and runs them where there is a GPU
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test ./cudahost
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test-cufile ./cudahost/cufile
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test-isp ./pipeline/isp/cuda
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test-kernel ./pipeline/kernel
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test-infer ./pipeline/infer/preprocess
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test-record ./pipeline/record/cuda
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test-share ./pipeline/share
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test-loopback ./cmd/tegracast/loopback
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-test-serve ./cmd/tegracast
	@if $(HAS_GPU); then .ci/gpu-test; \
	else echo "no GPU here: copy the tree with bin to a machine that has one, and run there .ci/gpu-test (the isp's benchmarks: bin/gpu-test-isp -test.run '^\$$' -test.bench GPU)"; fi

gpu-bench: ## the isp on a GPU beside NPP, a copy and the host's link; into docs/results.md (1 min on a machine with a GPU)
	@mkdir -p bin
	CGO_ENABLED=0 go test -c -ldflags '-s -w' -o bin/gpu-bench ./pipeline/isp/cuda
	@if $(HAS_GPU); then $(GPU_BENCH); else echo "no GPU here: copy the tree with bin to a machine that has one, and run there" '$(GPU_BENCH)'; fi

lint-kmod: ## the kernel modules: W=1, sparse, checkpatch, coccinelle (fetches 140 MB once)
	@$(call install,sparse coccinelle perl xz-utils make gcc gcc-aarch64-linux-gnu)
	tegra/kmod/lint.sh

docs: ## the words of each page that is written by hand, and of all of them: it fails above 36,000
	@for f in $$(git ls-files '*.md' | grep -vxE 'CHANGELOG\.md|docs/(commands|configuration|json|metrics|peers)\.md'); do \
		echo "$$(grep -v SPDX-License-Identifier "$$f" | wc -w) $$f"; done | sort -n | \
		awk '{sum += $$1; printf "%6d %s\n", $$1, $$2} END {printf "%6d words, at most $(WORDS)\n", sum; exit sum > $(WORDS)}'

bench: ## benchmarks: ns a frame and a packet, ratios, allocations
	go test -run '^$$' -bench . -benchmem ./...

estimate: go ## estimates by llvm-mca, nothing measured: what the kernels for arm64 take
	@$(call install,llvm-19 gcc-aarch64-linux-gnu)
	@.ci/estimate

bench-peers: setup-test ## what sending costs, beside GStreamer, ffmpeg, pion and C; into docs/results.md (as root, 15 min)
	@mkdir -p bin
	go build -o bin/benchpeers ./pipeline/rtp/benchpeers
	bin/benchpeers --out docs/results.md

soak: setup-test ## stream for SOAK (1h) here, without and with the race detector, then for SOAK_GUEST (20m) in the virtual Jetson: memory flat, books exact
	go test -count=1 -timeout 0 -v -run '^TestSoak' ./cmd/tegracast -args -soak $(SOAK) -soak-guest $(SOAK_GUEST)

fuzz: ## every fuzz target for FUZZTIME (30s)
	@set -e; for p in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$p | grep ^Fuzz || true); do \
		echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzzminimizetime 1x -fuzztime $(FUZZTIME) $$p; done; done
