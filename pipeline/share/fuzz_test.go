// SPDX-License-Identifier: Apache-2.0

package share

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// FuzzConsumer checks that a consumer's message is either rejected or encodes to the same bytes again.
func FuzzConsumer(f *testing.F) {
	f.Add(subscribe{policy: pipeline.Block, every: 3}.append(nil))
	f.Add(ready{2, 77}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseSubscribe(b); err == nil && !bytes.Equal(s.append(nil), b) {
			t.Errorf("%x is %+v", b, s)
		}
		if r, err := parseReady(b); err == nil && !bytes.Equal(r.append(nil), b) {
			t.Errorf("%x is %+v", b, r)
		}
	})
}

// FuzzProgram checks that a message of the program is either rejected or encodes to the same bytes again.
func FuzzProgram(f *testing.F) {
	format, err := pipeline.NewFormat(pipeline.UYVY, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1700000000, 5)
	h := header{
		slot: 3, lease: 4, sequence: 5, offset: 4096, length: uint64(format.Size()), format: format, sent: now,
		times: pipeline.Times{ExposureStart: now, ExposureEnd: now, Uncertainty: 5, Captured: now, Processed: now, Replayed: now},
		flags: flagCRC | 1, crc: 6, offered: 7, lost: 8, results: []byte("[]"),
	}
	h.format.Rate = pipeline.Rate{}
	f.Add(h.append(nil))
	h.grouped, h.group = true, 1<<40
	f.Add(h.append(nil))
	f.Add(welcome{2, "front", format}.append(nil))
	f.Add(bye{CodeBusy, "no room"}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, grouped := range []bool{false, true} {
			if h, err := parseHeader(b, grouped); err == nil && !bytes.Equal(h.append(nil), b) {
				t.Errorf("%x is %+v", b, h)
			}
		}
		if w, err := parseWelcome(b); err == nil && !bytes.Equal(w.append(nil), b) {
			t.Errorf("%x is %+v", b, w)
		}
		if y, err := parseBye(b); err == nil && !bytes.Equal(y.append(nil), b) {
			t.Errorf("%x is %+v", b, y)
		}
	})
}

// FuzzHostile connects and sends what the fuzzer chooses, one message for each length, with frames in between. Another
// consumer must get every frame, and the hostile one's frames must be returned when it leaves.
func FuzzHostile(f *testing.F) {
	hello, two := subscribe{policy: pipeline.Block, every: 1}.append(nil), ready{more: 2}.append(nil)
	says := func(list ...[]byte) (b []byte) {
		for _, text := range list {
			b = append(append(b, byte(len(text))|emits), text...)
		}
		return b
	}
	f.Add(says(hello, two, ready{1, 1}.append(nil), ready{1, 2}.append(nil)))
	f.Add(says(subscribe{policy: pipeline.Latest, every: 2}.append(nil), ready{more: 1}.append(nil), ready{more: 1}.append(nil), ready{lease: 1}.append(nil)))
	f.Add(says(hello, hello))
	f.Add(says([]byte("GET / HTTP/1.1\r\n\r\n")))
	s := newStudio(f, Config{Consumers: 2, Frames: 2})
	v := s.survive()
	f.Cleanup(func() { s.t = f })
	f.Fuzz(func(t *testing.T, b []byte) {
		s.t = t
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.sink.cfg.Socket, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 && len(b) < 1<<10 {
			n, frames := min(int(b[0]&^emits), len(b)-1), int(b[0]/emits)
			_, _ = c.Write(b[1:][:n])
			b = b[1+n:]
			v.emit(frames)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		await(t, "it has gone, and all slots are free", func() bool {
			s.sink.mu.Lock()
			n := len(s.sink.connected)
			s.sink.mu.Unlock()
			return n == 1 && s.camera.pool.Leased() == 0
		})
		v.emit(1)
	})
}

// emits is the bit of a length that requests a frame after the message.
const emits = 0x80
