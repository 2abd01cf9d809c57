// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestConfig(t *testing.T) {
	good := Config{File: "a.cu", Entry: "a", Results: true, Parameters: map[string]float64{"threshold": 2}, Numbers: []string{"share"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Config){
		"name a .cu file":               func(c *Config) { c.File = "" },
		`file "a\"b"`:                   func(c *Config) { c.File = `a"b` },
		"name of a function":            func(c *Config) { c.Entry = "a-b" },
		`entry "while"`:                 func(c *Config) { c.Entry = "while" },
		"only for kernels with results": func(c *Config) { c.Results = false },
		"more than 64":                  func(c *Config) { c.Labels = make([]string, 65) },
		"bins 5000":                     func(c *Config) { c.Bins = 5000 },
		"state -1":                      func(c *Config) { c.State = -1 },
		"from 10ms to 1m0s":             func(c *Config) { c.TimeLimit = time.Millisecond },
		`"share" is there`:              func(c *Config) { c.Numbers = []string{"share", "share"} },
		`"float": must`:                 func(c *Config) { c.Numbers = []string{"float"} },
		`"__gain": must`:                func(c *Config) { c.Parameters = map[string]float64{"__gain": 1} },
		"parameter gain is +I":          func(c *Config) { c.Parameters = map[string]float64{"gain": math.Inf(1)} },
		"is 1e+39":                      func(c *Config) { c.Parameters = map[string]float64{"gain": 1e39} },
	} {
		c := good
		change(&c)
		if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Lines of the user's file keep their numbers, and the structs have the names from the configuration, in order.
func TestSource(t *testing.T) {
	c := Config{File: "/etc/x/focus.cu", Entry: "focus", State: 64, Parameters: map[string]float64{"zoom": 2, "edge": 0.5}}
	s := newSource(&c, []byte("first line\n"))
	for _, want := range []string{
		"#line 1 \"focus.cu\"\nfirst line\n", "struct parameters { float edge, zoom; };", "struct numbers { float none; };", "#define STATE_BYTES 64\n",
		"void(Input, Output, parameters, void *)",
	} {
		if !strings.Contains(s.text, want) {
			t.Errorf("no %q in\n%s", want, s.text)
		}
	}
	if v := c.parameterValues(); v[0] != 0.5 || v[1] != 2 {
		t.Errorf("values %v", v)
	}
	if s.key == Key([]byte("first line\n"), "other") || s.key != Key([]byte("first line\n"), "focus") || EntryOf(c.File) != "focus" {
		t.Error("keys")
	}
	if unsafe.Sizeof(input{}) != 40 || unsafe.Sizeof(output{}) != 24 {
		t.Error("layouts are not those of prelude.cuh")
	}
	long := filepath.Join(t.TempDir(), "long.cu")
	if err := os.WriteFile(long, make([]byte, maxSource+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{"longer than": long, "no such file": long + "x", "is a directory": filepath.Dir(long)} {
		if _, err := ReadSource(path); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestResult(t *testing.T) {
	c := Config{Name: "k", Numbers: []string{"a", "b"}, Labels: []string{"car"}, Bins: 2}
	b := make([]byte, c.resultsSize())
	put := func(at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }
	region := func(i int, score float32, v ...int32) {
		for k, x := range v {
			put(4+i*regionSize+4*k, uint32(x))
		}
		put(4+i*regionSize+20, math.Float32bits(score))
	}
	put(0, 4)
	region(0, 7, 4, 2, 100, 100, 0)
	region(1, 0.5, 3, 1, 1, 1, 9)
	region(2, float32(math.NaN()), -1, -1, 3, 3, -1)
	region(3, 1, 8, 0, 1, 1, 0)
	put(4+maxRegions*regionSize, math.Float32bits(2.5))
	put(4+maxRegions*regionSize+4, math.Float32bits(float32(math.NaN())))
	put(c.binsAt()+4, 77)
	got, err := json.Marshal(c.result(b, grey(t)))
	want := `{"stage":"k","regions":[{"x":0,"y":0,"width":2,"height":2},{"x":3,"y":1,"width":1,"height":1,"label":"9","score":0.5},` +
		`{"x":4,"y":2,"width":4,"height":2,"label":"car","score":1}],"numbers":{"a":2.5},"bins":[0,77]}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s, want\n%s", err, got, want)
	}
}

// Any output of a kernel can be sent, and is within the frame.
func FuzzResult(f *testing.F) {
	c := Config{Name: "k", Numbers: []string{"a"}, Labels: []string{"x"}, Bins: 1}
	f.Add(uint32(3), []byte{1, 0, 0, 0, 255, 255, 255, 127})
	f.Fuzz(func(t *testing.T, n uint32, text []byte) {
		b := make([]byte, c.resultsSize())
		binary.LittleEndian.PutUint32(b, n)
		copy(b[4:], text)
		format := grey(t)
		r := c.result(b, format)
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		for _, x := range r.Regions {
			if x.X < 0 || x.Y < 0 || x.Width < 1 || x.Height < 1 || x.X+x.Width > format.Width || x.Y+x.Height > format.Height || x.Score < 0 || x.Score > 1 {
				t.Errorf("%+v", x)
			}
		}
	})
}

// A damaged entry counts as an entry.
func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"key":"k","what":"x"}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if e := parseEntry("k", text); e == nil || e.Key != "k" {
			t.Errorf("%+v", e)
		}
	})
}

func TestQuarantineOnDisk(t *testing.T) {
	q := NewQuarantine(filepath.Join(t.TempDir(), "a", "b"))
	e := Entry{Kernel: "k", Key: "0123", Frame: 9, What: "it hangs", When: time.Unix(1e9, 0).UTC()}
	if err := q.Put(e); err != nil {
		t.Fatal(err)
	}
	if got := q.Find("0123"); got == nil || *got != e {
		t.Errorf("%+v, want %+v", got, e)
	}
	if err := os.WriteFile(q.Path("0123"), []byte(`{"key":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := q.Find("0123"); got == nil || !strings.Contains(got.What, "damaged") {
		t.Errorf("%+v", got)
	}
	if err := unix.Mkfifo(q.Path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e := q.Find("fifo"); e == nil || !strings.Contains(e.What, "not known") {
		t.Errorf("%+v", e)
	}
	none := NewQuarantine("")
	if err := none.Put(e); err == nil || none.Find("0123") != nil {
		t.Error("without a folder nothing is kept")
	}
}
