// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Path of cufile.json, and the environment variable that names another path (§4.1.8). The document also mentions
// /etc/cufile.JSON (§4.1.1), which no release reads.
const (
	DefaultPath = "/etc/cufile.json"
	PathVar     = "CUFILE_ENV_PATH_JSON"
)

// Settings are the contents of a cufile.json, with the document's defaults (§4.1.8) for missing keys. Sizes are in KiB,
// as in the file and the calls.
type Settings struct {
	LogDir   string // logging.dir; empty: the working folder
	LogLevel string // logging.level: NOTICE, ERROR, WARN, INFO, DEBUG or TRACE, in upper or lower case

	NVTX  bool // profile.nvtx
	Stats int  // profile.cufile_stats, 0 to 3

	MaxDirectIO     uint64   // properties.max_direct_io_size_kb: the largest piece of one read or write
	MaxDeviceCache  uint64   // properties.max_device_cache_size_kb: of bounce buffers
	MaxPinned       uint64   // properties.max_device_pinned_mem_size_kb: of registered buffers
	Poll            bool     // properties.use_poll_mode
	PollMax         uint64   // properties.poll_mode_max_size_kb: the largest transfer that is polled if Poll is set
	AllowCompat     bool     // properties.allow_compat_mode
	RDMAAddresses   []string // properties.rdma_dev_addr_list
	DynamicRouting  bool     // properties.rdma_dynamic_routing
	RoutingOrder    []string // properties.rdma_dynamic_routing_order
	RDMAWrite       bool     // properties.gds_rdma_write_support
	UnalignedWrites bool     // fs.generic.posix_unaligned_writes
	LustreMin       uint64   // fs.lustre.posix_gds_min_kb
	WekaRDMAWrite   bool     // fs.weka.rdma_write_support

	// denylist.drivers, .devices, .mounts and .filesystems
	DenyDrivers, DenyDevices, DenyMounts, DenyFilesystems []string

	// Unknown lists the keys that no release up to 1.20 has, each with its place, such as "cufile.json:3:5:
	// properties.colour".
	Unknown []string
	Unused  []string // keys of the file that compatibility mode does not use
	Path    string   // of the file; empty: none
}

// DefaultSettings returns the settings of a machine without cufile.json. Compatibility mode is allowed: §2.3 says so,
// the schema of §4.1.8 says the opposite, and the released library allows it.
func DefaultSettings() *Settings {
	return &Settings{
		LogLevel: "ERROR", MaxDirectIO: 16384, MaxDeviceCache: 131072, MaxPinned: 33554432, PollMax: 4, AllowCompat: true,
		RoutingOrder: []string{"SYS_MEM"}, RDMAWrite: true,
	}
}

// LoadSettings reads the file named by path. With "" it reads the file named by the environment variable PathVar, or
// else DefaultPath, which need not exist. An error about the content names the place in the file.
func LoadSettings(path string) (*Settings, error) {
	named := path != ""
	if !named {
		path, named = os.LookupEnv(PathVar)
	}
	if path == "" {
		path, named = DefaultPath, false
	}
	b, err := readSmall(path)
	switch {
	case !named && errors.Is(err, fs.ErrNotExist):
		return DefaultSettings(), nil
	case err != nil:
		return nil, fmt.Errorf("%w: correct the path, or unset %s", err, PathVar)
	}
	s, err := ParseSettings(filepath.Base(path), b)
	if err != nil {
		return nil, err
	}
	s.Path = path
	return s, nil
}

// maxSettings is the maximum size of a cufile.json in bytes. NVIDIA's own, with all its comments, has 5,000.
const maxSettings = 1 << 20

func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxSettings:
		return nil, fmt.Errorf("%s has %d bytes: a cufile.json has at most %d", path, info.Size(), maxSettings)
	}
	return os.ReadFile(path)
}

// levels are the values of logging.level. Later releases than the document also have NOTICE.
var levels = []string{"NOTICE", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}

// check refuses values that no release accepts.
func (s *Settings) check(at func(key string) string) error {
	if !slices.Contains(levels, strings.ToUpper(s.LogLevel)) {
		return fmt.Errorf("%s: %q: use one of %s", at("logging.level"), s.LogLevel, strings.Join(levels, ", "))
	}
	if s.Stats < 0 || s.Stats > 3 {
		return fmt.Errorf("%s: %d: must be from 0 to 3", at("profile.cufile_stats"), s.Stats)
	}
	for key, kb := range map[string]uint64{
		"properties.max_direct_io_size_kb": s.MaxDirectIO, "properties.max_device_cache_size_kb": s.MaxDeviceCache,
		"properties.max_device_pinned_mem_size_kb": s.MaxPinned, "properties.poll_mode_max_size_kb": s.PollMax,
		"fs.lustre.posix_gds_min_kb": s.LustreMin,
	} {
		if kb%4 != 0 || kb > maxKB {
			return fmt.Errorf("%s: %d: must be a multiple of 4 (KB), at most %d", at(key), kb, uint64(maxKB))
		}
	}
	return nil
}

// maxKB is the largest size in KiB that settings accept: 2^63 bytes.
const maxKB = 1 << 53
