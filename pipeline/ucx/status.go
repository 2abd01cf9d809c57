// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"errors"
	"fmt"
)

// A Status is a ucs_status_t of the library. Those that are exported are errors.
type Status int8

// Errors of the library, named as in ucs/type/status.h without the prefix UCS_.
const (
	ErrNoMessage           Status = -1
	ErrNoResource          Status = -2
	ErrIOError             Status = -3
	ErrNoMemory            Status = -4
	ErrInvalidParam        Status = -5
	ErrUnreachable         Status = -6
	ErrInvalidAddr         Status = -7
	ErrNotImplemented      Status = -8
	ErrMessageTruncated    Status = -9
	ErrNoProgress          Status = -10
	ErrBufferTooSmall      Status = -11
	ErrNoElem              Status = -12
	ErrSomeConnectsFailed  Status = -13
	ErrNoDevice            Status = -14
	ErrBusy                Status = -15
	ErrCanceled            Status = -16
	ErrShmemSegment        Status = -17
	ErrAlreadyExists       Status = -18
	ErrOutOfRange          Status = -19
	ErrTimedOut            Status = -20
	ErrExceedsLimit        Status = -21
	ErrUnsupported         Status = -22
	ErrRejected            Status = -23
	ErrNotConnected        Status = -24
	ErrConnectionReset     Status = -25
	ErrFirstLinkFailure    Status = -40
	ErrLastLinkFailure     Status = -59
	ErrFirstEndpointFailed Status = -60
	ErrEndpointTimeout     Status = -80
	ErrLastEndpointFailed  Status = -89
)

// Statuses that are not errors.
const (
	ok         Status = 0
	inProgress Status = 1
)

// statusTexts holds the name and the meaning of each status.
var statusTexts = map[Status][2]string{
	ErrNoMessage:           {"UCS_ERR_NO_MESSAGE", "no message"},
	ErrNoResource:          {"UCS_ERR_NO_RESOURCE", "no resources at the moment"},
	ErrIOError:             {"UCS_ERR_IO_ERROR", "input/output error"},
	ErrNoMemory:            {"UCS_ERR_NO_MEMORY", "out of memory"},
	ErrInvalidParam:        {"UCS_ERR_INVALID_PARAM", "invalid parameter"},
	ErrUnreachable:         {"UCS_ERR_UNREACHABLE", "the destination is unreachable"},
	ErrInvalidAddr:         {"UCS_ERR_INVALID_ADDR", "the address is not valid"},
	ErrNotImplemented:      {"UCS_ERR_NOT_IMPLEMENTED", "not implemented by this library"},
	ErrMessageTruncated:    {"UCS_ERR_MESSAGE_TRUNCATED", "the message is longer than the buffer"},
	ErrNoProgress:          {"UCS_ERR_NO_PROGRESS", "no progress"},
	ErrBufferTooSmall:      {"UCS_ERR_BUFFER_TOO_SMALL", "the buffer is too small"},
	ErrNoElem:              {"UCS_ERR_NO_ELEM", "no such element"},
	ErrSomeConnectsFailed:  {"UCS_ERR_SOME_CONNECTS_FAILED", "some connections failed"},
	ErrNoDevice:            {"UCS_ERR_NO_DEVICE", "no such device: see UCX_NET_DEVICES and UCX_TLS"},
	ErrBusy:                {"UCS_ERR_BUSY", "the device is busy, or the address is in use"},
	ErrCanceled:            {"UCS_ERR_CANCELED", "cancelled: the endpoint was closed"},
	ErrShmemSegment:        {"UCS_ERR_SHMEM_SEGMENT", "shared memory cannot be had: see the limits of /dev/shm and of SysV segments"},
	ErrAlreadyExists:       {"UCS_ERR_ALREADY_EXISTS", "it exists already"},
	ErrOutOfRange:          {"UCS_ERR_OUT_OF_RANGE", "out of range"},
	ErrTimedOut:            {"UCS_ERR_TIMED_OUT", "timed out"},
	ErrExceedsLimit:        {"UCS_ERR_EXCEEDS_LIMIT", "beyond a limit"},
	ErrUnsupported:         {"UCS_ERR_UNSUPPORTED", "not supported by this transport"},
	ErrRejected:            {"UCS_ERR_REJECTED", "the peer rejected the connection"},
	ErrNotConnected:        {"UCS_ERR_NOT_CONNECTED", "not connected: nobody listens there, or the endpoint has failed before"},
	ErrConnectionReset:     {"UCS_ERR_CONNECTION_RESET", "the peer has closed the connection, or died"},
	ErrFirstLinkFailure:    {"UCS_ERR_FIRST_LINK_FAILURE", "the link failed"},
	ErrLastLinkFailure:     {"UCS_ERR_LAST_LINK_FAILURE", "the link failed"},
	ErrFirstEndpointFailed: {"UCS_ERR_FIRST_ENDPOINT_FAILURE", "the transport's endpoint failed"},
	ErrEndpointTimeout:     {"UCS_ERR_ENDPOINT_TIMEOUT", "the peer does not answer"},
	ErrLastEndpointFailed:  {"UCS_ERR_LAST_ENDPOINT_FAILURE", "the transport's endpoint failed"},
}

func (s Status) Error() string {
	if t, known := statusTexts[s]; known {
		return fmt.Sprintf("%s (%d): %s", t[0], int8(s), t[1])
	}
	return fmt.Sprintf("ucs_status_t %d", int8(s))
}

// An Error is an error that a call of the library returned at once or reported later.
type Error struct {
	Call   string // function of the library, such as ucp_ep_create; "connection" if an existing connection failed
	What   string // what the call concerned, such as an address; may be empty
	Status Status // found by errors.Is
}

func (e *Error) Error() string {
	if e.What == "" {
		return e.Call + ": " + e.Status.Error()
	}
	return fmt.Sprintf("%s %s: %s", e.Call, e.What, e.Status.Error())
}

func (e *Error) Unwrap() error { return e.Status }

var (
	// ErrNoLibrary means that libucp could not be loaded or is too old; the error that wraps it gives the reason.
	ErrNoLibrary = errors.New("no libucp")
	// ErrClosed is returned by the methods of a closed object, and passed to the functions of messages that had not
	// been handed to the library when it was closed.
	ErrClosed = errors.New("ucx: closed")
	// ErrOpen is wrapped by the error of a Close that had to close other objects first.
	ErrOpen = errors.New("ucx: closed while in use")
	// ErrThreadMode means that the library cannot be used by several threads.
	ErrThreadMode = errors.New("ucx: libucp grants only one thread: it was built without thread support: " + newer)
	// ErrFamily means that an address is IPv6 while the library uses IPv4, or the reverse.
	ErrFamily = errors.New("ucx: for IPv6 set UCX_TCP_AF_PRIO=inet6, which excludes IPv4")
	// ErrHeader means that a message's header is longer than Worker.MaxHeader.
	ErrHeader = errors.New("ucx: the header is longer than the library can send")
	// ErrNotRendezvous means that a message's data is already present or has been fetched.
	ErrNotRendezvous = errors.New("ucx: the message has no data to fetch")
)

// check returns the error for a status, or nil.
func check(call symbol, what string, s Status) error {
	if s == ok {
		return nil
	}
	return &Error{Call: symbolNames[call], What: what, Status: s}
}

// A statusPointer is a ucs_status_ptr_t: null, the address of a request, or an error.
type statusPointer uintptr

// status returns ok, inProgress or the error.
func (p statusPointer) status() Status {
	const lastError = 100 // UCS_ERR_LAST
	switch {
	case p == 0:
		return ok
	case p >= ^statusPointer(0)-(lastError-1):
		return Status(int8(int64(p)))
	}
	return inProgress
}
