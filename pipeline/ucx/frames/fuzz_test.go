// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"bytes"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// FuzzMessages checks that a parsed message is encoded to the same bytes again, except that texts are made printable,
// and that nothing invalid is accepted.
func FuzzMessages(f *testing.F) {
	form := pipeline.Format{Pixel: pipeline.UYVY, Width: 32, Height: 16, Stride: 64, Rate: pipeline.Rate{Num: 30, Den: 1}}
	for i, b := range [][]byte{
		(&hello{1, 1, "1.13.1"}).append(nil), (&welcome{1, "1.13.1", []stream{{"front", form}}}).append(nil), (&bye{CodeEnd, "the end"}).append(nil),
		(&subscribe{"front", 1, Region{2, 2, 4, 4}, 4}).append(nil), appendFormat(nil, form), appendCredit(nil, 1),
		(&frameHeader{sequence: 7, sent: time.Unix(1, 1), by: crcFPGA, crc: 5, size: 1024}).append(nil, 1), nil, (&books{1, 2, 3}).append(nil),
		(&frameHeader{sequence: 7, size: 1024, group: 9}).append(nil, newest),
	} {
		f.Add(uint8(i+1), b)
	}
	f.Fuzz(func(t *testing.T, id uint8, b []byte) {
		var again []byte
		var err error
		switch id {
		case idHello:
			var h hello
			if h, err = parseHello(b); err == nil {
				again, b = h.append(nil), b[:9+min(len(b)-9, int(b[8]))]
			}
		case idWelcome:
			var w welcome
			w, err = parseWelcome(b)
			again = w.append(nil)
		case idBye:
			var y bye
			y, err = parseBye(b)
			again = y.append(nil)
		case idSubscribe:
			var s subscribe
			s, err = parseSubscribe(b)
			again = s.append(nil)
		case idAccept:
			var form pipeline.Format
			form, err = parseAccept(b)
			again = appendFormat(nil, form)
		case idCredit:
			var n uint32
			n, err = parseCredit(b)
			again = appendCredit(nil, n)
		case idFrame, lastID + 1: // of both versions
			version := uint16(oldest)
			if id != idFrame {
				version = newest
			}
			var h frameHeader
			h, err = parseFrameHeader(b, version)
			again = h.append(nil, version)
		case idState:
			var k books
			k, err = parseBooks(b)
			again = k.append(nil)
		default:
			return
		}
		if err == nil && !bytes.Equal(again, b) && !bytes.ContainsRune(again, '?') {
			t.Errorf("message %d: %x is read as %x", id, b, again)
		}
	})
}

// cutUp splits bytes into messages: number, length, data.
func cutUp(b []byte, rendezvous bool) (list []incoming) {
	for len(b) >= 2 && len(list) < 100 {
		m := incoming{id: uint16(b[0] % (lastID + 2))}
		n := min(int(b[1]), len(b)-2)
		m.data, b = b[2:2+n], b[2+n:]
		if m.id == idFrame || m.id == idResults {
			m.header, m.data = m.data, nil
		}
		if m.length = len(m.data); rendezvous && m.id == idFrame {
			m.length, m.fetch = 512, func(_ int, done func(int, error)) error { done(512, nil); return nil }
		}
		list = append(list, m)
	}
	return list
}

func said(parts ...any) (b []byte) {
	for i := 0; i < len(parts); i += 2 {
		data := parts[i+1].([]byte)
		b = append(append(b, byte(parts[i].(int)), byte(len(data))), data...)
	}
	return b
}

// FuzzSender checks that the sender never gives a receiver more than it may have, and forgets it in the end, whatever
// the receiver says.
func FuzzSender(f *testing.F) {
	form := pipeline.Format{Pixel: pipeline.Grey, Width: 32, Height: 16, Stride: 32}
	f.Add(said(idHello, (&hello{1, 1, "1.13.1"}).append(nil), idSubscribe, (&subscribe{"front", 1, Region{}, 4}).append(nil), idCredit, appendCredit(nil, 2)))
	f.Add(said(idHello, (&hello{1, 1, "1.13.1"}).append(nil), idSubscribe, (&subscribe{"", 2, Region{2, 2, 4, 4}, 4}).append(nil), idBye, (&bye{CodeEnd, "x"}).append(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := newHub("1.13.1", quiet())
		k, err := newSink(h, StreamConfig{Name: "front"}, form, noRegister)
		if err != nil {
			t.Fatal(err)
		}
		_, s := call(h, "fuzz")
		pool := pipeline.NewPool("test", form, []pipeline.Slot{{Bytes: make([]byte, form.Size())}}, nil)
		for _, m := range cutUp(b, false) {
			s.receive(m, time.Now())
			h.mu.Lock()
			if s.state == taking {
				x := s.claim(time.Now(), len(k.jobs)-len(s.flying))
				if x != nil { // like Sink.send, but without sending anything
					x.session, x.job = s, &job{sink: k}
					x.parts = s.wants.region.parts(x.parts[:0], form, make([]byte, form.Size()))
					s.free, s.flying = append(s.free, x), nil
				}
			}
			if s.credits > maxCredits || len(s.free)+len(s.flying) > inFlight {
				t.Errorf("%d credits, %d flights", s.credits, len(s.free)+len(s.flying))
			}
			h.mu.Unlock()
		}
		h.close()
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzReceiver checks that the receiver takes no more frames than it has buffers for, whatever the sender says.
func FuzzReceiver(f *testing.F) {
	form := pipeline.Format{Pixel: pipeline.Grey, Width: 32, Height: 16, Stride: 32}
	header := (&frameHeader{sequence: 1, size: 512}).append(nil, 1)
	f.Add(said(idAccept, appendFormat(nil, form), idResults, make([]byte, 8), idFrame, header, idState, (&books{1, 1, 0}).append(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := newReceiver(ReceiverConfig{Address: "memory:1", Buffers: 2, Logger: quiet()}, "1.13.1")
		if err != nil {
			t.Fatal(err)
		}
		r.register = func(pipeline.Slot, int) error { return nil }
		r.shut, r.cancel = func() error { return nil }, func() {}
		a := newAttempt(r, time.Now())
		a.link, _ = newLines()
		r.now, a.format = a, form
		if err := r.prepare(form); err != nil {
			t.Fatal(err)
		}
		a.state, a.granted = asking, r.free
		for i, m := range cutUp(b, true) {
			a.receive(m, time.Now())
			if r.free < 0 || a.granted < 0 || len(r.arrived) > 2 {
				t.Fatalf("%d buffers are free, %d credits, %d frames", r.free, a.granted, len(r.arrived))
			}
			if i%3 == 2 && len(r.arrived) > 0 {
				if x := <-r.arrived; r.finish(x) {
					x.frame.Release()
				}
			}
			select {
			case <-a.over: // the connection has ended
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				return
			default:
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
