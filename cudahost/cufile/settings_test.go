// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// document is the schema of §4.1.8 with every value changed, and with the keys of §2.3 and of later releases.
const document = `{
  "logging": {
    // log directory
    "dir": "/var/log/gds",
    "level": "TRACE"
  },
  "profile": { "nvtx": true, "cufile_stats": 3 },
  "properties": {
    /* in KB */
    "max_direct_io_size_kb" : 1024,
    "max_device_cache_size_kb" : 65536,
    "max_device_pinned_mem_size_kb" : 4096,
    "use_poll_mode" : true,
    "poll_mode_max_size_kb": 8,
    "allow_compat_mode": false,
    "rdma_dev_addr_list": [ "10.0.1.0", "10.0.2.0" ],
    "rdma_dynamic_routing": true,
    "rdma_dynamic_routing_order": [ "GPU_MEM", "SYS_MEM", ],
    "gds_rdma_write_support": false,
    "force_compat_mode": true,
  },
  "fs": {
    "generic": { "posix_unaligned_writes" : true },
    "lustre": { "posix_gds_min_kb" : 12 },
    "weka": { "rdma_write_support": true }
  },
  "denylist": { "drivers": [ "a" ], "devices": [ "/dev/b" ], "mounts": [ "/c" ], "filesystems": [ "lustre", "wekafs" ] },
  "execution": { "max_io_threads": 8 },
}`

func TestEveryKeyIsRead(t *testing.T) {
	got, err := ParseSettings("cufile.json", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	want := &Settings{
		LogDir: "/var/log/gds", LogLevel: "TRACE", NVTX: true, Stats: 3, MaxDirectIO: 1024, MaxDeviceCache: 65536, MaxPinned: 4096,
		Poll: true, PollMax: 8, RDMAAddresses: []string{"10.0.1.0", "10.0.2.0"}, DynamicRouting: true,
		RoutingOrder: []string{"GPU_MEM", "SYS_MEM"}, UnalignedWrites: true, LustreMin: 12, WekaRDMAWrite: true,
		DenyDrivers: []string{"a"}, DenyDevices: []string{"/dev/b"}, DenyMounts: []string{"/c"},
		DenyFilesystems: []string{"lustre", "wekafs"},
	}
	want.Unused = strings.Fields("logging.dir logging.level profile.nvtx profile.cufile_stats properties.rdma_dev_addr_list " +
		"properties.rdma_dynamic_routing properties.rdma_dynamic_routing_order properties.gds_rdma_write_support properties.force_compat_mode " +
		"fs.lustre.posix_gds_min_kb fs.weka.rdma_write_support denylist.drivers denylist.devices denylist.mounts denylist.filesystems execution")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	fields, defaults := reflect.ValueOf(*got), reflect.ValueOf(*DefaultSettings())
	for i := range fields.NumField() { // no key may have its default
		name := fields.Type().Field(i).Name
		same := reflect.DeepEqual(fields.Field(i).Interface(), defaults.Field(i).Interface())
		if same && name != "Unknown" && name != "Path" {
			t.Errorf("%s is the default in the test's file", name)
		}
	}
	got, err = ParseSettings("cufile.json", []byte(`{"blacklist": {"mounts": ["/x"]}, "properties": {"poll_mode": true, "poll_max_size_kb": 16}}`))
	if err != nil || got.DenyMounts[0] != "/x" || !got.Poll || got.PollMax != 16 {
		t.Errorf("the document's other names: %+v: %v", got, err)
	}
}

func TestUnknownKeysAreReported(t *testing.T) {
	got, err := ParseSettings("cufile.json", []byte("{\n  \"properties\": { \"colour\": 3 },\n  \"sound\": {}\n}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"cufile.json:2:19: properties.colour", "cufile.json:3:3: sound"}
	if !reflect.DeepEqual(got.Unknown, want) {
		t.Errorf("%q", got.Unknown)
	}
}

// TestKeysWithoutEffectAreLogged checks that one line names the keys that compatibility mode does not use.
func TestKeysWithoutEffectAreLogged(t *testing.T) {
	for text, want := range map[string]string{
		`{"denylist": {"mounts": ["/x"]}, "profile": {"nvtx": true}, "properties": {"allow_compat_mode": true}}`: `keys="denylist.mounts profile.nvtx"`,
		`{"properties": {"max_direct_io_size_kb": 1024}}`:                                                        "",
	} {
		s, err := ParseSettings("cufile.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		d, err := Open(Config{Settings: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if got := log.String(); strings.Count(got, "have no effect") != min(1, len(want)) || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestBadSettingsAreRefusedWithTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "cufile.json: hujson: line 1, column 1",
		`[]`:                               "cufile.json:1:1: the file must be an object",
		`{"fs": 3}`:                        "cufile.json:1:8: fs must be an object",
		`{"logging": {"level": "LOUD"}}`:   `cufile.json:1:23: logging.level: "LOUD": use one of NOTICE`,
		`{"profile": {"cufile_stats": 4}}`: "cufile.json:1:30: profile.cufile_stats: 4: must be from 0 to 3",
		`{"properties": {"max_direct_io_size_kb": 1023}}`: "cufile.json:1:42: properties.max_direct_io_size_kb: 1023: must be a multiple of 4",
		`{"properties": {"use_poll_mode": "yes"}}`:        "properties.use_poll_mode: must be true or false",
		`{"properties": {"poll_mode_max_size_kb": -4}}`:   "properties.poll_mode_max_size_kb: must be a size in KB",
		`{"denylist": {"mounts": "/x"}}`:                  "denylist.mounts: must be a list of texts",
		`{"profile": {}, "profile": {}}`:                  "cufile.json:1:17: profile is given twice",
	} {
		_, err := ParseSettings("cufile.json", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestSettingsComeFromTheEnvironmentsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.json")
	t.Setenv(PathVar, path)
	if _, err := LoadSettings(""); err == nil || !strings.Contains(err.Error(), PathVar) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"properties": {"poll_mode_max_size_kb": 64}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := LoadSettings(""); err != nil || s.PollMax != 64 || s.Path != path {
		t.Errorf("%+v: %v", s, err)
	}
	t.Setenv(PathVar, "")
	if s, err := LoadSettings(""); err != nil || s.Path != "" && s.Path != DefaultPath {
		t.Errorf("%+v: %v", s, err)
	}
	if _, err := LoadSettings(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte(document))
	f.Add([]byte(`{"fs": {"lustre": {"posix_gds_min_kb": 9007199254740992}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseSettings("f", b); err == nil && s.check(func(key string) string { return key }) != nil {
			t.Errorf("took %q", b)
		}
	})
}
