// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The addresses of the two ends of a path.
const (
	here  = "10.9.0.1"
	there = "10.9.0.2"
)

// path is a network that packets take.
type path struct {
	name, title string
	rate        int      // frames per second; 0: as fast as possible
	receiver    bool     // there is a receiver for the packets
	pinned      bool     // all threads of a sender run on one CPU
	against     []string // prefixes of the names of the senders that all senders are compared with
	make        func(n *network, ctx context.Context) error
}

var peers = []string{"GStreamer"}

// programs are prefixes of the names of C's senders that are compared with: from pages of 4 KB, and as tegracast sends, from
// huge ones.
var programs = []string{"C, gather, 16", "C, gather, 50, huge", "C, packet-ready, 50 segments", "C, packet-ready, 50, huge"}

var paths = []path{
	{name: "S", title: "S: a transmit-only device, datagrams cut in software", against: append(peers, programs...), make: software},
	{name: "U", title: "U: the same with UDP segmentation offload, a model of a card that has it", against: append(peers, programs...), make: offload},
	{
		name: "S1", title: "S, each sender held to one processor", pinned: true, make: software,
		against: append(programs, "tegracast, gather, 16"),
	},
	{
		name: "U1", title: "U, each sender held to one processor", pinned: true, make: offload,
		against: append(programs, "C, packet-ready, 50, zero-copy"),
	},
	{name: "D", title: "D: veth to a receiver that drains, whose work is the sender's", receiver: true, against: peers, make: (*network).veth},
	{name: "60", title: "60: veth to a receiver that drains, at 60 frames a second", rate: 60, receiver: true, against: peers, make: (*network).veth},
}

func software(n *network, ctx context.Context) error { return n.ifb(ctx, "off") }

func offload(n *network, ctx context.Context) error { return n.ifb(ctx, "on") }

// network is a path that has been created. It disappears with its namespaces, which end when their descriptors are
// closed.
type network struct {
	near, far *os.File
}

func newNetwork(ctx context.Context, p path) (n *network, err error) {
	n = &network{}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.near, err = namespace(); err != nil {
		return n, err
	}
	if n.far, err = namespace(); err != nil {
		return n, err
	}
	return n, p.make(n, ctx)
}

func (n *network) close() {
	for _, f := range []*os.File{n.near, n.far} {
		if f != nil {
			f.Close()
		}
	}
}

// namespace creates a network namespace. The thread that created it ends.
func namespace() (*os.File, error) {
	var f *os.File
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("network namespace (needs root): %w", err)
	}
	return f, nil
}

// ifb creates an interface behind which nothing receives, with the queue of a card: two threads fill ifb's own, of 32
// messages. segmentation is "on" if the interface segments UDP, or "off".
func (n *network) ifb(ctx context.Context, segmentation string) error {
	return in(ctx, n.near,
		"ip link add x type ifb", "ip link set x txqueuelen 1000", "ip address add "+here+"/24 dev x", "ip link set x up",
		"ip neigh add "+there+" lladdr 02:00:00:00:00:02 dev x nud permanent",
		"ethtool -K x tx-udp-segmentation "+segmentation)
}

// veth connects the two namespaces by a pair of virtual interfaces with addresses.
func (n *network) veth(ctx context.Context) error {
	c := inside(ctx, n.near, strings.Fields("ip link add x type veth peer name y netns /proc/self/fd/4")...)
	c.ExtraFiles = append(c.ExtraFiles, n.far)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("veth: %w: %s", err, out)
	}
	if err := in(ctx, n.near, "ip address add "+here+"/24 dev x", "ip link set x up"); err != nil {
		return err
	}
	return in(ctx, n.far, "ip address add "+there+"/24 dev y", "ip link set y up")
}

// in runs commands in a namespace.
func in(ctx context.Context, ns *os.File, lines ...string) error {
	for _, line := range lines {
		c := inside(ctx, ns, strings.Fields(line)...)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// inside returns a command that runs in a namespace. Its descriptor 3 is the namespace.
func inside(ctx context.Context, ns *os.File, argv ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/proc/self/fd/3", "--"}, argv...)...)
	c.ExtraFiles = []*os.File{ns}
	return c
}
