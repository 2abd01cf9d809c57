// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// The two ends of the machine's network.
const (
	HostAddress  = "192.168.77.1"
	GuestAddress = "192.168.77.2"
	prefix       = "/24"
)

// network is a tap device between the machine's eth0 and the host, in its own network namespace: it is invisible on the
// host's networks and ends with its descriptors.
type network struct {
	namespace, tap *os.File
}

func newNetwork(ctx context.Context) (*network, error) {
	if err := needTools(map[string]string{"ip": "iproute2", "nsenter": "util-linux"}); err != nil {
		return nil, err
	}
	n := &network{}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine, in its namespace
		made <- n.open()
	}()
	if err := <-made; err != nil {
		n.close()
		return nil, fmt.Errorf("vjetson: network namespace (needs root and /dev/net/tun): %w", err)
	}
	for _, argv := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "address", "add", HostAddress + prefix, "dev", "tap0"},
		{"ip", "link", "set", "tap0", "up"},
	} {
		if out, err := n.command(ctx, argv...).CombinedOutput(); err != nil {
			n.close()
			return nil, fmt.Errorf("vjetson: network: %v: %w: %s", argv, err, out)
		}
	}
	return n, nil
}

// open creates a network namespace for the calling thread, with the tap in it.
func (n *network) open() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	var err error
	if n.namespace, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/net/tun: %w", err)
	}
	n.tap = os.NewFile(uintptr(fd), "tap0")
	req, err := unix.NewIfreq("tap0")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("tap: %w", err)
	}
	return nil
}

// attach passes the tap to QEMU. The driver in the machine is virtio_net.
func (n *network) attach(l *launcher) {
	l.add("-netdev", fmt.Sprintf("tap,id=net,fd=%d,vhost=off", l.inherit(n.tap)), "-device", "virtio-net-pci,netdev=net,romfile=")
}

func (n *network) command(ctx context.Context, argv ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/proc/self/fd/3", "--"}, argv...)...)
	c.ExtraFiles = []*os.File{n.namespace}
	return c
}

func (n *network) close() {
	for _, f := range []*os.File{n.namespace, n.tap} {
		if f != nil {
			f.Close()
		}
	}
}

// HostCommand returns a command that runs on this host in the machine's network (Config.Network), where this host has
// HostAddress. ExtraFiles has the namespace as descriptor 3.
func (m *Machine) HostCommand(ctx context.Context, argv ...string) (*exec.Cmd, error) {
	if m.net == nil {
		return nil, errors.New("vjetson: the machine has no network: set Config.Network")
	}
	return m.net.command(ctx, argv...), nil
}

// networkUp sets the address of the machine's eth0, and brings it up.
func (m *Machine) networkUp(ctx context.Context) error {
	_, err := m.Shell(ctx, "ip address add "+GuestAddress+prefix+" dev eth0 && ip link set eth0 up")
	return err
}
