// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// launcher collects QEMU's arguments and inherited descriptors. Everything is passed as a descriptor, so that the machine
// has no named socket or file that could be left behind.
type launcher struct {
	args  []string
	files []*os.File // become 3, 4, …
	own   []*os.File // closed when launch returns
}

// inherit passes a descriptor to QEMU and returns its number there.
func (l *launcher) inherit(f *os.File) int {
	l.files = append(l.files, f)
	return len(l.files) + 2
}

func (l *launcher) add(args ...string) { l.args = append(l.args, args...) }

// path passes a file to QEMU and returns its name there.
func (l *launcher) path(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", l.inherit(f)) }

// socket adds a character device and returns the host's end.
func (l *launcher) socket(id string) (*net.UnixConn, error) {
	ours, theirs, err := socketPair(id)
	if err != nil {
		return nil, err
	}
	l.own = append(l.own, theirs)
	l.add("-chardev", fmt.Sprintf("socket,id=%s,fd=%d", id, l.inherit(theirs)))
	return unixConn(ours)
}

// unixConn returns a connection for the socket f, and closes f.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close() // FileConn duplicates it
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("vjetson: socket: %w", err)
	}
	return c.(*net.UnixConn), nil // f is of a Unix socket pair
}

func socketPair(name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("vjetson: socket %s: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

func (m *Machine) launch(ctx context.Context, kernel, root *os.File) (err error) {
	l := &launcher{}
	defer func() {
		for _, f := range l.own {
			f.Close()
		}
		if err != nil {
			m.drop()
		}
	}()
	l.machine(m.cfg)
	l.add("-kernel", l.path(kernel), "-initrd", l.path(root))
	monitor, err := l.socket("monitor")
	if err != nil {
		return err
	}
	m.qmp = newQMP(monitor)
	port, err := l.socket("agent")
	if err != nil {
		return err
	}
	m.port = port
	m.jobs = newJobs(m.port)
	l.add("-mon", "chardev=monitor,mode=control",
		"-device", "virtio-serial-pci,romfile=", "-device", "virtserialport,chardev=agent,name=tegracast.agent")
	if err := m.devices(ctx, l); err != nil {
		return err
	}
	m.qemu = exec.Command(m.cfg.qemu[0], slices.Concat(m.cfg.qemu[1:], l.args)...)
	m.qemu.ExtraFiles = l.files
	if m.cfg.Keyboard != nil {
		m.qemu.Stdin = m.cfg.Keyboard
	}
	m.qemu.Stdout, m.qemu.Stderr = m.log, m.said
	m.qemu.WaitDelay = waitDelay
	if err := startChild(m.qemu); err != nil {
		return fmt.Errorf("vjetson: %w", err)
	}
	go m.waitQEMU()
	go m.serveAgent()
	return nil
}

// drop releases the resources of a machine that was not started.
func (m *Machine) drop() {
	if m.qmp != nil {
		m.qmp.conn.Close()
		<-m.qmp.ended
	}
	if m.port != nil {
		m.port.Close()
	}
	if m.net != nil {
		m.net.close()
	}
}

// cheap turns off what has no subject inside an emulator and costs it most: mitigations of a processor's faults, and random
// addresses, with which QEMU translates a program again each time it starts.
const cheap = "mitigations=off norandmaps"

// machine adds the arguments for the board, its memory, processors and console, and the kernel's command line.
func (l *launcher) machine(cfg Config) {
	board, more := cfg.arch.board, ""
	switch {
	case cfg.Edu:
		board = cfg.arch.iommuBoard
	case len(cfg.Functions) > 0:
		board, more = cfg.arch.functionBoard, cfg.arch.functionAppend
	}
	l.add(board...)
	l.add("-accel", "tcg,thread=multi", "-m", strconv.Itoa(cfg.Memory),
		"-smp", strconv.Itoa(cfg.CPUs), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console")
	for i := range cfg.Nodes {
		l.add("-object", fmt.Sprintf("memory-backend-ram,id=node%d,size=%dM", i, cfg.Memory/cfg.Nodes))
		node := fmt.Sprintf("node,nodeid=%d,memdev=node%[1]d", i)
		if i == 0 {
			node += fmt.Sprintf(",cpus=0-%d", cfg.CPUs-1)
		}
		l.add("-numa", node)
	}
	if cfg.Full {
		cfg.Append = "net.ifnames=0 " + cfg.Append
	}
	line := []string{"console=" + cfg.arch.console, "loglevel=8", "panic=-1", "watchdog_thresh=60", cheap, cfg.arch.append, more, cfg.Append}
	l.add("-append", strings.Join(strings.Fields(strings.Join(line, " ")), " "))
}

// devices adds the disk, the network, the hot-plug slots, which are PCI Express ports, with their devices, and
// Config.Devices.
func (m *Machine) devices(ctx context.Context, l *launcher) error {
	if err := m.disk(ctx, l); err != nil {
		return err
	}
	if m.cfg.Network {
		var err error
		if m.net, err = newNetwork(ctx); err != nil {
			return err
		}
		m.net.attach(l)
	}
	switch {
	case m.cfg.Edu:
		l.add("-device", "pcie-root-port,id=slot0,chassis=1,slot=0", "-device", "edu,id=edu,bus=slot0")
		m.slots = []device{{Driver: "edu", ID: "edu", Bus: "slot0"}}
	case len(m.cfg.Functions) > 0:
		if err := m.attachFunctions(l); err != nil {
			return err
		}
	}
	for _, d := range m.cfg.Devices { // after the slots, whose places on the bus must not depend on them
		l.add("-device", d)
	}
	return nil
}

// disk adds the configured disk, or the one that the full root needs.
func (m *Machine) disk(ctx context.Context, l *launcher) error {
	file, options, mode := m.cfg.Disk, "", os.O_RDWR
	if m.cfg.Full {
		image, err := fullImage(ctx, m.cfg.Kernel, m.cfg.Log)
		if err != nil {
			return err
		}
		if file == "" {
			file, options, mode = image, ",snapshot=on", os.O_RDONLY
		} else if err := makeDisk(ctx, image, file); err != nil {
			return err
		}
	}
	if file == "" {
		return nil
	}
	disk, err := os.OpenFile(file, mode, 0)
	if err != nil {
		return fmt.Errorf("%w: disk: %w", ErrMissing, err)
	}
	source := ""
	if m.cfg.DiskCache {
		if source, err = m.cacheDisk(disk, l); err != nil {
			return errors.Join(err, disk.Close())
		}
	} else {
		l.own = append(l.own, disk)
		source = "file=" + l.path(disk) + options
		if m.cfg.temporary {
			source += ",cache=unsafe" // a power cut ends QEMU alone, so flushes need not reach the host's disk
		}
	}
	l.add("-drive", "if=none,id=disk,format=raw,"+source, "-device", "virtio-blk-pci,drive=disk,romfile=")
	return nil
}

// cacheDisk serves a disk with a write cache, and returns QEMU's options for it. The disk is closed when QEMU's
// connection to it has ended.
func (m *Machine) cacheDisk(disk *os.File, l *launcher) (string, error) {
	cache, err := newDiskCache(disk)
	if err != nil {
		return "", fmt.Errorf("vjetson: disk: %w", err)
	}
	ours, theirs, err := socketPair("disk")
	if err != nil {
		return "", err
	}
	l.own = append(l.own, theirs)
	conn, err := unixConn(ours)
	if err != nil {
		return "", err
	}
	m.cache = cache
	go cache.serve(conn)
	return fmt.Sprintf("file.driver=nbd,file.server.type=fd,file.server.str=%d", l.inherit(theirs)), nil
}

// makeDisk copies the image if the disk does not exist.
func makeDisk(ctx context.Context, image, disk string) error {
	if _, err := os.Stat(disk); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return command(ctx, "cp", "--sparse=always", "--reflink=auto", image, disk)
}

// InjectError makes a device in Config.Devices, named by its id, report a link error, named as QEMU does ("COMP_TIME"
// is a completion timeout). The device must be a PCI Express device with aer=on.
func (m *Machine) InjectError(ctx context.Context, id, name string) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	says, err := m.qmp.human(ctx, "pcie_aer_inject_error "+id+" "+name)
	if err == nil && !strings.HasPrefix(says, "OK") {
		err = fmt.Errorf("vjetson: error %s of %s: %s", name, id, strings.TrimSpace(says))
	}
	return err
}
