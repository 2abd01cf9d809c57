// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/json"

	"golang.org/x/sys/unix"
)

// The decoded requests. For a body of the wrong size, an argsz that is too small, an unknown flag or an unexpected
// descriptor the functions return EINVAL.

// versionRequest checks the body of VERSION: major u16, minor u16, then optionally JSON and a NUL. Every minor version
// includes 0.0. For another major version it returns ENOTSUP.
func (m *message) versionRequest() unix.Errno {
	if len(m.body) < 4 || len(m.files) > 0 {
		return unix.EINVAL
	}
	if le.Uint16(m.body) != 0 {
		return unix.ENOTSUP
	}
	text, data := m.body[4:], struct{ Capabilities map[string]any }{}
	if len(text) > 0 && (bytes.IndexByte(text, 0) != len(text)-1 || json.Unmarshal(text[:len(text)-1], &data) != nil) {
		return unix.EINVAL
	}
	return 0
}

// Flags of a mapping.
const (
	mapReadable = 1
	mapWritable = 2
)

// mapRequest is the body of DMA_MAP: argsz u32, flags u32, offset u64, address u64, size u64. The file, if any, comes
// as a descriptor.
type mapRequest struct {
	flags              uint32
	offset, addr, size uint64
}

func (m *message) mapRequest() (r mapRequest, errno unix.Errno) {
	if len(m.body) != 32 || le.Uint32(m.body) < 32 || len(m.files) > 1 {
		return r, unix.EINVAL
	}
	r = mapRequest{le.Uint32(m.body[4:]), le.Uint64(m.body[8:]), le.Uint64(m.body[16:]), le.Uint64(m.body[24:])}
	if r.flags&^(mapReadable|mapWritable) != 0 {
		return r, unix.EINVAL
	}
	return r, 0
}

const unmapAll = 2 // VFIO_DMA_UNMAP_FLAG_ALL of linux/vfio.h

// unmapRequest is the body of DMA_UNMAP: argsz u32, flags u32, address u64, size u64.
type unmapRequest struct {
	all        bool
	addr, size uint64
}

func (m *message) unmapRequest() (r unmapRequest, errno unix.Errno) {
	if len(m.body) != 24 || le.Uint32(m.body) < 24 || len(m.files) > 0 {
		return r, unix.EINVAL
	}
	flags := le.Uint32(m.body[4:])
	r = unmapRequest{flags == unmapAll, le.Uint64(m.body[8:]), le.Uint64(m.body[16:])}
	if flags&^unmapAll != 0 || r.all && (r.addr != 0 || r.size != 0) {
		return r, unix.EINVAL
	}
	return r, 0
}

// infoRequest decodes one of the three queries: argsz u32, flags u32, and, except in GET_INFO, index u32. The rest of
// its size bytes is for the answer.
func (m *message) infoRequest(size int) (index uint32, errno unix.Errno) {
	if len(m.body) != size || le.Uint32(m.body) < uint32(size) || len(m.files) > 0 {
		return 0, unix.EINVAL
	}
	return le.Uint32(m.body[8:]), 0
}

// Flags of SET_IRQS.
const (
	irqNone    = 1 << 0 // no data
	irqBool    = 1 << 1
	irqEventfd = 1 << 2
	irqData    = irqNone | irqBool | irqEventfd
	irqMask    = 1 << 3
	irqUnmask  = 1 << 4
	irqTrigger = 1 << 5
	irqActions = irqMask | irqUnmask | irqTrigger
)

// irqRequest is the body of SET_IRQS: argsz u32, flags u32, index u32, start u32, count u32. With irqBool a byte per
// vector follows; with irqEventfd there are as many descriptors, or none.
type irqRequest struct {
	data, action uint32
	index        uint32
	start, count int
	chosen       []byte // with irqBool: one byte per interrupt, not 0 if it is chosen
}

func (m *message) irqRequest() (r irqRequest, errno unix.Errno) {
	const size = 20
	if len(m.body) < size || le.Uint32(m.body) < uint32(len(m.body)) {
		return r, unix.EINVAL
	}
	flags, start, count := le.Uint32(m.body[4:]), le.Uint32(m.body[12:]), le.Uint32(m.body[16:])
	r = irqRequest{data: flags & irqData, action: flags & irqActions, index: le.Uint32(m.body[8:]), chosen: m.body[size:]}
	if flags&^(irqData|irqActions) != 0 || start > maxVectors || count > maxVectors {
		return r, unix.EINVAL
	}
	r.start, r.count = int(start), int(count)
	data := 0
	switch r.data {
	case irqNone, irqEventfd:
	case irqBool:
		data = r.count
	default:
		return r, unix.EINVAL
	}
	if len(r.chosen) != data || len(m.files) > 0 && (r.data != irqEventfd || len(m.files) != r.count) {
		return r, unix.EINVAL
	}
	switch r.action {
	case irqMask, irqUnmask, irqTrigger:
		return r, 0
	}
	return r, unix.EINVAL
}

// accessRequest is the body of REGION_READ or REGION_WRITE: offset u64, region u32, count u32, and, for a write, the
// data.
type accessRequest struct {
	offset uint64
	region uint32
	count  int
	data   []byte
}

func (m *message) accessRequest(write bool) (r accessRequest, errno unix.Errno) {
	const size = 16
	if len(m.body) < size || len(m.files) > 0 {
		return r, unix.EINVAL
	}
	count := le.Uint32(m.body[12:])
	r = accessRequest{le.Uint64(m.body), le.Uint32(m.body[8:]), 0, m.body[size:]}
	if count == 0 || count > maxTransfer {
		return r, unix.EINVAL
	}
	r.count = int(count)
	if write && len(r.data) != r.count || !write && len(r.data) != 0 {
		return r, unix.EINVAL
	}
	return r, 0
}
