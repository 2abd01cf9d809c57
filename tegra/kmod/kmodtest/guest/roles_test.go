// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// roles are the functions of this program as a child of a test, by $GUEST_ROLE. Descriptor 3 is memory, 4 the device.
var roles = map[string]func(){
	"hold":   func() { hold(); time.Sleep(time.Hour) },
	"exec":   func() { hold(); must(syscall.Exec("/guest.test", os.Args[:1], []string{"GUEST_ROLE=sleep"})) },
	"sleep":  func() { time.Sleep(time.Hour) },
	"open":   openOnly,
	"limit":  overLimit,
	"resume": resumeOnly,
	"race":   raceChild,
	"many":   holdMany,
	"vdso":   printVDSO,
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// hold pins the memory.
func hold() {
	fd := 4
	if os.Getenv("GUEST_OPEN") != "" {
		var err error
		fd, err = unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
		must(err)
	}
	b, err := unix.Mmap(3, 0, (1+pinPages)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(err)
	p, segs, err := (&device{fd}).pin(b[page:], bothWays)
	must(err)
	must(os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0))
	fmt.Println(p.Handle, segs[0].IOVA)
	_, _ = fmt.Scanln() // until the parent has started the DMA
}

// child is a process of this program in a role.
type child struct {
	*exec.Cmd
	out *bufio.Scanner
	in  io.Writer
}

func (s *scene) child(t *testing.T, role, opens string, m *memory) *child {
	t.Helper()
	return startChild(t, role, opens, file(t, m.fd), file(t, s.fd))
}

// startChild starts a child with descriptors, and closes them in this process.
func startChild(t *testing.T, role, opens string, files ...*os.File) *child {
	t.Helper()
	c := exec.Command("/guest.test")
	c.Env = []string{"GUEST_ROLE=" + role, "GUEST_OPEN=" + opens}
	c.ExtraFiles = files
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		f.Close()
	}
	return &child{c, bufio.NewScanner(out), in}
}

func file(t *testing.T, fd int) *os.File {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(n), "inherited")
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatalf("the child has ended: %v", c.Wait())
	}
	return strings.TrimSpace(c.out.Text())
}

// inFlightOf makes the device write to memory that a child has pinned, and lets the child continue.
func (s *scene) inFlightOf(t *testing.T, c *child) (p uapi.Pin) {
	t.Helper()
	var iova uint64
	if _, err := fmt.Sscan(c.line(t), &p.Handle, &iova); err != nil {
		t.Fatal(err)
	}
	s.edu.start(fromDevice, iova)
	fmt.Fprintln(c.in)
	return p
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
}

// TestProcessEnd ends the process that owns the memory, during a DMA.
func TestProcessEnd(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *child){
		"kill -9": func(t *testing.T, c *child) { c.kill(t) },
		"OOM kill": func(t *testing.T, c *child) {
			if err := os.WriteFile("/proc/sysrq-trigger", []byte("f"), 0); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			repeat(t, func() bool {
				m := newMemory(t, pinPages*page)
				c := s.child(t, "hold", "1", m)
				s.inFlightOf(t, c)
				end(t, c)
				flying := s.edu.flying()
				if i := s.info(t); i.State != uapi.StateFenced {
					t.Fatalf("%+v", i)
				}
				s.edu.finish(t)
				m.check(t, flying)
				m.free(t)
				s.live(t)
				return flying
			})
			s.usable(t)
		})
	}
}

// TestPassedOn passes the device to another process, which pins its own memory and ends, or executes another program.
func TestPassedOn(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *scene, c *child, p uapi.Pin){
		"hold": func(t *testing.T, _ *scene, c *child, _ uapi.Pin) { c.kill(t) },
		"exec": func(t *testing.T, s *scene, _ *child, p uapi.Pin) {
			for s.query(t, p.Handle).State == uapi.PinLive { // the next program's first line comes much later
				time.Sleep(time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			repeat(t, func() bool {
				m := newMemory(t, pinPages*page)
				c := s.child(t, name, "", m)
				p := s.inFlightOf(t, c)
				end(t, s, c, p)
				flying := s.edu.flying()
				s.over(t, p, uapi.ReasonMMExit)
				m.check(t, flying)
				m.free(t)
				_ = c.Process.Kill()
				_ = c.Wait()
				return flying
			})
			s.usable(t)
		})
	}
}

const manyPins = 64

// holdMany pins pages one by one through descriptor 3.
func holdMany() {
	b, err := unix.Mmap(-1, 0, manyPins*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(err)
	for i := range manyPins {
		p, _, err := (&device{3}).pin(b[i*page:][:page], bothWays)
		must(err)
		fmt.Print(p.Handle, " ")
	}
	fmt.Println()
	time.Sleep(time.Hour)
}

// TestPutAgainstExit ends the pins of a process while it exits: put_pages races with the exit of the mm.
func TestPutAgainstExit(t *testing.T) {
	s := newScene(t)
	for range times {
		c := startChild(t, "many", "", file(t, s.fd))
		var all sync.WaitGroup
		begin := make(chan struct{})
		for _, field := range strings.Fields(c.line(t)) {
			handle, err := strconv.ParseUint(field, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				<-begin
				time.Sleep(rand.N(3 * time.Millisecond))
				if err := uapi.DoPut(s.fd, uint32(handle)); err != nil {
					t.Errorf("PUT: %v", err)
				}
			})
		}
		close(begin)
		c.kill(t)
		all.Wait()
		s.live(t)
	}
	s.drained(t)
	s.usable(t)
}
