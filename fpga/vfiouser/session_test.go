// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	vt "github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
)

// TestPieces sends messages in pieces, byte by byte, and several at once. Descriptors come with the first byte.
func TestPieces(t *testing.T) {
	d := serve(t)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.Path(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fd := memfd(t, "pieces", page)
	mapping := vt.Frame(2, vt.DMAMap, 0, vt.Cat(uint32(32), both, uint64(0), uint64(0x5000), uint64(page)))
	if _, err := conn.Write(vt.Frame(1, vt.Version, 0, vt.Cat(no))[:1]); err != nil {
		t.Fatal(err)
	}
	for _, b := range slices.Concat(vt.Frame(1, vt.Version, 0, vt.Cat(no))[1:]) {
		if _, err := conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond)
	}
	if _, _, err := conn.WriteMsgUnix(mapping[:3], unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	rest := slices.Concat(mapping[3:], vt.Frame(3, vt.Write, 0, vt.Cat(uint64(4), uint32(7), uint32(2), []byte{6, 0})), vt.Frame(4, vt.Reset, 1<<4, nil)[:9])
	if _, err := conn.Write(rest); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mapping works", func() bool { return d.memory.Read(0x5000, make([]byte, 8)) == nil })
	if _, err := conn.Write(vt.Frame(4, vt.Reset, 1<<4, nil)[9:]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reset is done", func() bool { return d.Books().Resets == 1 })
}

// TestDescriptors checks that unused descriptors of a request are closed, and that too many end the connection.
func TestDescriptors(t *testing.T) {
	d := serve(t)
	fd := memfd(t, "descriptors", page)
	fds := slices.Repeat([]int{fd}, 16)
	count := func() int { return strings.Count(strings.Join(open(t), "\n"), "memfd:descriptors") }
	c := d.connect(t)
	for _, cmd := range []uint16{vt.Version, vt.DMAMap, vt.DMAUnmap, vt.Info, vt.RegionInfo, vt.IRQInfo, vt.SetIRQs, vt.Read, vt.Write, vt.Reset, 99} {
		if r := c.Do(cmd, make([]byte, 24), fds...); r.Flags != 1|1<<5 {
			t.Errorf("command %d with 16 descriptors: %+v", cmd, r)
		}
	}
	if n := count(); n != 1 {
		t.Errorf("%d descriptors are open", n)
	}
	if err := c.Send(vt.Frame(1, vt.Info, 0, vt.Cat(uint32(16), no, no, no)), slices.Repeat([]int{fd}, 17)...); err != nil {
		t.Fatal(err)
	}
	c.Ended()
	eventually(t, "why it ended", func() bool { return strings.Contains(d.Books().LastError, "more than 16 descriptors") })
	if n := count(); n != 1 {
		t.Errorf("%d descriptors are open", n)
	}
}

// TestUnaskedReply checks that a reply without a question ends the connection.
func TestUnaskedReply(t *testing.T) {
	d := serve(t)
	c := d.connect(t)
	if err := c.Send(vt.Frame(0, 11, 1|1<<5, nil)); err != nil {
		t.Fatal(err)
	}
	c.Ended()
	eventually(t, "why it ended", func() bool { return strings.Contains(d.Books().LastError, "nobody has sent") })
}

// TestReports checks that the machine is asked about one address at a time, and not about more than it can answer.
func TestReports(t *testing.T) {
	d := serve(t)
	d.memory.setMaster(true)
	for i := range 40 {
		_ = d.memory.Read(uint64(i), make([]byte, 1)) // before a machine is connected
	}
	c := d.ready(t)
	for i := range uint64(40) {
		if err := d.memory.Write(i<<12, make([]byte, 4)); !errors.Is(err, ErrUnmapped) {
			t.Fatal(err)
		}
		eventually(t, "it is asked for", func() bool { return len(c.Asked()) == int(i)+1 })
		if got := c.Asked()[i]; got != i<<12 {
			t.Errorf("asked for %#x, want %#x", got, i<<12)
		}
	}
	eventually(t, "it is counted", func() bool { return d.Books().Reported == 40 })
	if b := d.Books(); b.Refused != 80 {
		t.Errorf("%d refused", b.Refused)
	}
	status := func() byte { return c.Read(7, 7, 1).Body[16] }
	if v := status(); v != 0x20 {
		t.Errorf("reads were refused, and the status register is %#x", v)
	}
	c.Write(7, 7, []byte{0x20})
	if v := status(); v != 0 {
		t.Errorf("Received Master Abort was cleared: %#x", v)
	}
}

// TestDisconnects ends connections in every state, during DMA and interrupts. Nothing may be left.
func TestDisconnects(t *testing.T) {
	d := serve(t)
	eventually(t, "it runs", func() bool { d.Server.mu.Lock(); defer d.Server.mu.Unlock(); return d.ran })
	files, events, routines := open(t), eventfds(t), runtime.NumGoroutine()
	stop := make(chan struct{})
	var device sync.WaitGroup
	device.Go(func() {
		for p := make([]byte, 2*page); ; {
			select {
			case <-stop:
				return
			default:
				_ = d.memory.Write(0x10000, p)
				d.Raise(3)
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	fd := memfd(t, "disconnects", 4*page)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	hello := vt.Frame(1, vt.Version, 0, vt.Cat(no))
	stream := slices.Concat(hello,
		vt.Frame(2, vt.Write, 1<<4, vt.Cat(uint64(4), uint32(7), uint32(2), []byte{6, 0})),
		vt.Frame(3, vt.DMAUnmap, 0, vt.Cat(uint32(24), no, uint64(0x10000), uint64(4*page))),
		vt.Frame(4, vt.Read, 0, vt.Cat(uint64(0), uint32(7), uint32(4096))))
	for cut := range len(stream) + 1 {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.Path(), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(stream[:min(cut, len(hello))])
		if cut >= len(hello) {
			_, _, _ = conn.WriteMsgUnix(vt.Frame(7, vt.DMAMap, 1<<4, vt.Cat(uint32(32), both, uint64(0), uint64(0x10000), uint64(4*page))), unix.UnixRights(fd), nil)
			_, _, _ = conn.WriteMsgUnix(vt.Frame(8, vt.SetIRQs, 1<<4, irq(4|32, 2, 3, 1)), unix.UnixRights(event), nil)
			_, _ = conn.Write(stream[len(hello):cut])
		}
		if rand.IntN(2) == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		}
		conn.Close() // a reset, if answers are unread
	}
	close(stop)
	device.Wait()
	unix.Close(event)
	unix.Close(fd)
	eventually(t, "all have been served", func() bool { return d.Books().Clients == uint64(len(stream)+1) })
	eventually(t, "nothing is mapped", func() bool { return d.Books().Mapped == 0 && mappings(t, "disconnects") == 0 })
	eventually(t, "the eventfds are closed", func() bool { return eventfds(t) == events })
	eventually(t, "the descriptors are closed", func() bool { return slices.Equal(open(t), files) })
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= routines })
}

// TestClose ends a server with and without a client, by Close and by its context. Nothing may be left.
func TestClose(t *testing.T) {
	files, events, routines := open(t), eventfds(t), runtime.NumGoroutine()
	for _, how := range []string{"not run", "idle", "connected", "silent", "deaf", "context"} {
		closeOne(t, how)
	}
	eventually(t, "the descriptors are closed", func() bool { return slices.Equal(open(t), files) })
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= routines })
	if n := eventfds(t); n > events+2 { // the clients' own, which are closed at the test's end
		t.Errorf("%d eventfds are open, %d before", n, events)
	}
}

func closeOne(t *testing.T, how string) {
	d := &device{memory: &Memory{}, regs: &registers{words: map[uint32]uint32{}}}
	var err error
	if d.Server, err = New(d.function(), d.memory); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	if how == "not run" {
		ended <- nil
	} else {
		go func() { ended <- d.Run(ctx) }()
		eventually(t, "it runs", func() bool { d.Server.mu.Lock(); defer d.Server.mu.Unlock(); return d.ran })
	}
	switch how {
	case "connected", "context":
		c := d.ready(t)
		defer c.Close()
		fd := memfd(t, "close", page)
		c.Map(0, page, 0, both, fd)
		c.NewVectors(1).Assign(c, 2)
		unix.Close(fd)
	case "silent", "deaf":
		defer attach(t, d, how == "deaf").Close()
	}
	if how == "context" {
		cancel()
	} else {
		d.Close()
	}
	if err := <-ended; err != nil {
		t.Errorf("%s: %v", how, err)
	}
	if err := d.Run(ctx); errors.Is(err, ErrRunning) != (how != "not run") {
		t.Errorf("%s: Run once more: %v", how, err)
	}
	d.Close()
	if n := mappings(t, "close"); n != 0 || d.Books().Mapped != 0 {
		t.Errorf("%s: %d mappings are left", how, n)
	}
}

// attach connects without sending anything, or, if deaf, sends requests until the server waits for a client that does not
// read its answers.
func attach(t *testing.T, d *device, deaf bool) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.Path(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a client", func() bool { return d.Books().Clients == 1 })
	if deaf {
		_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		_, err = conn.Write(vt.Frame(1, vt.Version, 0, vt.Cat(no)))
		for err == nil {
			_, err = conn.Write(vt.Frame(2, vt.Read, 0, vt.Cat(uint64(0), uint32(2), uint32(1<<20))))
		}
	}
	return conn
}

// TestPath checks that the socket has no name in the file system.
func TestPath(t *testing.T) {
	before, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := serve(t)
	after, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range after {
		if strings.HasPrefix(e.Name(), "vfio-user-") && !slices.ContainsFunc(before, func(x os.DirEntry) bool { return x.Name() == e.Name() }) {
			t.Errorf("%s is left over", e.Name())
		}
	}
	if !strings.HasPrefix(d.Path(), "/proc/") {
		t.Error(d.Path())
	}
}

func TestFunction(t *testing.T) {
	for name, change := range map[string]func(*Function){
		"vendor":          func(f *Function) { f.Vendor = 0xffff },
		"class":           func(f *Function) { f.Class = 1 << 24 },
		"link speed":      func(f *Function) { f.Link = Link{6, 4} },
		"link width":      func(f *Function) { f.Link = Link{1, 3} },
		"MSI":             func(f *Function) { f.MSI = 64 },
		"BAR 6":           func(f *Function) { f.BARs[0].Index = 6 },
		"BAR taken":       func(f *Function) { f.BARs[0].Index = 3 },
		"BAR 5, 64 bits":  func(f *Function) { f.BARs[1].Index = 5 },
		"BAR of 3 pages":  func(f *Function) { f.BARs[0].Size = 3 * page },
		"BAR of 4 GiB":    func(f *Function) { f.BARs[0].Size = 4 << 30 },
		"no registers":    func(f *Function) { f.BARs[0].Registers = nil },
		"backed too much": func(f *Function) { f.BARs[0].Backed = 1 << 20 },
		"backed by 3":     func(f *Function) { f.BARs[0].Backed = 3 },
		"MSI-X":           func(f *Function) { f.MSIX.Vectors = 2049 },
		"MSI-X BAR":       func(f *Function) { f.MSIX.BAR = 1 },
		"MSI-X table":     func(f *Function) { f.MSIX.Table = 0xff00 },
		"MSI-X PBA":       func(f *Function) { f.MSIX.PBA = 4 },
	} {
		d := &device{regs: &registers{}}
		f := d.function()
		change(&f)
		if s, err := New(f, &Memory{}); !errors.Is(err, ErrFunction) {
			t.Errorf("%s: %v, want ErrFunction", name, err)
			if s != nil {
				s.Close()
			}
		}
	}
}
