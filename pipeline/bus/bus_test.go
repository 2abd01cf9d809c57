// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
)

// long reports whether tests may take minutes.
func long() bool { return os.Getenv("TEGRACAST_LONG") != "" }

// publishes publishes results of frames every few milliseconds until stop is closed, and returns how many.
func publishes(t *testing.T, p *Publisher, stop <-chan struct{}) (n uint64) {
	for {
		select {
		case <-stop:
			return n
		case <-time.After(2 * time.Millisecond):
		}
		n++
		r := report.Report{Frame: n, Results: []pipeline.Result{{Stage: "s", Numbers: map[string]float64{"n": float64(n)}}}}
		if err := p.Results("numbers", r); err != nil {
			t.Error(err)
		}
	}
}

// numbered checks the numbers that a consumer received: each from 1 to last at least once, in order apart from
// repetitions.
func numbered(t *testing.T, list []Head, last uint64) (repeated int) {
	t.Helper()
	next := uint64(1)
	for _, h := range list {
		switch {
		case h.Sequence == next:
			next++
		case h.Sequence > next:
			t.Fatalf("%d comes where %d is due", h.Sequence, next)
		default:
			repeated++
		}
	}
	if next != last+1 {
		t.Fatalf("the last one is %d, want %d", next-1, last)
	}
	return repeated
}

// has returns a function that reports whether number last has arrived.
func (c *collected) has(last uint64) func() bool {
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.top >= last
	}
}

// everyBroker runs a test against each kind of real server.
func everyBroker(t *testing.T, f func(t *testing.T, b *broker)) {
	for name, make := range map[string]func(testing.TB) *broker{
		"embedded": func(t testing.TB) *broker { return embedded(t, nil) }, "debian": debianNATS, "listener": listener,
		"mosquitto": func(t testing.TB) *broker { return mosquitto(t, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, make(t))
		})
	}
}

// TestCutLink cuts the link while results are published, for a minute in the long tier. Nothing may be lost or
// reordered; with JetStream nothing may arrive twice either.
func TestCutLink(t *testing.T) {
	outage := time.Second
	if long() {
		outage = time.Minute
	}
	everyBroker(t, func(t *testing.T, b *broker) {
		b.start(t)
		c := newCable(t, b.address)
		var got collected
		b.collect(t, &got)
		p, stop := runs(t, Config{Server: Server{URL: b.scheme + "://" + c.address}, Board: "a", Folder: t.TempDir()})
		done, count := make(chan struct{}), make(chan uint64)
		go func() { count <- publishes(t, p, done) }()
		await(t, "message", func() bool { return len(got.heads()) > 100 })
		links := p.Stats().Links
		c.set(true)
		time.Sleep(outage)
		await(t, "trouble", func() bool {
			st := p.Stats()
			return !st.Connected && st.Waiting >= 100 && st.Stored > 0 && st.Trouble != ""
		})
		c.set(false)
		await(t, "another link", func() bool { return p.Stats().Links > links })
		close(done)
		last := <-count
		await(t, "last message", got.has(last))
		stop()
		repeated := numbered(t, got.heads(), last)
		if st := p.Stats(); st.Full+st.Failed+st.Refused != 0 || st.Waiting != 0 || st.Stored != 0 || b.scheme == "nats" && repeated > 0 {
			t.Errorf("%d came twice, %+v", repeated, st)
		}
		t.Logf("%s: %d messages, %d came twice", b.name, last, repeated)
	})
}

// TestServerRestarts restarts the server while results are published. Nothing may be lost, whether or not it was
// acknowledged before.
func TestServerRestarts(t *testing.T) {
	everyBroker(t, func(t *testing.T, b *broker) {
		end := b.start(t)
		var got collected
		b.collect(t, &got)
		p, stop := runs(t, Config{Server: Server{URL: b.url()}, Board: "a", Folder: t.TempDir()})
		done, count := make(chan struct{}), make(chan uint64)
		go func() { count <- publishes(t, p, done) }()
		await(t, "message", func() bool { return len(got.heads()) > 100 })
		links := p.Stats().Links
		end()
		time.Sleep(500 * time.Millisecond)
		b.start(t)
		await(t, "another link", func() bool { return p.Stats().Links > links })
		close(done)
		last := <-count
		await(t, "last message", got.has(last))
		stop()
		t.Logf("%s: %d messages, %d came twice", b.name, last, numbered(t, got.heads(), last))
	})
}

// TestFullStore publishes more than the disk may store while the server is away. The gap in the numbers must equal the
// counter.
func TestFullStore(t *testing.T) {
	b := embedded(t, nil)
	p, stop := runs(t, Config{Server: Server{URL: b.url()}, Board: "a", Folder: t.TempDir(), Limit: 256 << 10})
	const count = 6000
	for n := range uint64(count) {
		if err := p.Results("numbers", report.Report{Frame: n}); err != nil {
			t.Fatal(err)
		}
		if n%1000 == 0 {
			await(t, "room", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.queue) == 0 })
		}
	}
	await(t, "place on the disk", func() bool {
		st := p.Stats()
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.queue) == 0 && st.Stored > 0 && st.Waiting+int(st.Full) == count
	})
	lost := p.Stats().Full
	b.start(t)
	var got collected
	b.collect(t, &got)
	await(t, "last message", got.has(count))
	stop()
	list := got.heads()
	if lost == 0 || list[0].Sequence != lost+1 || uint64(len(list)) != count-lost || list[len(list)-1].Sequence != count {
		t.Errorf("%d lost by the books, %d came, the first is %d", lost, len(list), list[0].Sequence)
	}
	if st := p.Stats(); st.Full != lost || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
}

// TestProcessesEnd checks that the numbers continue after a process has ended cleanly, even without a server, and that
// a new epoch starts after one was killed.
func TestProcessesEnd(t *testing.T) {
	b, folder := embedded(t, nil), t.TempDir()
	c := Config{Server: Server{URL: b.url()}, Board: "a", Folder: folder}
	for range 3 {
		p, stop := runs(t, c)
		for range 10 {
			p.Event(Happened{Kind: KindFault, Text: "x"})
		}
		stop()
		p.Event(Happened{Kind: KindFault, Text: "after the end"})
	}
	if _, err := New(Config{Server: c.Server, Board: "a", Folder: folder, Limit: 1 << 20, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	c.Folder = t.TempDir() // the state on disk when a process is killed
	if err := os.CopyFS(c.Folder, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	p, _ := runs(t, c)
	p.Missed()
	p.Event(Happened{Kind: KindFault, Text: "of the next epoch"})
	b.start(t)
	var got collected
	b.collect(t, &got)
	await(t, "all messages", func() bool { return len(got.heads()) == 31 })
	list := got.heads()
	numbered(t, list[:30], 30)
	if last := list[30]; last.Epoch != 2 || last.Sequence != 2 || last.ID != list[0].ID || list[29].Epoch != 1 {
		t.Errorf("%+v", last)
	}
}

// TestSubjectsHaveNumbersOfTheirOwn also checks that a server that refuses one subject's messages does not stop the
// others.
func TestSubjectsHaveNumbersOfTheirOwn(t *testing.T) {
	b := embedded(t, nil)
	b.start(t)
	p, stop := runs(t, Config{Server: Server{URL: b.url()}, Board: "a", Folder: t.TempDir()})
	text := strings.Repeat("x", 1<<20)
	for n := range uint64(3) {
		for _, output := range []string{"one", "two"} {
			if err := p.Results(output, report.Report{Frame: n}); err != nil {
				t.Fatal(err)
			}
		}
		p.Event(Happened{Kind: KindFault, Text: text[:n%2<<20]})
		p.Health(Condition{Ready: true})
	}
	var got collected
	b.collect(t, &got)
	await(t, "messages", func() bool { return len(got.heads()) == 11 })
	stop()
	count := map[uint64]int{}
	for _, h := range got.heads() {
		count[h.Sequence]++
	}
	if st := p.Stats(); !maps.Equal(count, map[uint64]int{1: 4, 2: 3, 3: 4}) || st.Refused != 1 || st.Published != 11 {
		t.Error(count, fmt.Sprintf("%+v", st))
	}
}
