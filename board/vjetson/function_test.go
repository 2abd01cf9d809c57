// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// argumentsOf returns QEMU's arguments for a machine's board and functions.
func argumentsOf(t *testing.T, cfg Config) (*launcher, *Machine) {
	t.Helper()
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	l, m := &launcher{}, &Machine{cfg: cfg}
	t.Cleanup(func() {
		for _, f := range l.own {
			f.Close()
		}
	})
	l.machine(cfg)
	if err := m.devices(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return l, m
}

func TestFunctionArguments(t *testing.T) {
	sockets := filepath.Join(t.TempDir(), "a")
	writeFiles(t, filepath.Dir(sockets), "a") // QEMU connects
	for _, c := range []struct{ arch, board, kernel string }{
		{"arm64", "-machine virt,gic-version=3 -cpu cortex-a57 -device virtio-iommu-pci ", "deferred_probe_timeout=-1"},
		{
			"amd64", "-machine q35 -cpu qemu64 -device intel-iommu,caching-mode=on,intremap=on -global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off ",
			"intel_iommu=on iommu.strict=1",
		},
	} {
		l, m := argumentsOf(t, Config{Arch: c.arch, Memory: 256, Functions: []string{sockets, sockets}, Devices: []string{"pci-testdev"}})
		line := strings.Join(l.args, " ")
		if !strings.HasPrefix(line, c.board) || !strings.Contains(line, c.kernel) {
			t.Errorf("%s: %s", c.arch, line)
		}
		want := `-object memory-backend-memfd,id=ram,size=256M,share=on -machine memory-backend=ram`
		for n := range 2 {
			want += fmt.Sprintf(` -device pcie-root-port,id=slot%[1]d,chassis=%[2]d,slot=%[1]d,addr=%[3]d -device {"driver":"vfio-user-pci","id":"function%[1]d",`+
				`"bus":"slot%[1]d","socket":{"type":"unix","path":"/proc/self/fd/%[4]d"},"x-msg-timeout":600000}`, n, n+1, n+8, n+3)
		}
		if want += " -device pci-testdev"; !strings.HasSuffix(line, want) {
			t.Errorf("%s: %s\nwant %s", c.arch, line, want)
		}
		if len(l.files) != 2 || len(l.own) != 2 || len(m.slots) != 2 {
			t.Errorf("%d files, %d of QEMU's alone, %d slots", len(l.files), len(l.own), len(m.slots))
		}
	}
	m := &Machine{cfg: Config{Functions: []string{sockets + "-not"}}}
	if err := m.attachFunctions(&launcher{}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), sockets+"-not") {
		t.Errorf("a socket that is not there: %v", err)
	}
}

// TestOtherBoards checks that machines without functions are unchanged.
func TestOtherBoards(t *testing.T) {
	for want, cfg := range map[string]Config{
		"-machine virt,gic-version=3 -cpu cortex-a57 -accel":                                {},
		"-machine virt,gic-version=3,iommu=smmuv3 -cpu cortex-a57 -accel":                   {Edu: true},
		"-machine q35 -cpu qemu64 -device intel-iommu,device-iotlb=on -accel tcg,thread=mu": {Arch: "amd64", Edu: true},
	} {
		l, m := argumentsOf(t, cfg)
		line := strings.Join(l.args, " ")
		if !strings.HasPrefix(line, want) || strings.Contains(line, "deferred_probe_timeout") || strings.Contains(line, "memory-backend") {
			t.Errorf("%s\nwant %s", line, want)
		}
		if cfg.Edu && (len(m.slots) != 1 || !slices.Contains(l.args, "edu,id=edu,bus=slot0")) {
			t.Errorf("%s: slots %+v", line, m.slots)
		}
	}
}

func TestFunctionsAreRefused(t *testing.T) {
	one := []string{"a"}
	for _, cfg := range []Config{
		{Functions: one, Edu: true}, {Functions: make([]string, maxFunctions+1)},
	} {
		if err := cfg.check(); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	if got := FunctionAddress(0) + FunctionAddress(maxFunctions-1); got != SlotAddress+"0000:08:00.0" {
		t.Error(got)
	}
}

// TestPlugging checks that QEMU gets the same description of a device when it is plugged in as at the start.
func TestPlugging(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "a")
	writeFiles(t, filepath.Dir(socket), "a")
	for _, c := range []struct {
		cfg  Config
		slot int
		want string // arguments of device_del and device_add
	}{
		{Config{Edu: true}, 0, `{"id":"edu"}{"driver":"edu","id":"edu","bus":"slot0"}`},
		{
			Config{Functions: []string{socket, socket}},
			1,
			`{"id":"function1"}{"driver":"vfio-user-pci","id":"function1","bus":"slot1","socket":{"type":"unix","path":"/proc/self/fd/4"},"x-msg-timeout":600000}`,
		},
	} {
		_, m := argumentsOf(t, c.cfg)
		a, b := monitorPair(t)
		m.qmp = newQMP(a)
		said := make(chan string)
		go func() { said <- obey(b) }()
		if err := errors.Join(m.HotUnplugSlot(t.Context(), c.slot), m.HotPlugSlot(t.Context(), c.slot)); err != nil {
			t.Error(err)
		}
		for _, n := range []int{-1, len(m.slots)} {
			if m.HotUnplugSlot(t.Context(), n) == nil || m.HotPlugSlot(t.Context(), n) == nil {
				t.Errorf("slot %d of %d was taken", n, len(m.slots))
			}
		}
		a.Close()
		<-m.qmp.ended
		if got := <-said; got != c.want {
			t.Errorf("QEMU was told %s, want %s", got, c.want)
		}
	}
	if err := (&Machine{}).HotUnplug(t.Context()); err == nil || !strings.Contains(err.Error(), "Config.Functions") {
		t.Errorf("a machine without slot: %v", err)
	}
}

// obey answers a monitor's commands, confirms unplugs, and returns the arguments of all commands.
func obey(c net.Conn) (arguments string) {
	defer c.Close()
	for dec := json.NewDecoder(c); ; {
		var m struct {
			Execute   string
			Arguments json.RawMessage
		}
		if dec.Decode(&m) != nil {
			return arguments
		}
		arguments += string(m.Arguments)
		_, _ = io.WriteString(c, `{"return": {}}`)
		if m.Execute == "device_del" {
			_, _ = fmt.Fprintf(c, `{"event": "DEVICE_DELETED", "data": {"device": %s}}`, strings.TrimSuffix(strings.TrimPrefix(string(m.Arguments), `{"id":`), "}"))
		}
	}
}

// TestFunctionWithoutServer checks that QEMU reports why such a machine does not start.
func TestFunctionWithoutServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	m, err := Start(t.Context(), Config{Functions: []string{socket}})
	if errors.Is(err, ErrUnreachable) {
		t.Skipf("NEEDS a newer QEMU, once, from Debian's archive: %v", err)
	}
	if !errors.Is(err, ErrBoot) || !strings.Contains(err.Error(), "Connection refused") {
		t.Errorf("%v", err)
	}
	if m != nil {
		t.Error("it started", m.Close())
	}
}
