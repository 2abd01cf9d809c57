// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// busOf simulates a bus with a function bound to driver, and the kernel behind its files: writes have the effect that
// they have in Linux (drivers/pci/pci-driver.c). Drivers in refuses accept no function.
type busOf struct {
	pciBus
	t       *testing.T
	writes  []string
	refuses []string
	denies  string // a file that cannot be written
}

const somewhere = "0005:01:00.0"

func newBus(t *testing.T, driver string) *busOf {
	t.Helper()
	b := &busOf{t: t}
	b.pciBus = pciBus{root: t.TempDir(), write: b.kernel}
	for _, dir := range []string{"devices/" + somewhere, "drivers/xdma", "drivers/tegra_p2p"} {
		if err := os.MkdirAll(filepath.Join(b.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"vendor": "0x10ee", "device": "0x7024", "class": "0x058000", "driver_override": "(null)"} {
		b.writeFile(name, text)
	}
	b.bindDriver(driver)
	return b
}

func (b *busOf) writeFile(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(b.device(somewhere, name), []byte(text+"\n"), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// bindDriver binds the function to a driver, or to none if it is empty.
func (b *busOf) bindDriver(driver string) {
	b.t.Helper()
	link := b.device(somewhere, "driver")
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatal(err)
	}
	if driver == "" || slices.Contains(b.refuses, driver) {
		return
	}
	if err := os.Symlink(filepath.Join(b.root, "drivers", driver), link); err != nil {
		b.t.Fatal(err)
	}
}

// kernel does what Linux does after a write.
func (b *busOf) kernel(file, text string) error {
	name, err := filepath.Rel(b.root, file)
	if err != nil {
		return err
	}
	name = strings.TrimPrefix(name, "devices/"+somewhere+"/")
	if name == b.denies {
		return &fs.PathError{Op: "open", Path: file, Err: syscall.EACCES}
	}
	text = strings.TrimSpace(text)
	b.writes = append(b.writes, name+"="+text)
	switch {
	case name == "driver_override" && text == "":
		b.writeFile(name, "(null)")
	case name == "driver_override":
		b.writeFile(name, text)
	case name == "driver/unbind" && text == somewhere:
		b.bindDriver("")
	case name == "drivers_probe" && text == somewhere:
		if override := b.text(somewhere, "driver_override"); b.driver(somewhere) == "" && override != "(null)" {
			b.bindDriver(override)
		}
	case name == "drivers/xdma/bind" && text == somewhere && b.text(somewhere, "driver_override") == "(null)":
		b.bindDriver("xdma")
	default:
		return &fs.PathError{Op: "write", Path: file, Err: syscall.ENODEV}
	}
	return nil
}

// TestBind checks that a function goes to tegra_p2p, from another driver only on request, that a refusal changes nothing,
// and that the previous driver gets a function back that tegra_p2p does not accept.
func TestBind(t *testing.T) {
	taken := []string{"driver_override=tegra_p2p", "driver/unbind=" + somewhere, "drivers_probe=" + somewhere}
	given := slices.Concat(taken, []string{"driver_override=", "drivers/xdma/bind=" + somewhere})
	for _, tt := range []struct {
		name, had  string
		yes        bool
		change     func(*busOf)
		has, says  string // afterwards; in the answer or the error
		writes     []string
		wantsError bool
	}{
		{"free", "", false, nil, "tegra_p2p", "0005:01:00.0 (10ee:7024) is driven by tegra_p2p", []string{taken[0], taken[2]}, false},
		{"AMD's", "xdma", false, nil, "xdma", "(10ee:7024) is driven by xdma, and nothing was changed: to take it from that driver, and from whatever uses it, " +
			"run tegracast bind --yes 0005:01:00.0", nil, true},
		{"AMD's on request", "xdma", true, nil, "tegra_p2p", "was taken from xdma and is driven by tegra_p2p", taken, false},
		{"ours", "tegra_p2p", true, nil, "tegra_p2p", "is driven by tegra_p2p already", nil, false},
		{"bridge", "", true, func(b *busOf) { b.writeFile("class", "0x060400") }, "", "is a bridge", nil, true},
		{"not loaded", "xdma", true, func(b *busOf) { _ = os.Remove(filepath.Join(b.root, "drivers/tegra_p2p")) }, "xdma", "nothing was changed: modprobe tegra_p2p", nil, true},
		{"not root", "xdma", true, func(b *busOf) { b.denies = "driver_override" }, "xdma", "run it as root", nil, true},
		{"refused", "xdma", true, func(b *busOf) { b.refuses = []string{"tegra_p2p"} }, "xdma", "tegra_p2p does not accept it: journalctl -k -g tegra_p2p", given, true},
		{
			"refused, and not taken back", "xdma", true, func(b *busOf) { b.refuses = []string{"tegra_p2p", "xdma"} }, "",
			"xdma, which had it before, does not accept it again", given, true,
		},
		{"not let go", "xdma", true, func(b *busOf) { b.denies = "driver/unbind" }, "xdma", "permission denied", []string{taken[0], "driver_override="}, true},
		{"gone", "", true, func(b *busOf) { _ = os.RemoveAll(b.device(somewhere, "")) }, "", "there is no function 0005:01:00.0", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBus(t, tt.had)
			if tt.change != nil {
				tt.change(b)
			}
			said, err := b.bindFunction(somewhere, tt.yes)
			if err != nil {
				said = err.Error()
			}
			if (err != nil) != tt.wantsError || !strings.Contains(said, tt.says) {
				t.Errorf("%q, %v, want %q", said, err, tt.says)
			}
			if has := b.driver(somewhere); has != tt.has {
				t.Errorf("%q has it, want %q", has, tt.has)
			}
			if !slices.Equal(b.writes, tt.writes) {
				t.Errorf("written was %q, want %q", b.writes, tt.writes)
			}
		})
	}
}

// TestBindOverrideStays checks that an earlier override is restored when tegra_p2p does not accept the function.
func TestBindOverrideStays(t *testing.T) {
	b := newBus(t, "")
	b.writeFile("driver_override", "vfio-pci")
	b.refuses = []string{"tegra_p2p"}
	if said, err := b.bindFunction(somewhere, false); err == nil || b.text(somewhere, "driver_override") != "vfio-pci" {
		t.Errorf("%q, %v: the override is %q", said, err, b.text(somewhere, "driver_override"))
	}
}

func TestBindUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                      "give the PCI address of one function",
		"1:00.0":                `"1:00.0" is no PCI address such as 0005:01:00.0`,
		"0005:01:00.0 /dev/sda": "give the PCI address of one function",
		"../../../etc":          "is no PCI address",
	} {
		if status, _, errw := runs(t, append([]string{"bind"}, strings.Fields(args)...)...); status != exitUsage || !strings.Contains(errw, want) {
			t.Errorf("%q: status %d, %s, want %q", args, status, errw, want)
		}
	}
	if status, _, errw := runs(t, "bind", "--yes", "ffff:FF:1f.7"); status != exitFailure || !strings.Contains(errw, "there is no function ffff:ff:1f.7 on the bus") {
		t.Errorf("status %d, %s", status, errw)
	}
}

// TestPackageSaysWhoHasTheFPGA runs the installation script of the package on a simulated bus. The script must name AMD's
// functions that another driver has, with the command that takes them, and no others.
func TestPackageSaysWhoHasTheFPGA(t *testing.T) {
	root := t.TempDir()
	for address, c := range map[string][2]string{
		"0001:01:00.0": {"0x10ee", "xdma"}, "0002:01:00.0": {"0x10ee", "tegra_p2p"}, "0003:01:00.0": {"0x10ee", ""}, "0004:01:00.0": {"0x8086", "nvme"},
	} {
		dir := filepath.Join(root, "devices", address)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "vendor"), []byte(c[0]+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if c[1] != "" {
			if err := os.Symlink("../../drivers/"+c[1], filepath.Join(dir, "driver")); err != nil {
				t.Fatal(err)
			}
		}
		_ = os.MkdirAll(filepath.Join(root, "drivers", c[1]), 0o755)
	}
	bin := t.TempDir()
	for _, name := range []string{"udevadm", "modprobe"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("../../systemd/deb/scripts/dkms.postinst")
	if err != nil {
		t.Fatal(err)
	}
	moved := strings.NewReplacer("/sys/bus/pci", root, "/run/systemd/system", root, "/usr/lib/dkms", root).Replace(string(script))
	c := exec.CommandContext(t.Context(), "sh", "-c", moved, "postinst", "configure")
	c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if want := "0001:01:00.0 is driven by xdma: if it is the camera's FPGA, tegracast bind --yes 0001:01:00.0\n"; err != nil || string(out) != want {
		t.Errorf("%v, it says %q, want %q", err, out, want)
	}
}

// FuzzPCIAddress checks that an accepted address is one, and names a single folder.
func FuzzPCIAddress(f *testing.F) {
	for _, s := range []string{somewhere, "01:00.0", "FFFF:FF:1F.7", "../x", "0000:01:00.0\n", "00010000:00:00.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := pciAddress(s)
		if err != nil {
			return
		}
		if again, err := pciAddress(a); err != nil || again != a || filepath.Base(a) != a || strings.ContainsAny(a, "/\n ") {
			t.Errorf("%q is %q, then %q, %v", s, a, again, err)
		}
	})
}
