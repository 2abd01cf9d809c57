// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tegracast/tegracast/fpga"
)

// Errors that callers distinguish.
var (
	ErrNotFound = errors.New("no XDMA registers in any BAR")
	ErrGone     = errors.New("registers read all ones, or another core's: the device has left the bus (link lost, reset or reprogrammed)")
	ErrReset    = errors.New("the core was reset while it was in use: its registers are back in the reset state")
	ErrBusy     = errors.New("channel is busy: its memory must not be reused")
	ErrChannel  = errors.New("no such DMA channel")
	ErrMemory   = errors.New("memory does not fit the transfer")
	ErrLost     = errors.New("no completion in time")
	ErrStream   = errors.New("stream and descriptors are out of step")
	ErrCredits  = errors.New("descriptor credits do not add up")
	ErrStopped  = errors.New("the ring is not running")
	ErrSlot     = errors.New("no such slot, or the device has it")
	ErrUser     = errors.New("no such user interrupt")
)

// Kinds of errors shown by a channel's status register. They can be found in a StatusError with errors.Is.
var (
	ErrAlign      = errors.New("source and destination differ in alignment")
	ErrMagic      = errors.New("the engine fetched data that is not a descriptor")
	ErrLength     = errors.New("a descriptor's length breaks the channel's granularity")
	ErrRead       = errors.New("the engine could not read its source")
	ErrWrite      = errors.New("the engine could not write its destination")
	ErrDescriptor = errors.New("the engine could not fetch a descriptor")
)

// A StatusError holds the error bits of a channel's status register. The channel has stopped.
type StatusError struct {
	Channel   int
	Direction fpga.Direction
	Status    uint32 // as read from offset 0x44
}

// A StatusBit is one error bit of a channel's status register (PG195, channel status, offsets 0x40 and 0x44).
type StatusBit struct {
	Register uint32 // address in the DMA BAR
	Bit      int
	Name     string // as in PG195, with the index for fields of several bits: "read_error[2]"
	Meaning  string
	Kind     error // ErrAlign to ErrDescriptor
}

func (b StatusBit) String() string {
	return fmt.Sprintf("register %#06x bit %d, %s: %s", b.Register, b.Bit, b.Name, b.Meaning)
}

// A field is a run of error bits, each with its own meaning.
type field struct {
	name     string
	kind     error
	first    int
	meanings []string
}

// Errors of requests over PCI Express and over AXI, lowest bit first.
var (
	hostErrors = []string{"unsupported request", "completer abort", "parity error", "poisoned header (EP)", "unexpected completion"}
	cardErrors = []string{"AXI decode error", "AXI slave error", "reserved", "reserved", "reserved"}
)

// errorFields returns the fields of error bits in a channel's status register. An H2C channel reads from the host and
// writes to the card. A C2H channel reads from the card, and its write_error bits are reserved.
func errorFields(dir fpga.Direction) []field {
	read, write := hostErrors, cardErrors
	if dir == fpga.C2H {
		read, write = cardErrors, []string{"reserved", "reserved", "reserved", "reserved", "reserved"}
	}
	return []field{
		{"align_mismatch", ErrAlign, 3, []string{"source and destination differ in alignment"}},
		{"magic_stopped", ErrMagic, 4, []string{"a descriptor without the magic number was fetched"}},
		{"invalid_length", ErrLength, 5, []string{"the length breaks the channel's granularity"}},
		{"read_error", ErrRead, 9, read},
		{"write_error", ErrWrite, 14, write},
		{"descr_error", ErrDescriptor, 19, hostErrors},
	}
}

// Bits returns the error bits that are set, lowest first.
func (e *StatusError) Bits() (list []StatusBit) {
	register := (targetH2C+uint32(e.Direction))<<12 | uint32(e.Channel)<<8 | regStatus
	for _, f := range errorFields(e.Direction) {
		for i, meaning := range f.meanings {
			bit := f.first + i
			if e.Status>>bit&1 == 0 {
				continue
			}
			name := f.name
			if len(f.meanings) > 1 {
				name = fmt.Sprintf("%s[%d]", f.name, i)
			}
			list = append(list, StatusBit{register, bit, name, meaning, f.kind})
		}
	}
	return list
}

func (e *StatusError) Error() string {
	var names []string
	for _, b := range e.Bits() {
		names = append(names, b.String())
	}
	return fmt.Sprintf("%s channel %d stopped, status %#08x: %s", e.Direction, e.Channel, e.Status, strings.Join(names, "; "))
}

// Is reports whether any of the bits is of the kind target.
func (e *StatusError) Is(target error) bool {
	for _, b := range e.Bits() {
		if b.Kind == target {
			return true
		}
	}
	return false
}
