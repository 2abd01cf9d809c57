package ivshmem

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tegracast/fpga"
	"tegracast/fpga/mailbox"
)

// pair is a connection as the harness and a peer have it.
func pair(t testing.TB) (server, peer *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

func shared(t testing.TB) *Shared {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestJoin(t *testing.T) {
	s := shared(t)
	server, peer := pair(t)
	if err := s.Introduce(server, CardID); err != nil {
		t.Fatal(err)
	}
	card, err := Join(peer)
	if err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	if err := card.Raise(31); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if _, err := s.Vectors[31].Read(b); err != nil || binary.NativeEndian.Uint64(b) != 1 {
		t.Errorf("vector 31: %x %v", b, err)
	}
	if _, err := card.Memory.WriteAt([]byte("shared"), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Memory.ReadAt(b[:6], 100); err != nil || string(b[:6]) != "shared" {
		t.Errorf("memory: %q %v", b[:6], err)
	}
}

// TestGuestsIntroduction compares with the bytes that QEMU's device takes (ivshmem-spec): version, id, memory, peers.
func TestGuestsIntroduction(t *testing.T) {
	s := shared(t)
	server, peer := pair(t)
	if err := s.Introduce(server, Guest); err != nil {
		t.Fatal(err)
	}
	want := []int64{0, 0, -1, CardID}
	for range Vectors {
		want = append(want, Guest)
	}
	for i, w := range want {
		b, oob := make([]byte, 8), make([]byte, 64)
		n, oobn, _, _, err := peer.ReadMsgUnix(b, oob)
		if err != nil || n != 8 || int64(binary.LittleEndian.Uint64(b)) != w {
			t.Fatalf("message %d: %x %v, want %d", i, b[:n], err, w)
		}
		files := received(oob[:oobn])
		if (len(files) == 1) != (i >= 2) {
			t.Errorf("message %d has %d descriptors", i, len(files))
		}
		for _, f := range files {
			f.Close()
		}
	}
}

func TestJoinRefuses(t *testing.T) {
	s := shared(t)
	server, peer := pair(t)
	if err := s.Introduce(server, Guest); err != nil { // the wrong id
		t.Fatal(err)
	}
	if _, err := Join(peer); !errors.Is(err, ErrProtocol) {
		t.Errorf("the guest's introduction: %v", err)
	}
	server, peer = pair(t)
	server.Close()
	if _, err := Join(peer); err == nil {
		t.Error("joined nobody")
	}
}

// FuzzJoin: a server that says anything is refused or understood, never more.
func FuzzJoin(f *testing.F) {
	f.Add(make([]byte, 16))
	f.Add(binary.LittleEndian.AppendUint64(make([]byte, 8), CardID))
	f.Fuzz(func(t *testing.T, said []byte) {
		server, peer := pair(t)
		if len(said) > 4096 {
			return
		}
		if _, err := server.Write(said); err != nil && len(said) > 0 {
			t.Fatal(err)
		}
		server.Close()
		if s, err := Join(peer); err == nil {
			s.Close()
			t.Errorf("joined by %x, which brings no descriptor", said)
		}
	})
}

// file is a register file of one BAR.
type file struct{ words [64]atomic.Uint32 }

func (f *file) Read32(off uint32) uint32     { return f.words[off/4%64].Load() }
func (f *file) Write32(off uint32, v uint32) { f.words[off/4%64].Store(v) }

// guest is the other end of the mailbox, as the machine's driver has it: shared memory, and a doorbell that rings for
// whatever is written.
type guest struct {
	m *Mailbox
	s *Shared
}

func (g guest) Read32(off uint32) uint32 { return g.m.load(int(off)) }
func (g guest) Write32(off, v uint32)    { g.m.store(int(off), v) }

type bell struct{ s *Shared }

func (b bell) Read32(uint32) uint32 { return 0 }
func (b bell) Write32(off, v uint32) {
	if off == mailbox.DoorbellOff && v == CardID<<16 {
		_, _ = b.s.Doorbell.Write(binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// call does one request of the kernel's slot.
func (g guest) call(t *testing.T, operation, off, v uint32) uint32 {
	t.Helper()
	slot := slotAt(mailbox.Halt)
	sequence := g.m.load(slot+mailbox.RequestOff) + 1
	g.m.store(slot+mailbox.OperationOff, operation)
	g.m.store(slot+mailbox.OffsetOff, off)
	g.m.store(slot+mailbox.ValueOff, v)
	g.m.store(slot+mailbox.RequestOff, sequence)
	bell{g.s}.Write32(mailbox.DoorbellOff, CardID<<16)
	for deadline := time.Now().Add(10 * time.Second); g.m.load(slot+mailbox.ResponseOff) != sequence; time.Sleep(10 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal("no answer")
		}
	}
	return g.m.load(slot + mailbox.ResultOff)
}

func open(t testing.TB, s *Shared, bars ...fpga.BAR) *Mailbox {
	t.Helper()
	m, err := Open(s.Memory, bars)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestMailbox(t *testing.T) {
	s := shared(t)
	regs := &file{}
	card, g := open(t, s, fpga.BAR{Index: 1, Size: 256, Registers: regs}), guest{open(t, s), s}
	server, peer := pair(t)
	if err := s.Introduce(server, CardID); err != nil {
		t.Fatal(err)
	}
	joined, err := Join(peer)
	if err != nil {
		t.Fatal(err)
	}
	defer joined.Close()

	cfg := mailbox.Config{Shared: g, Doorbell: bell{s}, Patience: 10 * time.Second}
	if _, err := mailbox.Open(cfg); !errors.Is(err, mailbox.ErrNotFound) {
		t.Errorf("open before a card came: %v", err)
	}
	for n := range mailbox.Slots {
		g.m.store(slotAt(n)+mailbox.RequestOff, 41) // left over from a card before
	}
	card.Announce()
	for n := range mailbox.Slots {
		if g.m.load(slotAt(n)+mailbox.ResponseOff) != 41 || g.m.load(slotAt(n)+mailbox.ResultOff) != gone {
			t.Errorf("slot %d: what was left over was not answered with all ones", n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- card.Serve(ctx, joined.Doorbell) }()
	user, err := mailbox.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list := user.BARs()
	if len(list) != 1 || list[0].Index != 1 || list[0].Size != 256 {
		t.Fatalf("BARs %+v", list)
	}
	for i := range uint32(1000) {
		list[0].Registers.Write32(8, i)
		if r := g.call(t, mailbox.OpRead|1<<8, 8, 0); r != i {
			t.Fatalf("the other slot reads %d, want %d", r, i)
		}
		if r := list[0].Registers.Read32(8); r != i {
			t.Fatalf("read: %d, want %d", r, i)
		}
	}
	for name, operation := range map[string]uint32{
		"no BAR": mailbox.OpRead | 2<<8, "BAR 6": mailbox.OpRead | 6<<8, "BAR 255": mailbox.OpRead | 255<<8,
		"no operation": 1 << 8, "operation 3": 3 | 1<<8, "more bits": mailbox.OpRead | 1<<8 | 1<<16,
	} {
		if r := g.call(t, operation, 8, 0); r != gone {
			t.Errorf("%s: %#x, want all ones", name, r)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := joined.Doorbell.Read(make([]byte, 8)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the doorbell after Serve: %v", err)
	}
}

// FuzzAnswer: whatever a guest writes is answered.
func FuzzAnswer(f *testing.F) {
	f.Add(uint32(1), uint32(mailbox.OpRead|1<<8), uint32(8), uint32(0))
	f.Add(uint32(7), uint32(0xffffffff), uint32(0xffffffff), uint32(0xffffffff))
	s := shared(f)
	m := open(f, s, fpga.BAR{Index: 1, Registers: &file{}})
	slot := slotAt(mailbox.Halt)
	f.Fuzz(func(t *testing.T, sequence, operation, off, v uint32) {
		for i, w := range []uint32{sequence, operation, off, v} {
			m.store(slot+mailbox.RequestOff+4*i, w)
		}
		m.answer(slot)
		if m.load(slot+mailbox.ResponseOff) != sequence {
			t.Errorf("request %d was not answered", sequence)
		}
	})
}
