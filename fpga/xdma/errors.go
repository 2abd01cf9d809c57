package xdma

import (
	"errors"
	"fmt"
	"strings"

	"tegracast/fpga"
)

// Errors that callers tell apart.
var (
	ErrNotFound = errors.New("no XDMA registers in any BAR")
	ErrGone     = errors.New("registers read all ones: the device has left the bus (link lost, reset or reprogrammed)")
	ErrBusy     = errors.New("channel stays busy: its memory must not be reused")
	ErrChannel  = errors.New("no such DMA channel")
	ErrMemory   = errors.New("memory does not fit the transfer")
	ErrLost     = errors.New("no completion in time")
	ErrStream   = errors.New("stream and descriptors are out of step")
)

// A StatusError says which error bits a channel's status register showed.
type StatusError struct {
	Channel   int
	Direction fpga.Direction
	Status    uint32 // as read from offset 0x44
}

// errorBits are the meanings of the status bits (PG195, channel status).
var errorBits = [...]struct {
	bit  uint32
	name string
}{
	{bitAlignMismatch, "align_mismatch: source and destination differ in alignment"},
	{bitMagicStopped, "magic_stopped: a descriptor without the magic number was fetched"},
	{bitInvalidLength, "invalid_length: the length breaks the channel's granularity"},
	{1 << 9, "read_error[0]: unsupported request"},
	{1 << 10, "read_error[1]: completer abort, or slave error"},
	{1 << 11, "read_error[2]: parity, or decode error"},
	{1 << 12, "read_error[3]: header error poison"},
	{1 << 13, "read_error[4]: completion time-out"},
	{1 << 14, "write_error[0]: decode error"},
	{1 << 15, "write_error[1]: slave error"},
	{0x7 << 16, "write_error[4:2]"},
	{1 << 19, "desc_error[0]: unsupported request"},
	{1 << 20, "desc_error[1]: completer abort"},
	{1 << 21, "desc_error[2]: parity error"},
	{1 << 22, "desc_error[3]: header error poison"},
	{1 << 23, "desc_error[4]: unexpected completion"},
}

func (e *StatusError) Error() string {
	var names []string
	for _, b := range errorBits {
		if e.Status&b.bit != 0 {
			names = append(names, b.name)
		}
	}
	return fmt.Sprintf("%s channel %d stopped, status register %#08x: %s", e.Direction, e.Channel, e.Status, strings.Join(names, "; "))
}
