// SPDX-License-Identifier: Apache-2.0

package starts

import (
	"errors"
	"net"
	"slices"
	"syscall"
)

// Passes reports whether an error, also one that has a place in the configuration, is no mistake in it, but says that the machine has too
// little of something now, or that a device, a disk, a network or a name server is not ready: a later try may be fine.
func Passes(err error) bool {
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) && !dns.IsNotFound {
		return true
	}
	return slices.ContainsFunc([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.ENOBUFS, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO,
		syscall.EBUSY, syscall.ESTALE,
		syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ETIMEDOUT,
	}, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
