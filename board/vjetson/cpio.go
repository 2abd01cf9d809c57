// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"fmt"
	"io"
	"math"
	"path"

	"github.com/u-root/mkuimage/cpio"
)

// archive writes an archive in the newc format, which the kernel unpacks as its initramfs (Linux
// Documentation/driver-api/early-userspace/buffer-format.rst). Everything belongs to root. close returns the first error.
type archive struct {
	records cpio.RecordWriter
	err     error
}

func newArchive(w io.Writer) *archive { return &archive{records: cpio.Newc.Writer(w)} }

// add adds a record, after the folders above it, which the kernel does not create itself.
func (a *archive) add(r cpio.Record) {
	if name := cpio.Normalize(r.Name); path.Dir(name) != "." {
		a.add(cpio.Directory(path.Dir(name), 0o755))
	}
	if a.err == nil && r.FileSize > math.MaxUint32 {
		a.err = fmt.Errorf("vjetson: %s: %d bytes are too many for an initramfs", r.Name, r.FileSize)
	}
	if a.err == nil {
		a.err = a.records.WriteRecord(r)
	}
}

// close writes the trailer or, if an earlier write has failed, only returns that error.
func (a *archive) close() error {
	if a.err != nil {
		return fmt.Errorf("vjetson: initramfs: %w", a.err)
	}
	return cpio.WriteTrailer(a.records)
}
