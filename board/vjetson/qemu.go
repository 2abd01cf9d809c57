package vjetson

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// launcher collects QEMU's arguments and the descriptors that it inherits. Everything that it is given is a
// descriptor: no socket or file of the machine has a name that could be left behind.
type launcher struct {
	args  []string
	files []*os.File // become 3, 4, …
}

// inherit gives QEMU a descriptor and returns its number there.
func (l *launcher) inherit(f *os.File) int {
	l.files = append(l.files, f)
	return len(l.files) + 2
}

func (l *launcher) add(args ...string) { l.args = append(l.args, args...) }

// path is a file's name for QEMU.
func (l *launcher) path(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", l.inherit(f)) }

// socket adds a character device and returns the host's end.
func (l *launcher) socket(id string) (net.Conn, error) {
	ours, theirs, err := socketPair(id)
	if err != nil {
		return nil, err
	}
	l.add("-chardev", fmt.Sprintf("socket,id=%s,fd=%d", id, l.inherit(theirs)))
	defer ours.Close() // FileConn duplicates it
	return net.FileConn(ours)
}

func socketPair(name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("vjetson: socket %s: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// launch starts QEMU. The process ends with this one even when this one is killed.
func (m *Machine) launch(ctx context.Context, kernel, root *os.File) (err error) {
	l := &launcher{}
	var own []*os.File // opened here and QEMU's alone once it runs
	defer func() {
		for _, f := range own {
			f.Close()
		}
		if err != nil {
			m.drop()
		}
	}()
	l.machine(m.cfg)
	l.add("-kernel", l.path(kernel), "-initrd", l.path(root))
	before := len(l.files)
	monitor, err := l.socket("monitor")
	own = l.files[before:]
	if err != nil {
		return err
	}
	m.qmp = newQMP(monitor)
	m.port, err = l.socket("agent")
	own = l.files[before:]
	if err != nil {
		return err
	}
	m.jobs = newJobs(m.port)
	l.add("-mon", "chardev=monitor,mode=control",
		"-device", "virtio-serial-pci,romfile=", "-device", "virtserialport,chardev=agent,name=tegracast.agent")
	if err := m.devices(ctx, l); err != nil {
		return err
	}
	own = l.files[before:]
	m.qemu = exec.Command("qemu-system-aarch64", l.args...)
	m.qemu.ExtraFiles = l.files
	m.qemu.Stdout, m.qemu.Stderr = m.log, m.said
	m.qemu.WaitDelay = waitDelay
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := m.qemu.Start(); err != nil {
		return fmt.Errorf("vjetson: %w", err)
	}
	go m.waitQEMU()
	go m.serveAgent()
	return nil
}

// drop gives back what a machine has that was not started.
func (m *Machine) drop() {
	if m.qmp != nil {
		m.qmp.conn.Close()
		<-m.qmp.ended
	}
	if m.port != nil {
		m.port.Close()
	}
	if m.card != nil {
		_ = m.card.close()
	}
}

// machine adds what every machine has.
func (l *launcher) machine(cfg Config) {
	board := "virt,gic-version=3"
	if cfg.Edu {
		board += ",iommu=smmuv3"
	}
	l.add("-machine", board, "-cpu", "cortex-a57", "-accel", "tcg,thread=multi", "-m", strconv.Itoa(cfg.Memory),
		"-smp", strconv.Itoa(cfg.CPUs), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console")
	line := []string{"console=ttyAMA0", "loglevel=8", "panic=-1", "watchdog_thresh=60", cfg.Append}
	l.add("-append", strings.TrimSpace(strings.Join(line, " ")))
}

// devices adds the card slots. They are ports of PCI Express, so that what stands in them can be pulled and plugged.
func (m *Machine) devices(ctx context.Context, l *launcher) error {
	if m.cfg.Edu {
		l.add("-device", "pcie-root-port,id=slot0,chassis=1,slot=0", "-device", "edu,id=edu,bus=slot0")
	}
	return nil
}

// HotPlugEdu puts the edu device into its slot again.
func (m *Machine) HotPlugEdu(ctx context.Context) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	return m.qmp.do(ctx, "device_add", map[string]string{"driver": "edu", "id": "edu", "bus": "slot0"})
}

// HotUnplug presses the slot's attention button and waits until the guest has let the device ("edu" or "card") go: Linux
// takes 5 s for it.
func (m *Machine) HotUnplug(ctx context.Context, device string) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	return m.qmp.unplug(ctx, device)
}
