// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// tailPages is the number of pages for what follows a frame's whole pages: the rest of its pixels, its note, and
// indexes.
const tailPages = 2 + (maxNote+1024)/page + 1

// A job writes one frame. Its memory is outside the Go heap, so its addresses do not change.
type job struct {
	memory     []byte // head, then tail, and room for a packed frame
	head, tail []byte
	packed     []byte           // room for a packed frame; empty if frames are not packed
	device     *cudahost.Buffer // memory that contains packed, if the GPU packs; otherwise nil
	pixels     []byte           // pixels to be written: packed, or the frame's memory
	whole      int              // bytes of pixels that are written between head and tail
	frame      *pipeline.Frame
	segment    *segment
	begin, end int64 // offsets in the file; end is exclusive
	batch      *cufile.Batch
}

func newJob(s *Sink) (*job, error) {
	size, packed := (1+tailPages)*page, 0
	if s.words != nil && s.packer == nil {
		packed = s.format.Size()
	}
	m, err := unix.Mmap(-1, 0, size+packed, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	j := &job{memory: m, packed: m[size:]}
	if s.packer != nil {
		if j.device, err = s.packer.Memory(s.format.Size()); err != nil {
			return nil, errors.Join(err, j.close())
		}
		j.packed = j.device.Bytes()
	}
	return j, nil
}

func (j *job) close() (err error) {
	if j.device != nil {
		err = j.device.Close()
	}
	return errors.Join(err, os.NewSyscallError("munmap", unix.Munmap(j.memory)))
}

// address returns the address of b, which is not on a stack.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// errTail means that a frame's head or tail did not fit: newJob has allocated too few pages.
var errTail = errors.New("record: a frame's head and tail are longer than their pages")

// layOut packs the frame if the recording is packed, reserves disk space, and lays out the frame's chunk.
func (j *job) layOut(s *Sink, g *segment, f *pipeline.Frame, at time.Time, lost uint64) (err error) {
	size := s.format.Size()
	if err := j.pack(s, f); err != nil {
		return err
	}
	text, left := note(f, lost)
	if left != nil {
		s.log.Warn("recording without results", "reason", left)
	}
	if err := s.reserve(g, int64(size)+(1+tailPages)*page); err != nil {
		return err
	}
	m := mcap.Message{Channel: imageChannel, Sequence: uint32(f.Sequence), Log: uint64(nano(at)), Publish: uint64(nano(at))}
	small := []mcap.Part{{Message: m, Data: text}}
	small[0].Channel = noteChannel
	prefix := appendImage(nil, s.format, at, s.config.Source, size)
	j.frame, j.segment, j.begin = f, g, int64(g.writer.Offset)
	j.head, j.tail, j.whole, err = g.writer.Frame(j.memory[:0:page], j.memory[page:page:(1+tailPages)*page], page, m, prefix, j.pixels, small)
	if err == nil && (address(j.head) != address(j.memory) || address(j.tail) != address(j.memory[page:])) {
		err = errTail
	}
	j.end = int64(g.writer.Offset)
	return err
}

// write submits the writes of the chunk's pages; j.batch reports when they have ended.
func (j *job) write(s *Sink, g *segment) (err error) {
	at, base := j.begin, address(j.memory)
	ops := []cufile.Op{{File: g.file, Write: true, Base: base, Size: len(j.head), FileOffset: at}}
	at += int64(len(j.head))
	if j.whole > 0 {
		ops = append(ops, cufile.Op{File: g.file, Write: true, Base: address(j.pixels), Size: j.whole, FileOffset: at})
		at += int64(j.whole)
	}
	ops = append(ops, cufile.Op{File: g.file, Write: true, Base: base + page, Size: len(j.tail), FileOffset: at})
	j.batch, err = s.config.Driver.Submit(ops)
	return err
}

// wait waits until the chunk is written. It returns the error of a write, or errShort.
func (j *job) wait() error {
	if err := j.batch.Wait(context.Background()); err != nil {
		return err
	}
	written := int64(0)
	for _, e := range j.batch.Status() {
		if e.Err != nil {
			return e.Err
		}
		written += int64(e.N)
	}
	if written < j.end-j.begin {
		return errShort
	}
	return nil
}

// errShort means that the kernel wrote less than requested without reporting an error.
var errShort = errors.New("record: a write was incomplete")
