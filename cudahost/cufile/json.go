// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// keys maps the keys of cufile.json to the fields. If the document has two names for a key, both are included.
func (s *Settings) keys() map[string]any {
	return map[string]any{
		"logging.dir": &s.LogDir, "logging.level": &s.LogLevel,
		"profile.nvtx": &s.NVTX, "profile.cufile_stats": &s.Stats,
		"properties.max_direct_io_size_kb": &s.MaxDirectIO, "properties.max_device_cache_size_kb": &s.MaxDeviceCache,
		"properties.max_device_pinned_mem_size_kb": &s.MaxPinned,
		"properties.use_poll_mode":                 &s.Poll, "properties.poll_mode": &s.Poll,
		"properties.poll_mode_max_size_kb": &s.PollMax, "properties.poll_max_size_kb": &s.PollMax,
		"properties.allow_compat_mode": &s.AllowCompat, "properties.rdma_dev_addr_list": &s.RDMAAddresses,
		"properties.rdma_dynamic_routing": &s.DynamicRouting, "properties.rdma_dynamic_routing_order": &s.RoutingOrder,
		"properties.gds_rdma_write_support": &s.RDMAWrite, "properties.GPUDirect Storage_rdma_write_support": &s.RDMAWrite,
		"fs.generic.posix_unaligned_writes": &s.UnalignedWrites, "fs.lustre.posix_gds_min_kb": &s.LustreMin,
		"fs.weka.rdma_write_support": &s.WekaRDMAWrite,
		"denylist.drivers":           &s.DenyDrivers, "denylist.devices": &s.DenyDevices, "denylist.mounts": &s.DenyMounts,
		"denylist.filesystems": &s.DenyFilesystems,
		"blacklist.drivers":    &s.DenyDrivers, "blacklist.devices": &s.DenyDevices, "blacklist.mounts": &s.DenyMounts,
		"blacklist.filesystems": &s.DenyFilesystems,
	}
}

// later lists groups and keys of releases up to 1.20 that the document does not have and compatibility mode does not use.
// They are skipped.
var later = map[string]bool{
	"logging.max_file_size_mb": true, "execution": true, "block": true, "miscellaneous": true,
	"properties.per_buffer_cache_size_kb": true, "properties.gpu_bounce_buffer_slab_config": true,
	"properties.gpu_bounce_buffer_slab_size_kb": true, "properties.gpu_bounce_buffer_slab_count": true,
	"properties.posix_pool_slab_size_kb": true, "properties.posix_pool_slab_count": true, "properties.use_pci_p2pdma": true,
	"properties.io_batchsize": true, "properties.io_priority": true, "properties.rdma_load_balancing_policy": true,
	"properties.rdma_dc_key": true, "properties.rdma_access_mask": true, "properties.rdma_transport_type": true,
	"properties.allow_rdma_token_reset": true, "properties.force_compat_mode": true, "properties.vanilla_posix_io_mode": true,
	"properties.gds_fallback_io": true, "properties.compat_odirect_unaligned_read_split": true,
	"properties.compat_odirect_unaligned_read_split_min_size_kb": true,
	"fs.beegfs": true, "fs.nfs": true, "fs.gpfs": true, "fs.lustre.rdma_dev_addr_list": true, "fs.lustre.mount_table": true,
	"fs.weka.rdma_dev_addr_list": true, "fs.weka.mount_table": true,
}

// unused lists the beginnings of keys of the document that compatibility mode does not use.
var unused = []string{
	"logging.", "profile.", "denylist.", "blacklist.",
	"properties.rdma_", "properties.gds_rdma_", "properties.GPUDirect Storage_rdma_", "fs.lustre.", "fs.weka.",
}

// ParseSettings parses a cufile.json. Errors name the place by name, line and column. Comments and trailing commas are
// allowed.
func ParseSettings(name string, b []byte) (*Settings, error) {
	root, err := hujson.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r := &settingsReader{name: name, text: b, out: DefaultSettings(), at: map[string]int{}}
	r.fields = r.out.keys()
	if err := r.object("", &root); err != nil {
		return nil, err
	}
	if err := r.out.check(r.where); err != nil {
		return nil, err
	}
	return r.out, nil
}

// settingsReader walks a cufile.json.
type settingsReader struct {
	name   string
	text   []byte
	out    *Settings
	fields map[string]any
	at     map[string]int // offsets of the values read
}

// place returns an offset as name:line:column.
func (r *settingsReader) place(offset int) string {
	before := r.text[:offset]
	line := bytes.Count(before, []byte("\n"))
	return fmt.Sprintf("%s:%d:%d", r.name, line+1, offset-bytes.LastIndexByte(before, '\n'))
}

// where returns the place and the name of a key's value, or only the name if the key is not in the file.
func (r *settingsReader) where(key string) string {
	if offset, ok := r.at[key]; ok {
		return r.place(offset) + ": " + key
	}
	return r.name + ": " + key
}

// object reads the members of an object whose keys begin with prefix.
func (r *settingsReader) object(prefix string, v *hujson.Value) error {
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return fmt.Errorf("%s: %s must be an object, {…}", r.place(v.StartOffset), named(prefix))
	}
	seen := map[string]bool{}
	for i := range o.Members {
		m := &o.Members[i]
		word := m.Name.Value.(hujson.Literal).String()
		key := word
		if prefix != "" {
			key = prefix + "." + word
		}
		if seen[word] {
			return fmt.Errorf("%s: %s is given twice", r.place(m.Name.StartOffset), key)
		}
		seen[word] = true
		if err := r.member(key, &m.Name, &m.Value); err != nil {
			return err
		}
	}
	return nil
}

func named(prefix string) string {
	if prefix == "" {
		return "the file"
	}
	return prefix
}

// groups lists the keys whose values are objects.
var groups = map[string]bool{
	"logging": true, "profile": true, "properties": true, "fs": true, "fs.generic": true, "fs.lustre": true, "fs.weka": true,
	"denylist": true, "blacklist": true,
}

func (r *settingsReader) member(key string, name, v *hujson.Value) error {
	field, known := r.fields[key]
	switch {
	case groups[key]:
		return r.object(key, v)
	case !known && later[key]:
		r.out.Unused = append(r.out.Unused, key)
		return nil
	case !known:
		r.out.Unknown = append(r.out.Unknown, r.place(name.StartOffset)+": "+key)
		return nil
	}
	if slices.ContainsFunc(unused, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
		r.out.Unused = append(r.out.Unused, key)
	}
	r.at[key] = v.StartOffset
	value := v.Clone()
	value.Standardize()
	if err := json.Unmarshal(bytes.TrimSpace(value.Pack()), field); err != nil {
		return fmt.Errorf("%s: must be %s", r.where(key), wanted(field))
	}
	return nil
}

// wanted describes the values of a field.
func wanted(field any) string {
	switch field.(type) {
	case *bool:
		return "true or false"
	case *string:
		return "a text"
	case *[]string:
		return "a list of texts"
	case *int:
		return "a number"
	}
	return "a size in KB"
}
