// SPDX-License-Identifier: Apache-2.0

package uapi

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Error is a failed call; errors.Is finds the Errno.
type Error struct {
	Call  uint // such as CallPin
	Errno unix.Errno
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s", e.name(), e.Errno.Error())
	if hint := e.hint(); hint != "" {
		text += ": " + hint
	}
	return text
}

func (e *Error) Unwrap() error { return e.Errno }

func (e *Error) name() string {
	switch e.Call {
	case CallGetInfo:
		return "GET_INFO"
	case CallGetRegion:
		return "GET_REGION"
	case CallPin:
		return "PIN"
	case CallQuery:
		return "QUERY"
	case CallPut:
		return "PUT"
	case CallAlloc:
		return "ALLOC"
	case CallSetEvent:
		return "SET_EVENT"
	case CallSetHalt:
		return "SET_HALT"
	case CallControl:
		return "CONTROL"
	}
	return fmt.Sprintf("call %#x", e.Call)
}

// hint explains an errno for the call that it came from, and says what to do. It is empty if there is nothing to add.
func (e *Error) hint() string {
	switch e.Errno {
	case unix.ENODEV:
		return "the function has gone or its driver was unbound: open the device again when it is back"
	case unix.EACCES:
		if e.Call == CallSetHalt {
			return "the descriptor was opened for reading, or an access would write the MSI-X table"
		}
		return "the descriptor was opened for reading: open the device to read and write"
	case unix.ENOTTY:
		return "this is not a device of tegra_p2p, or the module is older: load the module of this release"
	case unix.E2BIG:
		if e.Call != CallPin && e.Call != CallAlloc {
			return "the module is older than this program: load the module of this release"
		}
		return "too large: pin or allocate in smaller pieces"
	}
	switch e.Call {
	case CallPin, CallAlloc:
		return e.memoryHint()
	case CallPut, CallQuery:
		return e.handleHint()
	case CallControl:
		return e.controlHint()
	case CallSetEvent, CallSetHalt:
		if e.Errno == unix.EBUSY {
			return "another process has opened the device: stop it"
		}
	}
	return ""
}

func (e *Error) memoryHint() string {
	switch e.Errno {
	case unix.EINVAL:
		return "address and size must be multiples of 4 KiB, not 0, and must not wrap"
	case unix.ENOMEM:
		return "no memory, or beyond RLIMIT_MEMLOCK: raise it (ulimit -l; LimitMEMLOCK= of the service)"
	case unix.ENOSPC:
		return "too many pins and allocations of one open file: unpin some"
	case unix.EFAULT:
		return "the range is not mapped, not writable, device memory, or made of two mappings: pin one whole allocation"
	case unix.EMEDIUMTYPE:
		return "the memory was allocated with the other cache attribute"
	case unix.EIO:
		return "the IOMMU could not map it: no bus addresses are left"
	case unix.ESTALE:
		return "the function is fenced: reset its engine, then resume"
	case unix.EAGAIN:
		return "the mapping changed while it was being pinned: do not remap it meanwhile"
	case unix.EBUSY:
		return "the range, or a part of it, is pinned already"
	case unix.EOPNOTSUPP:
		return "the kernel has no way to pin here: it needs nv-p2p (L4T) or a coherent function"
	}
	return ""
}

func (e *Error) handleHint() string {
	switch e.Errno {
	case unix.ENOENT:
		return "no such pin or allocation, or it was put already"
	case unix.EBUSY:
		return "it is still mapped by mmap: unmap it first"
	}
	return ""
}

func (e *Error) controlHint() string {
	switch e.Errno {
	case unix.EAGAIN:
		return "another revocation came in between: reset the engine again"
	case unix.EOPNOTSUPP:
		return "the function cannot be reset (no FLR)"
	case unix.EIO:
		return "the function does not answer, or has lost its configuration: reset it, or unbind and bind it again"
	case unix.EPERM:
		return "another function has joined its IOMMU group: the IOMMU no longer isolates it"
	}
	return ""
}
