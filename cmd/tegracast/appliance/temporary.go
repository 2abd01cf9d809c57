// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"net"
	"slices"
	"syscall"
)

// IsTemporary reports whether a later try may succeed, that is, whether err means that the machine is short of a
// resource, or that a device, a disk, a network or a name server is not ready. Such an error is no mistake in the
// configuration, even if it has a place there.
func IsTemporary(err error) bool {
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
