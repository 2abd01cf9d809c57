package kmodtest_test

import (
	"testing"
	"time"

	"tegracast/board/vjetson"
)

// A whole function of PCI Express, which edu is not: it can be reset, and reports errors of its link.
const (
	secondPort = "pcie-root-port,id=port1,chassis=2,slot=1"
	thirdPort  = "pcie-root-port,id=port2,chassis=3,slot=2"
	whole      = "virtio-rng-pci,id=whole,bus=port1,disable-legacy=on,iommu_platform=on,aer=on,romfile="
)

// take gives a function to the module and returns the guest's environment for it.
func (m machine) take(function string) string {
	dir := "/sys/bus/pci/devices/" + function
	m.shell("[ ! -e " + dir + "/driver ] || echo " + function + " > " + dir + "/driver/unbind; " +
		"echo tegra_p2p > " + dir + "/driver_override && echo " + function + " > /sys/bus/pci/drivers_probe")
	return "GUEST_FUNCTION=" + function + " GUEST_DEVICE=/dev/$(ls " + dir + "/misc)"
}

// testOthers has what the module does with functions that are not edu.
func testOthers(t *testing.T, b built) {
	m := b.start(t, b.gup, vjetson.Config{Edu: true, Devices: []string{
		secondPort, whole, thirdPort, "edu,bus=port2,addr=0.0,multifunction=on", "edu,bus=port2,addr=0.1",
	}})
	env := m.take("0000:02:00.0")
	m.guestOn(t, env, "^TestReset$")
	t.Run("link error", func(t *testing.T) {
		m := machine{m.Machine, t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.guestOn(t, env+" GUEST_PORT=0000:00:03.0", "^TestLinkError$")
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
			if m.shell("if [ -e /run/inject ]; then rm /run/inject; echo yes; fi") == "" {
				continue
			}
			injected = true
			if err := m.InjectError(t.Context(), "whole", "COMP_TIME"); err != nil {
				t.Error(err)
			}
		}
	})
	one := m.take("0000:03:00.0")
	other := m.take("0000:03:00.1") // joins the first one's group
	m.guestOn(t, one, "^TestExposed$")
	m.guestOn(t, other, "^TestExposed$")
}

// testATS has a function whose translations the IOMMU takes from itself.
func testATS(t *testing.T, b built) {
	m := b.start(t, b.gup, vjetson.Config{Edu: true, Devices: []string{secondPort, whole + ",ats=on"}})
	m.guestOn(t, m.take("0000:02:00.0"), "^TestExposed$")
}
