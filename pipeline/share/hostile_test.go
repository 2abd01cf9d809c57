// SPDX-License-Identifier: Apache-2.0

package share

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// liar connects to a studio's socket without a client.
func (s *studio) liar() *net.UnixConn {
	s.t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.sink.cfg.Socket, Net: "unixpacket"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// ended reads until the program ends the connection, and returns its bye.
func ended(t *testing.T, c *net.UnixConn) (y bye) {
	t.Helper()
	room := make([]byte, maxMessage)
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := c.Read(room)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the program does not end the connection")
		}
		if err != nil || n == 0 {
			return y
		}
		if z, err := parseBye(room[:n]); err == nil {
			y = z
		}
	}
}

// TestHostileConsumers checks that a consumer that breaks the protocol is disconnected and loses its frames, and that
// nobody else loses anything.
func TestHostileConsumers(t *testing.T) {
	hello := subscribe{policy: pipeline.Block, every: 1}.append(nil)
	all := ready{more: 2}.append(nil)
	for name, says := range map[string][][]byte{
		"nothing that can be":    {[]byte("GET / HTTP/1.1\r\n\r\n")},
		"too long":               {make([]byte, 4096)},
		"no magic":               {append(make([]byte, 8), hello[8:]...)},
		"other version":          {le.AppendUint32(append([]byte{}, hello[:8]...), 9)},
		"no such policy":         {subscribe{policy: 7, every: 1}.append(nil)},
		"every none":             {subscribe{policy: pipeline.Block, every: 0}.append(nil)},
		"ready first":            {all},
		"twice":                  {hello, hello},
		"nothing given back":     {hello, ready{}.append(nil)},
		"more than it may":       {hello, ready{more: 3}.append(nil)},
		"too much at last":       {hello, all, ready{more: 1}.append(nil)},
		"as many as there are":   {hello, ready{more: 1<<32 - 1}.append(nil)},
		"more than a word holds": {hello, all, ready{more: 1<<32 - 2}.append(nil)},
		"what it does not have":  {hello, all, ready{lease: 1 << 40}.append(nil)},
		"a return that is short": {hello, all, all[:15]},
		"a return that is long":  {hello, all, append(all[:16:16], 0)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStudio(t, Config{Consumers: 2, Frames: 2})
			v, c := s.survive(), s.liar()
			for _, text := range says {
				if _, err := c.Write(text); err != nil && !errors.Is(err, syscall.EPIPE) {
					t.Fatal(err)
				}
			}
			y := ended(t, c)
			await(t, "it is sent away", func() bool { return len(s.sink.Stats().Consumers) == 1 })
			if y.code != CodeBroken && y != (bye{}) { // the bye is lost if the program had more to read
				t.Errorf("%+v", y)
			}
			v.emit(10)
		})
	}
}

// TestLeaseGivenBackTwice checks that a consumer that returns a lease twice is disconnected, and that another one is not
// affected.
func TestLeaseGivenBackTwice(t *testing.T) {
	s := newStudio(t, Config{Consumers: 2, Frames: 2})
	v, k := s.survive(), s.dial(ClientConfig{Policy: pipeline.Block})
	await(t, "both are ready", func() bool { return s.idle(2) })
	v.emit(1)
	f := next(t, k)
	if err := errors.Join(k.sendReady(ready{lease: f.lease}), k.sendReady(ready{lease: f.lease})); err != nil {
		t.Fatal(err)
	}
	var end *EndError
	if _, err := k.Next(t.Context()); !errors.Is(err, ErrClosed) || errors.As(err, &end) && end.Code != CodeBroken {
		t.Error(err)
	}
	await(t, "it is sent away", func() bool { return len(s.sink.Stats().Consumers) == 1 })
	v.emit(10)
}

// TestConsumerNeverReads checks a consumer that guesses and returns its leases, but never reads: once its socket is
// full, it loses frames, and nobody else does. Descriptors that it sends are not accepted.
func TestConsumerNeverReads(t *testing.T) {
	s := newStudio(t, Config{Consumers: 2, Frames: 2})
	v, c := s.survive(), s.liar()
	text := append(subscribe{policy: pipeline.Block, every: 1}.append(nil), 0)[:subscribeSize]
	if _, _, err := c.WriteMsgUnix(text, unix.UnixRights(1, 2), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(ready{more: 2}.append(nil)); err != nil {
		t.Fatal(err)
	}
	await(t, "it is ready", func() bool { return s.idle(2) })
	before := descriptors(t)
	for n := uint64(1); ; n++ {
		v.emit(1)
		if st := s.sink.Stats().Consumers[1]; st.Lost > 10 {
			break
		} else if st.Lost > 0 {
			continue
		}
		if n > 1e5 {
			t.Fatal("its socket is never full")
		}
		if _, err := c.Write(ready{1, n}.append(nil)); err != nil {
			t.Fatal(err)
		}
		await(t, "the lease is back", func() bool { return s.idle(2) })
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors, there were %d", n, before)
	}
	v.emit(10)
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestStrangers opens the maximum number of silent connections. Consumers must still be able to connect once those have
// timed out.
func TestStrangers(t *testing.T) {
	s := newStudio(t, Config{Consumers: 1, Frames: 1, patience: 3 * time.Second})
	var list []*net.UnixConn
	for range strangers {
		list = append(list, s.liar())
	}
	await(t, "all are there", func() bool { s.sink.mu.Lock(); defer s.sink.mu.Unlock(); return len(s.sink.connected) == strangers })
	if _, err := Dial(t.Context(), ClientConfig{Socket: s.sink.cfg.Socket}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if y := ended(t, list[0]); y.code != CodeSlow {
		t.Errorf("%+v", y)
	}
	await(t, "there is room", func() bool { s.sink.mu.Lock(); defer s.sink.mu.Unlock(); return len(s.sink.connected) == 0 })
	s.dial(ClientConfig{})
}

// TestNoise has consumers send random messages, some of them valid.
func TestNoise(t *testing.T) {
	s := newStudio(t, Config{Consumers: 2, Frames: 2})
	v := s.survive()
	rounds := 100
	if os.Getenv("TEGRACAST_LONG") != "" {
		rounds = 20000
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		c := s.liar()
		_, _ = c.Write(subscribe{policy: pipeline.Policy(r.IntN(2)), every: uint32(r.IntN(3))}.append(nil))
		for range r.IntN(6) {
			text := ready{uint32(r.IntN(3)), uint64(r.IntN(4))}.append(nil)
			if r.IntN(8) == 0 {
				text[r.IntN(len(text))] ^= byte(1 << r.IntN(8))
			}
			_, _ = c.Write(text[:max(1, len(text)-r.IntN(20)/19)])
			v.emit(r.IntN(2))
		}
		_ = c.Close()
	}
	await(t, "all have gone", func() bool { return len(s.sink.Stats().Consumers) == 1 })
	v.emit(10)
}

// TestHostileProgram checks that a client rejects what it cannot read, and keeps no descriptor.
func TestHostileProgram(t *testing.T) {
	path := t.TempDir() + "/s"
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	unsealed, err := unix.MemfdCreate("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unsealed)
	if err := unix.Ftruncate(unsealed, 1<<20); err != nil {
		t.Fatal(err)
	}
	good := header{lease: 1, format: f, length: uint64(f.Size())}
	far, long, bins := good, good, good
	far.offset, long.length, bins.results = 1<<30, 1, []byte("{")
	before := descriptors(t)
	for i, x := range []struct {
		text   []byte
		rights []byte
	}{
		{good.append(nil), nil},
		{good.append(nil), unix.UnixRights(unsealed)},
		{good.append(nil), unix.UnixRights(unsealed, unsealed)},
		{far.append(nil), nil},
		{long.append(nil), unix.UnixRights(unsealed)},
		{bins.append(nil), nil},
		{[]byte("what is this"), nil},
		{make([]byte, maxMessage+5), nil},
		{bye{CodeEnd, "the end"}.append(nil), unix.UnixRights(unsealed)},
	} {
		told := make(chan error, 1)
		go func() {
			c, err := l.AcceptUnix()
			if err == nil {
				_, err = c.Write(welcome{2, "front", f}.append(nil))
				_, _, err2 := c.WriteMsgUnix(x.text, x.rights, nil)
				err = errors.Join(err, err2)
				_, _ = c.Read(make([]byte, 64))
				_, _ = c.Read(make([]byte, 64))
				err = errors.Join(err, c.Close())
			}
			told <- err
		}()
		k, err := Dial(t.Context(), ClientConfig{Socket: path, Policy: pipeline.Block})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Next(t.Context()); !errors.Is(err, errWire) && !errors.Is(err, ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
		if err := errors.Join(k.Close(), <-told); err != nil {
			t.Error(err)
		}
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors, there were %d", n, before)
	}
	if s := fmt.Sprint(CodeEnd, CodeSlow, Code(77)); s != "end slow code 77" {
		t.Error(s)
	}
}

// TestStrangersAreLoggedOnceAMinute checks that a process that connects again and again without subscribing does not
// fill the log.
func TestStrangersAreLoggedOnceAMinute(t *testing.T) {
	var lines lineCounter
	s := newStudio(t, Config{Consumers: 2, Frames: 2, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	for n := 0; n < 200; {
		c, err := net.Dial("unixpacket", s.sink.cfg.Socket)
		if errors.Is(err, unix.EAGAIN) { // the maximum number of connections waits to be accepted
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		n++
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.sink.mu.Lock()
		n := len(s.sink.connected)
		s.sink.mu.Unlock()
		if n == 0 {
			break
		}
	}
	if n := lines.n.Load(); n > 2 {
		t.Errorf("%d lines in the log", n)
	}
}

// A lineCounter counts the lines written to it.
type lineCounter struct{ n atomic.Int64 }

// Write implements io.Writer.
func (c *lineCounter) Write(b []byte) (int, error) {
	c.n.Add(1)
	return len(b), nil
}

// lines counts those of a log.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) {
	l.n.Add(int64(bytes.Count(b, []byte("\n"))))
	return len(b), nil
}

// TestConsumersDoNotFillTheLog checks that few of very many short connections are logged.
func TestConsumersDoNotFillTheLog(t *testing.T) {
	var log lines
	s := newStudio(t, Config{Consumers: 1, Frames: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for n := range uint64(200) {
		c := s.liar()
		if _, err := c.Write(subscribe{policy: pipeline.Latest, every: 1}.append(nil)); err != nil {
			t.Fatal(err)
		}
		await(t, "it has come", func() bool { return len(s.sink.Stats().Consumers) == 1 })
		c.Close()
		await(t, "it has gone", func() bool { return s.sink.Stats().Gone == n+1 })
	}
	if n := log.n.Load(); n == 0 || n > 100 {
		t.Errorf("the log has %d lines", n)
	}
}
