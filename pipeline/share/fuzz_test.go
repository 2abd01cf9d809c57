// SPDX-License-Identifier: Apache-2.0

package share

import (
	"bytes"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// FuzzConsumer: what a consumer sends is refused, or is read as it was written.
func FuzzConsumer(f *testing.F) {
	f.Add(subscribe{pipeline.Block, 3}.append(nil))
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

// FuzzProgram: what the program sends is refused, or is read as it was written.
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
	f.Add(welcome{2, "front", format}.append(nil))
	f.Add(bye{CodeBusy, "no room"}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHeader(b); err == nil && !bytes.Equal(h.append(nil), b) {
			t.Errorf("%x is %+v", b, h)
		}
		if w, err := parseWelcome(b); err == nil && !bytes.Equal(w.append(nil), b) {
			t.Errorf("%x is %+v", b, w)
		}
		if y, err := parseBye(b); err == nil && !bytes.Equal(y.append(nil), b) {
			t.Errorf("%x is %+v", b, y)
		}
	})
}
