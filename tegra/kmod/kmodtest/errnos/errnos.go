// SPDX-License-Identifier: Apache-2.0

package errnos

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// always lists the results that every call may have; 0 is success. EINTR means that nothing was done.
var always = []unix.Errno{0, unix.EINVAL, unix.E2BIG, unix.EFAULT, unix.ENODEV, unix.EACCES, unix.EINTR}

var of = map[int][]unix.Errno{
	uapi.CallPin: {
		unix.ENOMEM, unix.ENOSPC, unix.EMEDIUMTYPE, unix.EIO, unix.ESTALE, unix.EBUSY, unix.EOPNOTSUPP, unix.EAGAIN, unix.EPERM,
	},
	uapi.CallQuery:    {unix.ENOENT},
	uapi.CallPut:      {unix.ENOENT, unix.EBUSY},
	uapi.CallAlloc:    {unix.ENOMEM, unix.ENOSPC, unix.ESTALE, unix.EPERM},
	uapi.CallSetEvent: {unix.EBADF, unix.EBUSY},
	uapi.CallSetHalt:  {unix.ENOMEM, unix.EBUSY},
	uapi.CallControl:  {unix.EAGAIN, unix.EOPNOTSUPP, unix.EBUSY, unix.EIO, unix.EPERM},
}

// Documented reports whether the call with number nr, which is 0 for GET_INFO, may return e. Every call may return 0.
func Documented(nr int, e unix.Errno) bool {
	return slices.Contains(always, e) || slices.Contains(of[uapi.CallGetInfo+nr], e)
}
