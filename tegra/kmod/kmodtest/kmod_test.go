// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/board/vjetson/nvp2ptest"
)

const (
	function = vjetson.SlotAddress
	bind     = "echo tegra_p2p > /sys/bus/pci/devices/" + function + "/driver_override && " +
		"echo " + function + " > /sys/bus/pci/drivers_probe && test -c /dev/tegra_p2p0"
)

// way is a way of pinning: the module, and its provider of nv-p2p, if any.
type way struct {
	module, provider string
	tests            string // the guest's tests of the provider's bad habits: "Habits|" if it has them
}

// built has the files for the machine.
type built struct {
	kernel            vjetson.Kernel
	hostmem, programs string
	gup               way // the packaged module
	nvp2p, standIn    way // on NVIDIA's provider if it is available, and on its stand-in
}

// sanitized reports whether to use the instrumented kernel (make test-sanitized), on which everything is slow.
func sanitized() bool { return os.Getenv("TEGRACAST_SANITIZED") != "" }

func kernel(t *testing.T, arch string) (vjetson.Kernel, error) {
	if sanitized() {
		return vjetson.Sanitized(t.Context(), slog.Default())
	}
	return vjetson.Fetch(t.Context(), arch, slog.Default())
}

// builds caches the results of build: all tests of a processor use the same, which takes half a minute to build.
var builds struct {
	sync.Mutex
	dir string
	of  map[string]built
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kmodtest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	builds.dir, builds.of = dir, map[string]built{}
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

func build(t *testing.T, arch string) built {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if b, ok := builds.of[arch]; ok {
		return b
	}
	k, err := kernel(t, arch)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(builds.dir, arch)
	if err != nil {
		t.Fatal(err)
	}
	b := buildFor(t, k, dir)
	builds.of[arch] = b
	return b
}

// buildFor builds the modules and the guest's tests for a kernel.
func buildFor(t *testing.T, k vjetson.Kernel, dir string) built {
	t.Helper()
	in := func(name string) string { return filepath.Join(dir, name) }
	guest := in("guest.test")
	b := built{kernel: k, hostmem: in("hostmem/hostmem.ko"), programs: guest}
	if err := vjetson.BuildModule(t.Context(), k, "testdata/hostmem", in("hostmem")); err != nil {
		t.Fatal(err)
	}
	b.gup.module = b.kmod(t, in("packaged"))
	standIn, err := nvp2ptest.StandIn(t.Context(), k, "../..", in("standin"))
	if err != nil {
		t.Fatal(err)
	}
	b.standIn = way{b.kmod(t, in("kmod-standin"), "NVP2P="+standIn.NVP2P), standIn.Module, "Habits|"}
	b.nvp2p = b.standIn
	if nvp2ptest.Here() {
		p, err := nvp2ptest.NVIDIA(t.Context(), k, in("nvidia"))
		if err != nil {
			t.Fatal(err)
		}
		b.nvp2p = way{b.kmod(t, in("kmod-nvidia"), "NVP2P="+p.NVP2P), p.Module, ""}
	}
	c := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", guest, "./guest")
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+k.Arch, "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building the guest's tests: %v: %s", err, out)
	}
	return b
}

// ways returns both ways of pinning.
func (b built) ways() map[string]way { return map[string]way{"gup": b.gup, "nvp2p": b.nvp2p} }

// kmod builds tegra_p2p in a folder.
func (b built) kmod(t *testing.T, dir string, variables ...string) (module string) {
	t.Helper()
	if err := vjetson.BuildModule(t.Context(), b.kernel, "..", dir, variables...); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "tegra_p2p.ko")
}

// machine is a virtual Jetson with the module bound to edu.
type machine struct {
	*vjetson.Machine
	t *testing.T
}

func (b built) start(t *testing.T, w way, cfg vjetson.Config) machine {
	t.Helper()
	m := b.boot(t, cfg)
	if w.provider != "" {
		m.load(w.provider)
	}
	m.load(b.hostmem)
	m.load(w.module)
	m.shell(bind)
	return m
}

// boot starts a machine without modules.
func (b built) boot(t *testing.T, cfg vjetson.Config) machine {
	t.Helper()
	files := map[string]string{"/guest.test": b.programs}
	maps.Copy(files, cfg.Files)
	cfg.Kernel, cfg.Append, cfg.Files = b.kernel, "slub_debug=FZPU "+cfg.Append, files
	if sanitized() {
		cfg.Memory = 1536
	}
	m := machine{vjetson.StartTest(t, cfg), t}
	if sanitized() {
		m.watchLeaks()
	}
	return m
}

func (m machine) load(file string, parameters ...string) {
	m.t.Helper()
	if err := m.LoadModule(m.t.Context(), file, parameters...); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) shell(line string) string {
	m.t.Helper()
	out, err := m.Shell(m.t.Context(), line)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// guestLimit returns the time limit of one of the guest's tests.
func guestLimit() time.Duration {
	if sanitized() {
		return 30 * time.Minute
	}
	return 10 * time.Minute
}

// guest runs the guest's tests that match pattern, each as a subtest.
func (m machine) guest(t *testing.T, pattern string) {
	t.Helper()
	m.guestOn(t, "", pattern)
}

// guestOn is like guest with an additional environment that selects another function than edu.
func (m machine) guestOn(t *testing.T, env, pattern string) {
	t.Helper()
	env += " GUEST=1 "
	if sanitized() {
		env += "GUEST_SLOW=1 "
	}
	if m.Kernel().Arch != "arm64" {
		env += "GUEST_TIMES=5 "
	}
	r, err := m.Run(t.Context(), "sh", "-c", env+"exec /guest.test -test.list '"+pattern+"'")
	if err != nil || r.Status != 0 {
		t.Fatalf("%v %s%s", err, r.Stdout, r.Stderr)
	}
	for _, name := range strings.Fields(string(r.Stdout)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), guestLimit())
			defer cancel()
			r, err := m.Run(ctx, "sh", "-c", env+"exec /guest.test -test.v -test.run '^"+name+"$'")
			if err != nil || r.Status != 0 {
				t.Errorf("%v, status %d:\n%s%s", err, r.Status, r.Stdout, r.Stderr)
			} else if testing.Verbose() {
				t.Logf("%s", r.Stdout)
			}
		})
	}
}

// TestModule runs everything with both ways of pinning, concurrently, because the tests mostly wait for a timer of 100
// ms.
func TestModule(t *testing.T) {
	b := build(t, "arm64")
	testWays(t, b, "")
	if !sanitized() {
		x := build(t, "amd64")
		t.Run("ATS", func(t *testing.T) {
			t.Parallel()
			testATS(t, x)
		})
		t.Run("no interrupt remapping", func(t *testing.T) {
			t.Parallel()
			m := x.start(t, x.gup, vjetson.Config{Edu: true, Append: "intremap=off"})
			m.guest(t, "^TestNoRemapping$")
		})
		testWays(t, x, "amd64 ")
	}
	t.Run("lazy IOMMU", func(t *testing.T) {
		t.Parallel()
		m := b.start(t, b.gup, vjetson.Config{Edu: true, Append: "iommu.strict=0"})
		m.guest(t, "^TestLazy$")
	})
	t.Run("legacy line", func(t *testing.T) {
		t.Parallel()
		m := b.start(t, b.gup, vjetson.Config{Edu: true, Append: "pci=nomsi"})
		m.guest(t, "^TestLine$")
		m.loopback(t)
	})
	t.Run("other functions", func(t *testing.T) {
		t.Parallel()
		testOthers(t, b)
	})
	t.Run("without IOMMU", func(t *testing.T) {
		t.Parallel()
		m := b.boot(t, vjetson.Config{Devices: []string{secondPort, whole}})
		m.load(b.gup.module)
		m.guestOn(t, m.take("0000:01:00.0"), "^TestUnsafe$")
	})
	t.Run("desktop driver", func(t *testing.T) {
		t.Parallel()
		testDesktop(t, b)
	})
}

// testWays runs the guest's tests with each way of pinning. With NVIDIA's provider, the stand-in is only used for its bad
// habits.
func testWays(t *testing.T, b built, prefix string) {
	for name, w := range b.ways() {
		t.Run(prefix+name, func(t *testing.T) {
			t.Parallel()
			testWay(t, b, w, "")
		})
	}
	if !nvp2ptest.Here() {
		t.Run(prefix+"NVIDIA's nvp2p", func(t *testing.T) {
			t.Skip("NEEDS " + nvp2ptest.Absent + "; the stand-in runs in its place")
		})
		return
	}
	t.Run(prefix+"stand-in", func(t *testing.T) {
		t.Parallel()
		m := b.start(t, b.standIn, vjetson.Config{Edu: true})
		m.guest(t, "^TestHabits$")
	})
}

// blockedDMA matches what kernels say of a DMA that the IOMMU has blocked.
const blockedDMA = `arm-smmu-v3 .*event 0x10|DMAR: .*(fault|PTE|DRHD)`

// testWay runs all tests with edu. more is for the kernel's command line.
func testWay(t *testing.T, b built, w way, more string) {
	m := b.start(t, w, vjetson.Config{Edu: true, Append: more})
	expect := func(pattern string) *vjetson.Expectation {
		t.Helper()
		e, err := m.Expect(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	m.guest(t, "^Test(Info|DeviceFile|DMA|CacheAttribute|EveryCall|Bad.*|Limits|Memlock|PutAgainst.*|Halt|"+w.tests+"UnbindStops|Support)$")
	blocked := expect(blockedDMA) // after a revocation
	expect(`Out of memory: Killed process .*guest.test`)
	m.guest(t, "^Test(Revocation.*|Discard|TailMunmap|Close|ProcessEnd|PassedOn|Unbind|UnbindTakesAllAtOnce|UnbindAgainstClose|Suspend)$")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := blocked.Wait(ctx); err != nil {
		t.Error(err)
	}
	t.Run("rmmod", func(t *testing.T) {
		m := machine{m.Machine, t}
		for range 20 {
			m.shell("exec 3<>/dev/tegra_p2p0; if rmmod tegra_p2p 2>/dev/null; then exit 1; fi; exec 3>&-; " +
				"rmmod tegra_p2p && insmod /tmp/tegra_p2p.ko && " + bind)
		}
	})
	t.Run("hot unplug", func(t *testing.T) { testHotUnplug(t, m) })
}

// testHotUnplug removes the card while a process uses it, and inserts it again: twice by the slot's button, which takes 5
// s, and otherwise by the slot's power, during a DMA.
func testHotUnplug(t *testing.T, m machine) {
	m.t = t
	if sanitized() {
		m.pardonSlot(t)
	}
	times := 20
	if m.Kernel().Arch != "arm64" {
		times = 5
	}
	most, all := 5*times, times
	for round := 0; times > 2; round++ {
		if round >= most && times < all { // a busy machine
			break
		}
		if round == 2*most {
			t.Fatal("a DMA was never in flight")
		}
		m.guest(t, "^TestSlotOff$")
		m.plugIn(t)
		if m.shell("if [ -e /run/flying ]; then rm /run/flying; echo yes; fi") != "" || sanitized() {
			times--
		}
	}
	for range 2 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.guest(t, "^TestHotUnplug$")
		}()
		m.shell("until [ -e /run/unplug ]; do usleep 10000; done; rm /run/unplug")
		if err := m.HotUnplug(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
		m.plugIn(t)
	}
}

// pardonSlot ignores a lockdep report that 6.1's driver of the slot causes by itself when a card is removed after another
// one: it takes its reset_lock and pci_rescan_remove_lock in both orders.
func (m machine) pardonSlot(t *testing.T) {
	t.Helper()
	const report = "possible circular locking dependency detected"
	if _, err := m.Expect(report); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log := m.KernelLog()
		at := slices.IndexFunc(log, func(line string) bool { return strings.Contains(line, report) })
		if at < 0 {
			return
		}
		if said := strings.Join(log[at:min(at+8, len(log))], "\n"); !strings.Contains(said, "pciehp") {
			t.Errorf("lockdep's report is not of the slot's driver:\n%s", said)
		}
	})
}

// plugIn inserts the card again and checks that it works.
func (m machine) plugIn(t *testing.T) {
	t.Helper()
	if err := m.HotPlug(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Drivers can bind to a new function slightly later than its attributes appear.
	m.shell("until { " + bind + "; } 2>/dev/null; do usleep 10000; done")
	m.guest(t, "^TestUsable$")
}
