// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
)

// A complete PCI Express function, unlike edu: it can be reset, and reports link errors.
const (
	secondPort = "pcie-root-port,id=port1,chassis=2,slot=1"
	thirdPort  = "pcie-root-port,id=port2,chassis=3,slot=2"
	whole      = "virtio-rng-pci,id=whole,bus=port1,disable-legacy=on,iommu_platform=on,aer=on,romfile="
)

// take binds a function to the module and returns the guest's environment for it.
func (m machine) take(function string) string {
	dir := "/sys/bus/pci/devices/" + function
	m.shell("[ ! -e " + dir + "/driver ] || echo " + function + " > " + dir + "/driver/unbind; " +
		"echo tegra_p2p > " + dir + "/driver_override && echo " + function + " > /sys/bus/pci/drivers_probe")
	return m.named(function)
}

// named returns the guest's environment for a function that is bound to the module.
func (m machine) named(function string) string {
	dir := "/sys/bus/pci/devices/" + function
	return "GUEST_FUNCTION=" + function + " GUEST_DEVICE=/dev/$(ls " + dir + "/tegra_p2p)"
}

// testOthers tests the module with functions other than edu.
func testOthers(t *testing.T, b built) {
	m := b.start(t, b.gup, vjetson.Config{Edu: true, Nodes: 2, Append: "numa_balancing=enable", Devices: []string{
		secondPort, whole, thirdPort, "edu,bus=port2,addr=0.0,multifunction=on", "edu,bus=port2,addr=0.1",
	}})
	m.guest(t, "^TestNUMABalancing$")
	env := m.take("0000:02:00.0")
	m.guestOn(t, env, "^TestReset$")
	m.guestOn(t, env, "^Test(SysfsReset|CloseResets|OpenWhileClosing)$")
	t.Run("link error", func(t *testing.T) { m.inject(t, env, "^TestLinkError$") })
	t.Run("fatal error", func(t *testing.T) { m.inject(t, env, "^TestFatal$") })
	if _, err := m.Expect(`arm-smmu-v3 .*event 0x10`); err != nil { // DMA after the end of a pin
		t.Fatal(err)
	}
	// Two functions use the same memory, which the DMA API's debugging reports as a mistake.
	if _, err := m.Expect(`cacheline tracking EEXIST|WARNING: .* at kernel/dma/debug.c:\d+ add_dma_entry`); err != nil {
		t.Fatal(err)
	}
	one := m.take("0000:03:00.0")
	m.guestOn(t, one+" GUEST_NEIGHBOUR=0000:03:00.1", "^TestNeighbour$") // joins the first one's group
	m.guestOn(t, one, "^TestExposed$")
	m.guestOn(t, m.named("0000:03:00.1"), "^TestExposed$")
	t.Run("shutdown", func(t *testing.T) { m.shutdown(t) })
}

// inject runs guest's tests that request link errors by the file /run/inject.
func (m machine) inject(t *testing.T, env, pattern string) {
	m.t = t
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.guestOn(t, env+" GUEST_PORT=0000:00:03.0", pattern)
	}()
	for injected := false; ; {
		select {
		case <-done:
			if !injected {
				t.Error("no error was injected")
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
		name := strings.TrimSpace(m.shell("if [ -e /run/inject ]; then cat /run/inject; rm /run/inject; fi"))
		if name == "" {
			continue
		}
		injected = true
		if err := m.InjectError(t.Context(), "whole", name); err != nil {
			t.Error(err)
		}
	}
}

// shutdown shuts the machine down during a DMA.
func (m machine) shutdown(t *testing.T) {
	stopped, err := m.Expect(`tegra_p2p 0000:01:00\.0: stopped: the machine ends`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		_, _ = m.Run(ctx, "sh", "-c", "GUEST=1 exec /guest.test -test.run '^TestShutdown$'") // does not return
	}()
	if err := m.Wait(ctx); err != nil {
		t.Error(err)
	}
	if _, err := stopped.Wait(ctx); err != nil {
		t.Error(err)
	}
}

// testATS tests a function with ATS, whose own translations the IOMMU accepts.
func testATS(t *testing.T, b built) {
	m := b.start(t, b.gup, vjetson.Config{
		Edu: true, Append: "numa=fake=2 numa_balancing=enable", Devices: []string{secondPort, whole + ",ats=on"},
	})
	m.guest(t, "^TestNUMABalancing$")
	m.guestOn(t, m.take("0000:02:00.0"), "^TestExposed$")
}
