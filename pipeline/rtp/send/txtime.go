// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/monotonic"
)

// departure describes how to tell the kernel when a packet is to leave (SO_TXTIME, tc-etf(8)): the queueing discipline
// fq uses the monotonic clock, etf uses TAI.
type departure struct {
	clock  int32
	name   string
	lead   time.Duration // delay added to all packets, because etf drops packets that arrive after their time
	offset time.Duration // from the monotonic clock to this clock
	next   time.Duration // of the packets to be sent, by the monotonic clock
}

var departures = []departure{
	{clock: unix.CLOCK_MONOTONIC, name: "fq"},
	{clock: unix.CLOCK_TAI, name: "etf", lead: 5 * time.Millisecond},
}

// findDeparture looks for a queueing discipline on the named interface that holds packets until they are due, and tests
// with a separate socket whether the path to a destination uses it. It sends b, an RTCP compound, to the destination's
// RTP port, where receivers recognise it as RTCP (RFC 5761 §4); packets to another port might take another path.
func findDeparture(name string, dest netip.AddrPort, c Config, b []byte) (departure, error) {
	kinds, err := disciplines(name)
	if err != nil {
		return departure{}, err
	}
	errs := []error{fmt.Errorf("%s has %v", name, kinds)}
	for _, d := range departures {
		if !slices.Contains(kinds, d.name) {
			continue
		}
		err := d.probe(dest, c, b)
		if err != nil { // the first packet may have waited for the neighbour's address
			err = d.probe(dest, c, b)
		}
		if err == nil {
			return d.tuned(), nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", d.name, err))
	}
	return departure{}, errors.Join(errs...)
}

const (
	probeDelay = 20 * time.Millisecond // time until the probe may leave
	probeLook  = 5 * time.Millisecond  // time after which it must still be queued; no network card takes this long
)

var errLeft = errors.New("packets leave at once")

// probe returns an error unless a packet with a later departure time stays in the queue and then leaves it.
func (d departure) probe(dest netip.AddrPort, c Config, b []byte) error {
	fd, _, err := dial(dest, c, 1<<16)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := d.set(fd); err != nil {
		return err
	}
	var control [24]byte
	putControl(control[:], unix.SOL_SOCKET, unix.SCM_TXTIME, 8)
	ne.PutUint64(control[16:], uint64(d.tuned().at(monotonic.Now()+probeDelay)))
	if _, err := unix.SendmsgN(fd, b, control[:], nil, unix.MSG_DONTWAIT); err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	sleepUntil(monotonic.Now() + probeLook)
	if queued(fd) == 0 {
		return errLeft
	}
	for range 10 {
		sleepUntil(monotonic.Now() + probeDelay/2)
		if queued(fd) == 0 {
			return nil
		}
	}
	return errors.New("packets never leave")
}

// set enables departure times on fd.
func (d departure) set(fd int) error {
	option := struct{ clock, flags int32 }{d.clock, 0} // struct sock_txtime
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_TXTIME,
		uintptr(unsafe.Pointer(&option)), unsafe.Sizeof(option), 0)
	if errno != 0 {
		return os.NewSyscallError("setsockopt SO_TXTIME", errno)
	}
	return nil
}

// tuned returns d with the current offset of its clock. The offset changes only when a clock is adjusted.
func (d departure) tuned() departure {
	var t unix.Timespec
	if d.clock != unix.CLOCK_MONOTONIC && unix.ClockGettime(d.clock, &t) == nil {
		d.offset = time.Duration(t.Nano()) - monotonic.Now()
	}
	return d
}

// at converts a time of the monotonic clock to d's clock, including the lead.
func (d departure) at(t time.Duration) time.Duration { return t + d.lead + d.offset }

// queued returns the number of bytes that wait below the socket, or 0 if it is unknown.
func queued(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// putControl writes the header of a control message with n bytes of data (cmsg(3)).
func putControl(b []byte, level, kind uint32, n int) {
	ne.PutUint64(b, uint64(unix.SizeofCmsghdr+n))
	ne.PutUint32(b[8:], level)
	ne.PutUint32(b[12:], kind)
}
