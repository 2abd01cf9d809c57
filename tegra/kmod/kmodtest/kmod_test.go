// Package kmodtest tests tegra_p2p.ko in the virtual Jetson: on the edu device behind the SMMU, with both of its ways to
// pin, under slub's debugging. The tests proper are in package guest and run inside.
package kmodtest_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tegracast/board/vjetson"
)

const (
	function = vjetson.SlotAddress
	bind     = "echo tegra_p2p > /sys/bus/pci/devices/" + function + "/driver_override && " +
		"echo " + function + " > /sys/bus/pci/drivers_probe && test -c /dev/tegra_p2p0"
)

// built is what the machine gets.
type built struct {
	kernel            vjetson.Kernel
	module, provider  string
	hostmem, programs string
}

// sanitized says that the instrumented kernel is to be used (make test-sanitized), on which everything takes its time.
func sanitized() bool { return os.Getenv("TEGRACAST_SANITIZED") != "" }

func kernel(t *testing.T, arch string) (vjetson.Kernel, error) {
	if sanitized() {
		return vjetson.Sanitized(t.Context(), slog.Default())
	}
	return vjetson.Fetch(t.Context(), arch, slog.Default())
}

func build(t *testing.T, arch string) built {
	t.Helper()
	k, err := kernel(t, arch)
	if err != nil {
		t.Fatal(err)
	}
	return buildFor(t, k)
}

// buildFor builds the modules and the guest's tests for a kernel.
func buildFor(t *testing.T, k vjetson.Kernel) built {
	t.Helper()
	dir := t.TempDir()
	for name, src := range map[string]string{"hostmem": "testdata/hostmem", "nvp2p": "../../nvp2p"} {
		if err := vjetson.BuildModule(t.Context(), k, src, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := vjetson.BuildModule(t.Context(), k, "..", filepath.Join(dir, "kmod")); err != nil {
		t.Fatal(err)
	}
	guest := filepath.Join(dir, "guest.test")
	c := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", guest, "./guest")
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+k.Arch, "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building the guest's tests: %v: %s", err, out)
	}
	return built{
		k, filepath.Join(dir, "kmod/tegra_p2p.ko"), filepath.Join(dir, "nvp2p/nvp2p.ko"),
		filepath.Join(dir, "hostmem/hostmem.ko"), guest,
	}
}

// machine is a virtual Jetson with the module bound to edu.
type machine struct {
	*vjetson.Machine
	t *testing.T
}

func (b built) start(t *testing.T, backend string, cfg vjetson.Config) machine {
	t.Helper()
	cfg.Kernel, cfg.Append, cfg.Files = b.kernel, "slub_debug=FZPU "+cfg.Append, map[string]string{"/guest.test": b.programs}
	if sanitized() {
		cfg.Memory, cfg.BootTimeout = 1536, 5*time.Minute
	}
	m := machine{vjetson.StartTest(t, cfg), t}
	if sanitized() {
		m.watchLeaks()
	}
	if backend == "nvp2p" {
		m.load(b.provider)
	}
	m.load(b.hostmem)
	m.load(b.module)
	m.shell(bind)
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

// guestLimit is what one of the guest's tests may take.
func guestLimit() time.Duration {
	if sanitized() {
		return 30 * time.Minute
	}
	return 3 * time.Minute
}

// guest runs the guest's tests that match pattern, each as a test of its own here.
func (m machine) guest(t *testing.T, pattern string) {
	t.Helper()
	m.guestOn(t, "", pattern)
}

// guestOn does so with more environment, which names another function than edu.
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
			}
		})
	}
}

// TestModule runs everything with both ways to pin, side by side: they wait for a timer of 100 ms most of the time.
func TestModule(t *testing.T) {
	b := build(t, "arm64")
	for _, backend := range []string{"gup", "nvp2p"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			testBackend(t, b, backend, "")
		})
	}
	if !sanitized() {
		x := build(t, "amd64")
		t.Run("ATS", func(t *testing.T) {
			t.Parallel()
			testATS(t, x)
		})
		for _, backend := range []string{"gup", "nvp2p"} {
			t.Run("amd64 "+backend, func(t *testing.T) {
				t.Parallel()
				testBackend(t, x, backend, "")
			})
		}
	}
	t.Run("lazy IOMMU", func(t *testing.T) {
		t.Parallel()
		m := b.start(t, "gup", vjetson.Config{Edu: true, Append: "iommu.strict=0"})
		m.guest(t, "^TestLazy$")
	})
	t.Run("other functions", func(t *testing.T) {
		t.Parallel()
		testOthers(t, b)
	})
	t.Run("without IOMMU", func(t *testing.T) {
		t.Parallel()
		m := b.start(t, "gup", vjetson.Config{Card: &vjetson.Card{}})
		m.guest(t, "^TestUnsafe$")
	})
}

// testBackend is everything that is done with edu; more is for the kernel's command line.
func testBackend(t *testing.T, b built, backend, more string) {
	m := b.start(t, backend, vjetson.Config{Edu: true, Append: more})
	expect := func(pattern string) *vjetson.Expectation {
		t.Helper()
		e, err := m.Expect(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	m.guest(t, "^Test(Info|DMA|CacheAttribute|EveryCall|Bad.*|Limits|Memlock|PutAgainstMunmap|Halt|Habits|UnbindStops|Fuzz)$")
	blocked := expect(`arm-smmu-v3 .*event 0x10|DMAR: .*(fault|PTE|DRHD)`) // DMA after a revocation
	expect(`Out of memory: Killed process .*guest.test`)
	m.guest(t, "^Test(Revocation.*|TailMunmap|Close|ProcessEnd|PassedOn|Unbind|UnbindAgainstClose)$")
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

// testHotUnplug takes the card out while a process uses it, and puts it back: twice by the slot's button, which takes 5 s,
// and otherwise by the slot's power, with a DMA in flight.
func testHotUnplug(t *testing.T, m machine) {
	m.t = t
	if sanitized() {
		m.pardonSlot(t)
	}
	times := 20
	if m.Kernel().Arch != "arm64" {
		times = 5
	}
	most := 5 * times
	for round := 0; times > 2; round++ {
		if round == most {
			t.Fatalf("a DMA was in flight too rarely: the machine is too busy")
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

// pardonSlot takes lockdep's report for no fault that 6.1's driver of the slot draws by itself, when a card goes after
// another one: it takes its reset_lock and pci_rescan_remove_lock in both orders.
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

// plugIn puts the card back and shows that it works.
func (m machine) plugIn(t *testing.T) {
	t.Helper()
	if err := m.HotPlug(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A new function takes drivers a little later than it has its attributes.
	m.shell("until { " + bind + "; } 2>/dev/null; do usleep 10000; done")
	m.guest(t, "^TestUsable$")
}
