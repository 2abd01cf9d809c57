// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
)

// statusLines covers the codes (§3.1.3) that can be provoked, each by one call.
func statusLines() []line {
	list := []line{
		{"002.3.errno", "errors of transfers are the kernel's errno", func(t *testing.T, s *site) {
			_, base := s.memory(t, 4096)
			_, err := s.handle(t, s.open(t, nil), os.O_RDONLY).Write(base, 4096, 0, 0)
			if e := (*Error)(nil); !errors.As(err, &e) || e.Status != Success || !errors.Is(err, s.unwritable()) {
				t.Errorf("%v", err)
			}
		}},
	}
	for status, provoke := range map[Status]func(t *testing.T, s *site) error{
		Success:              func(t *testing.T, s *site) error { return s.open(t, nil).Close() },
		DriverNotInitialized: func(t *testing.T, s *site) error { return s.closed(t).Close() },
		DriverInvalidProps: func(t *testing.T, s *site) error {
			path := filepath.Join(t.TempDir(), "cufile.json")
			t.Setenv(PathVar, path)
			_, err := Open(s.config)
			return errors.Join(os.WriteFile(path, nil, 0o600), err)
		},
		DriverUnsupportedLimit: func(t *testing.T, s *site) error { return s.open(t, nil).SetMaxCacheSize(3) },
		DriverClosing: func(t *testing.T, s *site) error {
			d := s.open(t, nil)
			want(t, d.use("a transfer that runs on"), Success)
			closed := make(chan error)
			go func() { closed <- d.Close() }()
			for !d.closing.Load() {
			}
			_, err := d.Properties()
			d.done()
			want(t, <-closed, Success)
			return err
		},
		InvalidMappingSize: func(t *testing.T, s *site) error {
			_, base := s.memory(t, 128<<10)
			return s.open(t, func(set *Settings) { set.MaxPinned = 64 }).RegisterBuffer(base, 128<<10, 0)
		},
		InvalidMappingRange: func(t *testing.T, s *site) error {
			d, base := s.registered(t, nil)
			_, err := s.handle(t, d, os.O_RDWR).Read(base, 1<<20, 0, 1)
			return err
		},
		InvalidFileType: func(t *testing.T, s *site) error {
			f, err := os.Open(s.folder)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			_, err = s.open(t, nil).RegisterFile(f)
			return err
		},
		InvalidFileOpenFlag: func(t *testing.T, s *site) error {
			_, err := s.open(t, nil).RegisterFile(s.file(t, os.O_RDWR|unix.O_APPEND))
			return err
		},
		InvalidValue: func(t *testing.T, s *site) error { return s.open(t, nil).RegisterBuffer(0, 1, 0) },
		MemoryAlreadyRegistered: func(t *testing.T, s *site) error {
			d, base := s.registered(t, nil)
			return d.RegisterBuffer(base, 4096, 0)
		},
		MemoryNotRegistered: func(t *testing.T, s *site) error { return s.open(t, nil).DeregisterBuffer(4096) },
		HandleNotRegistered: func(t *testing.T, s *site) error {
			h := s.handle(t, s.open(t, nil), os.O_RDWR)
			return errors.Join(h.Deregister(), h.Deregister())
		},
		NewFDFailed: noDescriptor,
		HandleAlreadyRegistered: func(t *testing.T, s *site) error {
			d := s.open(t, nil)
			_, err := d.RegisterFile(s.handle(t, d, os.O_RDWR).caller)
			return err
		},
	} {
		list = append(list, line{fmt.Sprintf("002.3.%d", status), status.Error(), func(t *testing.T, s *site) {
			if status == NewFDFailed && s.released { // in this case it cannot determine the file system, either
				want(t, provoke(t, s), HandleNotRegistered)
				return
			}
			want(t, provoke(t, s), status)
		}})
	}
	return list
}

// settingsKeys lists the keys of cufile.json in the order of the checklist, each with its default and another value.
var settingsKeys = []struct{ key, is, other string }{
	{"logging.dir", `""`, `"/var/log"`},
	{"logging.level", `"ERROR"`, `"TRACE"`},
	{"profile.nvtx", `false`, `true`},
	{"profile.cufile_stats", `0`, `3`},
	{"properties.max_direct_io_size_kb", `16384`, `64`},
	{"properties.max_device_cache_size_kb", `131072`, `4`},
	{"properties.max_device_pinned_mem_size_kb", `33554432`, `8`},
	{"properties.use_poll_mode", `false`, `true`},
	{"properties.poll_mode_max_size_kb", `4`, `16`},
	{"properties.allow_compat_mode", `true`, `false`},
	{"properties.rdma_dev_addr_list", `null`, `["10.0.1.0"]`},
	{"properties.rdma_dynamic_routing", `false`, `true`},
	{"properties.rdma_dynamic_routing_order", `["SYS_MEM"]`, `["GPU_MEM"]`},
	{"properties.GPUDirect Storage_rdma_write_support", `true`, `false`},
	{"fs.generic.posix_unaligned_writes", `false`, `true`},
	{"fs.lustre.posix_gds_min_kb", `0`, `8`},
	{"fs.weka.rdma_write_support", `false`, `true`},
	{"denylist.drivers", `null`, `["a"]`},
	{"denylist.devices", `null`, `["b"]`},
	{"denylist.mounts", `null`, `["/c"]`},
	{"denylist.filesystems", `null`, `["lustre"]`},
}

// settingsLines covers cufile.json (§2.3, §4.1.8).
func settingsLines() []line {
	list := []line{
		{"002.6.23", "the file is /etc/cufile.json, and need not be there", func(t *testing.T, _ *site) {
			t.Setenv(PathVar, "")
			if s, err := LoadSettings(""); err != nil || s.Path != "" && s.Path != "/etc/cufile.json" {
				t.Errorf("%+v, %v", s, err)
			}
		}},
		{"002.6.24", "CUFILE_ENV_PATH_JSON names another one", func(t *testing.T, _ *site) {
			path := filepath.Join(t.TempDir(), "mine.json")
			t.Setenv("CUFILE_ENV_PATH_JSON", path)
			if err := os.WriteFile(path, []byte(`{}`), 0o600); err != nil {
				t.Fatal(err)
			}
			if s, err := LoadSettings(""); err != nil || s.Path != path {
				t.Errorf("%+v, %v", s, err)
			}
		}},
		{"002.6.25", "comments are allowed", func(t *testing.T, _ *site) {
			_, err := ParseSettings("f", []byte("{ // one\n /* two */ \"profile\": {}, }"))
			want(t, err, Success)
		}},
		{"002.6.26", "the calls override the file", func(t *testing.T, s *site) {
			d := s.open(t, func(set *Settings) { set.MaxDirectIO = 2048 })
			want(t, d.SetMaxDirectIOSize(4096), Success)
			p, err := d.Properties()
			want(t, err, Success)
			s.tells(t, p, p.MaxDirectIO == 4096)
		}},
		{"002.6.27", "sizes are multiples of 4 KiB", func(t *testing.T, _ *site) {
			for _, k := range settingsKeys {
				_, err := ParseSettings("f", nested(k.key, "5"))
				if strings.HasSuffix(k.key, "_kb") != (err != nil && strings.Contains(err.Error(), "multiple of 4")) {
					t.Errorf("%s: %v", k.key, err)
				}
			}
		}},
	}
	for i, k := range settingsKeys {
		list = append(list, line{fmt.Sprintf("002.6.%d", i+1), k.key, func(t *testing.T, _ *site) {
			for text, value := range map[string]string{`{}`: k.is, string(nested(k.key, k.other)): k.other} {
				s, err := ParseSettings("f", []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				same, err := ParseSettings("f", nested(k.key, value))
				if err == nil {
					s.Unused, same.Unused = nil, nil // names, not values
				}
				if err != nil || !reflect.DeepEqual(s, same) || len(s.Unknown) > 0 {
					t.Errorf("%s is %+v, want %s: %v", text, s, value, err)
				}
			}
			a, _ := ParseSettings("f", []byte(`{}`))
			b, _ := ParseSettings("f", nested(k.key, k.other))
			if b.Unused = nil; reflect.DeepEqual(a, b) {
				t.Errorf("%s has no effect", k.key)
			}
		}})
	}
	return list
}

// nested returns a cufile.json with one key.
func nested(key, value string) []byte {
	for parts := strings.Split(key, "."); len(parts) > 0; parts = parts[:len(parts)-1] {
		value = fmt.Sprintf("{%q: %s}", parts[len(parts)-1], value)
	}
	return []byte(value)
}

// packageComment returns doc.go. The tests for a GPU run in the root of the tree.
func packageComment(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		text, err = os.ReadFile("cudahost/cufile/doc.go")
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sample runs the sample program, and makes it fail at each step that can fail.
func sample(t *testing.T, s *site) {
	if s.flags&unix.O_DIRECT == 0 {
		return // it opens its file with O_DIRECT
	}
	memory, err := cudahost.Open(cudahost.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { want(t, memory.Close(), Success) }()
	run := func(c Config, path string) error {
		before := descriptors(t)
		err := helloWorld(io.Discard, c, memory, path)
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors, and %d before: %v", after, before, err)
		}
		return err
	}
	c := s.config
	c.Settings = DefaultSettings()
	path := filepath.Join(s.folder, "gds_test")
	want(t, run(c, path), Success)
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(b, slices.Concat(make([]byte, 0x2000), bytes.Repeat([]byte{0xab}, 1<<24))) {
		t.Errorf("%d bytes, or others than those written: %v", len(b), err)
	}
	if err := run(c, s.folder); !errors.Is(err, unix.EISDIR) {
		t.Errorf("no file: %v", err)
	}
	c.Settings.AllowCompat = false
	want(t, run(c, path), DriverNotInitialized)
	c.Settings = DefaultSettings()
	c.Settings.MaxPinned = 4
	if s.released {
		want(t, run(c, path), DriverUnsupportedLimit) // it does not accept a limit below 64 KiB
	} else {
		want(t, run(c, path), InvalidMappingSize)
	}
	_ = os.Remove(path)
}

// contradictionLines covers the document's contradictions. The package's comment says for each what the released library
// does, and what this package does.
func contradictionLines() []line {
	list := []line{{"002.7.1", "the sample program", sample}}
	for i := 2; i <= 13; i++ {
		number := fmt.Sprintf("002.7.%d", i)
		list = append(list, line{number, "the package's comment decides the contradiction", func(t *testing.T, _ *site) {
			entry := regexp.MustCompile(`(?m)^//   - ` + regexp.QuoteMeta(number) + `: .+`)
			if n := len(entry.FindAll(packageComment(t), -1)); n != 1 {
				t.Errorf("the package's comment has %d entries for %s, and must have one", n, number)
			}
		}})
	}
	return list
}
