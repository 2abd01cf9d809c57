// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"encoding/binary"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A hostile device answers each request with bytes that the fuzzer chooses, in all fields that a device writes, and fails
// from time to time.
type hostile struct{ data []byte }

func (h *hostile) fill(b []byte) {
	for i := range b {
		if len(h.data) > 0 {
			b[i], h.data = h.data[0], h.data[1:]
		}
	}
}

func (h *hostile) number() uint32 {
	var b [4]byte
	h.fill(b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (h *hostile) Ioctl(request uintptr, at unsafe.Pointer) error {
	switch {
	case len(h.data) == 0:
		return unix.EINVAL
	case h.data[0] == 0xff:
		h.data = h.data[1:]
		return unix.EIO
	}
	switch request {
	case getTopology:
		t := (*mediaTopology)(at)
		if t.entitiesAt == 0 {
			t.entities, t.interfaces, t.pads, t.links = h.number()%5000, h.number()%64, h.number()%64, h.number()%64
			return nil
		}
		h.fill(memory(t.entitiesAt, int(t.entities)*int(unsafe.Sizeof(mediaEntity{}))))
		h.fill(memory(t.interfacesAt, int(t.interfaces)*int(unsafe.Sizeof(mediaInterface{}))))
		h.fill(memory(t.padsAt, int(t.pads)*int(unsafe.Sizeof(mediaPad{}))))
		h.fill(memory(t.linksAt, int(t.links)*int(unsafe.Sizeof(mediaLink{}))))
		t.entities, t.links = h.number(), h.number()
	case GetControls, SetControls:
		l := (*ControlList)(at)
		l.Failed = h.number()
		c := *(**Control)(unsafe.Pointer(&l.List))
		if c.Size > 0 {
			h.fill(memory(uint64(c.Value[0])|uint64(c.Value[1])<<32, int(c.Size)))
		} else {
			c.Value = [2]uint32{h.number(), h.number()}
		}
		if l.Failed&1 != 0 {
			return unix.ERANGE
		}
	default:
		h.fill(unsafe.Slice((*byte)(at), request>>16&0x3fff))
	}
	return nil
}

func memory(at uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
}

// FuzzDevice asks a hostile device for all that there is to ask. Lists end, names can be printed, and indexes fit.
func FuzzDevice(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x01\x00\x00\x00abcdefgh", 400)))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &hostile{data}
		about, _ := Ask(h)
		printable(t, about.Driver, about.Card, about.Bus, Offer(h, h.number()), strings.Join(offers(h), ""))
		for _, kind := range []uint32{Capture, CaptureMulti} {
			for _, l := range []func() (Layout, error){
				func() (Layout, error) { return Current(h, kind) },
				func() (Layout, error) { return Choose(h, kind, Code("RG10"), 64, 48) },
			} {
				if l, err := l(); err == nil && (len(l.Planes) == 0 || len(l.Planes) > MaxPlanes || l.Width == 0 || l.Height > 1<<15 || l.Planes[0].Size == 0) {
					t.Errorf("%+v", l)
				}
			}
			if r, _, known := Rate(h, kind); known && (r.Numerator == 0 || r.Denominator == 0) {
				t.Errorf("a frame takes %+v", r)
			}
		}
		list := Settings(h)
		if len(list) > maxControls {
			t.Errorf("%d controls", len(list))
		}
		for i := range list {
			s := &list[i]
			printable(t, s.Name, s.Key(), s.itemNames())
			if v, err := s.Parse("17"); err == nil && len(s.Items) == 0 && s.Type != typeBitmask && (v < s.Min || v > s.Max) {
				t.Errorf("%+v takes %d", s, v)
			}
			if v := s.Nearest(17.5); s.Min <= s.Max && (v < s.Min || v > s.Max) {
				t.Errorf("%+v: nearest to 17.5 is %d", s, v)
			}
			_, _ = Get(h, s)
			words, _ := Array(h, s)
			if f := TegraFactors(words, int(h.number()%9)-1); f.Gain <= 0 || f.Rate <= 0 || f.Exposure <= 0 {
				t.Errorf("factors %+v", f)
			}
			if err := Set(h, Value{s, 1}, Value{s, 2}); err != nil {
				printable(t, err.Error())
			}
		}
		_, _ = NextEvent(h)
	})
}

func offers(d Caller) (list []string) {
	for _, c := range Codes(d, Capture) {
		list = append(list, Letters(c))
	}
	return list
}

func printable(t *testing.T, list ...string) {
	t.Helper()
	for _, s := range list {
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q", s)
		}
	}
}

// FuzzTopology reads the graph of a hostile media device.
func FuzzTopology(f *testing.F) {
	f.Add([]byte{}, uint32(1))
	f.Add([]byte(strings.Repeat("\x02\x00\x00\x00", 300)), uint32(2))
	f.Fuzz(func(t *testing.T, data []byte, major uint32) {
		g, err := Topology(&hostile{data})
		if err != nil {
			return
		}
		for _, l := range g.Links {
			if min(l.From, l.To) < 0 || max(l.From, l.To) >= len(g.Entities) {
				t.Fatalf("%+v of %d entities", l, len(g.Entities))
			}
		}
		video := Number{Major: major}
		if len(g.Entities) > 0 {
			g.Entities[0].Node, g.Entities[0].Subdevice = video, false
		}
		path, sensor, err := g.Path(video)
		if err != nil {
			return
		}
		if at := sensor; len(path) > len(g.Entities) {
			t.Errorf("a path of %d links from %d", len(path), at)
		}
		for _, line := range g.Repair("/dev/media0", path, PadFormat{Width: 1, Height: 1}, func(int, int) (PadFormat, bool) { return PadFormat{Code: 1}, true }) {
			printable(t, line)
			if strings.Count(line, "'") != 2 || strings.Count(line, `"`)%2 != 0 {
				t.Errorf("quotes: %s", line)
			}
		}
	})
}
