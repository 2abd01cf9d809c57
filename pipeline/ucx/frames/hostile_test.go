// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func noRegister([]byte) (*ucx.Memory, error) { return nil, nil }

func speak(t testing.TB, l *line, id uint16, data []byte) {
	t.Helper()
	if err := sendControl(l, id, data); err != nil {
		t.Fatal(err)
	}
}

// ear captures the bye that a line receives.
func ear(l *line) <-chan bye {
	said := make(chan bye, 1)
	l.deliver = func(m incoming) {
		if y, err := parseBye(m.data); m.id == idBye && err == nil {
			said <- y
		}
	}
	return said
}

// TestHostileReceiver checks that a misbehaving receiver is told why it is cut off, and that another receiver loses
// nothing.
func TestHostileReceiver(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.UYVY, 32, 16)
	k := newTestSink(t, h, StreamConfig{Name: "front", Checksum: true, Receivers: 2}, f)
	s := newStudio(t, f, 16, k)
	r := listener(t, h, ReceiverConfig{}, nil)
	got := start(t, r)
	greeting := (&hello{oldest, newest, "1.13.1"}).append(nil)
	wants := func(w subscribe) []byte { return w.append(nil) }
	good := wants(subscribe{every: 1, credits: 1})
	type message struct {
		id   uint16
		data []byte
	}
	for name, c := range map[string]struct {
		code Code
		says []message
	}{
		"no hello":               {CodeBroken, []message{{idSubscribe, good}}},
		"frame":                  {CodeBroken, []message{{idFrame, nil}}},
		"unknown message":        {CodeBroken, []message{{4711, greeting}}},
		"hello without magic":    {CodeBroken, []message{{idHello, greeting[1:]}}},
		"short hello":            {CodeBroken, []message{{idHello, greeting[:7]}}},
		"release beyond end":     {CodeBroken, []message{{idHello, append(bytes.Clone(greeting[:8]), 200)}}},
		"later version":          {CodeVersion, []message{{idHello, (&hello{newest + 1, newest + 3, "1.13.1"}).append(nil)}}},
		"versions turned":        {CodeBroken, []message{{idHello, (&hello{2, 1, "1.13.1"}).append(nil)}}},
		"two hellos":             {CodeBroken, []message{{idHello, greeting}, {idHello, greeting}}},
		"unknown stream":         {CodeStream, []message{{idHello, greeting}, {idSubscribe, wants(subscribe{stream: "x", every: 1})}}},
		"never a frame":          {CodeBroken, []message{{idHello, greeting}, {idSubscribe, wants(subscribe{})}}},
		"many credits":           {CodeBroken, []message{{idHello, greeting}, {idSubscribe, wants(subscribe{every: 1, credits: maxCredits + 1})}}},
		"region outside":         {CodeRegion, []message{{idHello, greeting}, {idSubscribe, wants(subscribe{every: 1, region: Region{2, 0, 32, 16}})}}},
		"region of half a pixel": {CodeRegion, []message{{idHello, greeting}, {idSubscribe, wants(subscribe{every: 1, region: Region{1, 0, 2, 2}})}}},
		"region of nothing":      {CodeRegion, []message{{idHello, greeting}, {idSubscribe, wants(subscribe{every: 1, region: Region{2, 2, 0, 0}})}}},
		"huge region":            {CodeBroken, []message{{idHello, greeting}, {idSubscribe, wants(subscribe{every: 1, region: Region{-2, 0, 32, 16}})}}},
		"credits too early":      {CodeBroken, []message{{idHello, greeting}, {idCredit, appendCredit(nil, 1)}}},
		"credits in sum":         {CodeBroken, []message{{idHello, greeting}, {idSubscribe, good}, {idCredit, appendCredit(nil, maxCredits)}}},
		"long control message":   {CodeBroken, []message{{idHello, make([]byte, maxControl+1)}}},
		"two subscriptions":      {CodeBroken, []message{{idHello, greeting}, {idSubscribe, good}, {idSubscribe, good}}},
	} {
		t.Run(name, func(t *testing.T) {
			own, session := call(h, name)
			said := ear(own)
			for _, m := range c.says {
				_ = sendControl(own, m.id, m.data)
			}
			select {
			case y := <-said:
				if y.code != c.code || y.reason == "" {
					t.Errorf("%+v", y)
				}
			case <-time.After(30 * time.Second):
				t.Errorf("nobody was told; state %d", session.state)
			}
			await(t, "the connection to end", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.open == 1 })
			s.emit(1, nil)
			next(t, got)
		})
	}
	if st := r.Stats(); st.Lost+st.Broken+st.Mismatched != 0 || st.Connections != 1 {
		t.Errorf("the other receiver: %+v", st)
	}
}

// TestFlood checks that floods of messages and of connections end soon.
func TestFlood(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	newTestSink(t, h, StreamConfig{Name: "front"}, f)
	own, session := call(h, "flood")
	said := ear(own)
	_ = sendControl(own, idHello, (&hello{oldest, newest, "1.13.1"}).append(nil))
	_ = sendControl(own, idSubscribe, (&subscribe{every: 1}).append(nil))
	sent := 0
	for ; sent < 100_000 && sendControl(own, idCredit, appendCredit(nil, 0)) == nil; sent++ {
	}
	if y := <-said; y.code != CodeBroken || !contains(y.reason, "too many") {
		t.Errorf("%+v after %d", y, sent)
	}
	if session.messages > firstMessages+secondMessages*10+1 {
		t.Errorf("%d messages were looked at", session.messages)
	}
	var mu sync.Mutex
	var open []*line
	for range maxSessions {
		if l, s := call(h, "many"); s != nil {
			mu.Lock()
			open = append(open, l)
			mu.Unlock()
		}
	}
	if l, s := call(h, "one too many"); s != nil || h.objection(netip.Addr{}) == "" {
		t.Error("there is room for any number", l)
	}
	h.check(time.Now().Add(patience + time.Second))
	await(t, "those who say nothing to be gone", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.open == 0 })
	if len(open) < maxSessions-1 {
		t.Errorf("%d connections", len(open))
	}
}

// TestFull checks that a receiver that connects to a full stream is told so, and gets frames once another one has
// disconnected.
func TestFull(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	k := newTestSink(t, h, StreamConfig{Name: "front"}, f)
	first, _ := call(h, "first")
	speak(t, first, idHello, (&hello{oldest, newest, "1.13.1"}).append(nil))
	speak(t, first, idSubscribe, (&subscribe{every: 1}).append(nil))
	await(t, "the first receiver", func() bool { return len(k.Stats().Receivers) == 1 })
	second, _ := call(h, "second")
	said := ear(second)
	speak(t, second, idHello, (&hello{oldest, newest, "1.13.1"}).append(nil))
	speak(t, second, idSubscribe, (&subscribe{every: 1}).append(nil))
	if y := <-said; y.code != CodeFull || !contains(y.reason, "1 receivers") {
		t.Errorf("%+v", y)
	}
	r := listener(t, h, ReceiverConfig{}, nil)
	time.AfterFunc(50*time.Millisecond, first.peer.cut)
	s := newStudio(t, f, 16, k)
	got := start(t, r)
	await(t, "the place", func() bool { st := k.Stats(); return st.Gone == 1 && len(st.Receivers) == 1 })
	s.emit(1, nil)
	next(t, got)
}

// sender plays the sender for one receiver, scripted by say.
func sender(t *testing.T, say func(own *line, m incoming)) *Receiver {
	t.Helper()
	r := listener(t, nil, ReceiverConfig{Buffers: 2}, nil)
	r.dial = dialTo(func(own *line, a *attempt) {
		own.peer.deliver = func(m incoming) { say(own.peer, m) }
	})
	return r
}

// TestHostileSender checks that a receiver does not trust what it is sent.
func TestHostileSender(t *testing.T) {
	f := format(t, pipeline.Grey, 32, 16)
	hi := (&welcome{newest, "1.13.1", []stream{{"front", f}}}).append(nil)
	accept := appendFormat(nil, f)
	header := func(size uint64) []byte { return (&frameHeader{sequence: 1, size: size}).append(nil, newest) }
	frame := func(header []byte, size int) *ucx.Outgoing {
		return &ucx.Outgoing{ID: idFrame, Header: header, Data: [][]byte{make([]byte, size)}, Protocol: ucx.Rendezvous}
	}
	nobody := func(error) {}
	for name, says := range map[string][]*ucx.Outgoing{
		"welcome without end":   {control(idWelcome, hi[:len(hi)-1])},
		"welcome and more":      {control(idWelcome, append(bytes.Clone(hi), 0))},
		"65535 streams":         {control(idWelcome, []byte{1, 0, 0, 255, 255})},
		"accept too early":      {control(idAccept, accept)},
		"another format":        {control(idWelcome, hi), control(idAccept, appendFormat(nil, format(t, pipeline.Grey, 32, 18)))},
		"two welcomes":          {control(idWelcome, hi), control(idAccept, accept), control(idWelcome, hi)},
		"frame too early":       {control(idWelcome, hi), frame(header(512), 512)},
		"short frame":           {control(idWelcome, hi), control(idAccept, accept), frame(header(512), 511)},
		"frame of another size": {control(idWelcome, hi), control(idAccept, accept), frame(header(1024), 1024)},
		"half a header":         {control(idWelcome, hi), control(idAccept, accept), frame(header(512)[:40], 512)},
		"eager frame":           {control(idWelcome, hi), control(idAccept, accept), {ID: idFrame, Header: header(512), Data: [][]byte{make([]byte, 512)}}},
		"long results":          {control(idWelcome, hi), control(idAccept, accept), {ID: idResults, Header: make([]byte, 8), Data: [][]byte{make([]byte, maxResults+1)}}},
		"results of no frame":   {control(idWelcome, hi), control(idAccept, accept), control(idResults, []byte("[]"))},
		"short state":           {control(idWelcome, hi), control(idAccept, accept), control(idState, []byte{1})},
		"a receiver's message":  {control(idWelcome, hi), control(idAccept, accept), control(idCredit, appendCredit(nil, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			said := make(chan bye, 20)
			r := sender(t, func(own *line, m incoming) {
				switch m.id {
				case idHello:
					_ = own.Send(says[0], nobody)
					if len(says) == 2 && says[1].ID == idFrame {
						_ = own.Send(says[1], nobody)
					}
				case idSubscribe:
					for _, o := range says[1:] {
						_ = own.Send(o, nobody)
					}
				case idBye:
					y, _ := parseBye(m.data)
					select {
					case said <- y:
					default:
					}
				}
			})
			r.taking.Do(func() { close(r.taken) })
			go func() { _ = r.start(t.Context()) }()
			if y := <-said; y.code != CodeBroken {
				t.Errorf("%+v", y)
			}
			await(t, "the start", func() bool { return r.cancel != nil })
			if err := r.Close(); err != nil && !errors.Is(err, errCut) {
				t.Error(err)
			}
		})
	}
}
