// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/bus/store"
	"github.com/tegracast/tegracast/pipeline/report"
)

// A recorder is a link to a server that acknowledges messages or, if deaf, says nothing.
type recorder struct {
	deaf   bool
	got    []uint64
	tokens []uint64
}

func (r *recorder) send(m *store.Message, token uint64) error {
	r.got, r.tokens = append(r.got, m.Sequence), append(r.tokens, token)
	return nil
}

func (r *recorder) flush(time.Time) error { return nil }

func (r *recorder) heard(tell func(token uint64, err error)) {
	if !r.deaf {
		for _, t := range r.tokens {
			tell(t, nil)
		}
		r.tokens = nil
	}
}

func (*recorder) watch() {}

func (r *recorder) close() {}

// TestOrderAfterALoss checks that messages that were in flight when later ones went to the disk are published first.
func TestOrderAfterALoss(t *testing.T) {
	p, err := New(Config{Server: Server{URL: "nats://127.0.0.1:1"}, Board: "a", Folder: t.TempDir(), Limit: 64 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(n int) {
		for range n {
			if err := p.Results("numbers", report.Report{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	now := time.Now()
	p.link = &recorder{deaf: true}
	publish(most + 100)
	p.round(now)
	publish(mostQueued/2 + 1) // now the queue is crowded
	p.round(now)
	publish(10)
	p.round(now)
	if p.store.Unread() == 0 {
		t.Fatal("nothing is on the disk")
	}
	p.lose(errors.New("the cable was pulled"))
	server := &recorder{}
	p.link = server
	for range 20 {
		p.round(now)
	}
	all := uint64(most + 100 + mostQueued/2 + 1 + 10)
	if st := p.Stats(); st.Waiting != 0 || st.Published != all || st.Failed+st.Full > 0 {
		t.Errorf("%+v, want %d published", st, all)
	}
	for i, n := range server.got {
		if n != uint64(i+1) {
			t.Fatalf("message %d comes in the place of %d", n, i+1)
		}
	}
	p.link = nil
	if err := p.store.Close(p.numbers); err != nil {
		t.Error(err)
	}
}
