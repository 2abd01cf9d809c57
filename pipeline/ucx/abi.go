// SPDX-License-Identifier: Apache-2.0

package ucx

// Structures of ucp/api/ucp.h, version 1.13. Most begin with a mask that says which fields are set. Later versions only
// append fields; tail leaves room for the ones that they write. Version 1.12 does not know opMemh and ignores it: it
// registers memory itself.

type tail [32]uint64

type contextParams struct {
	mask     uint64
	features uint64
	_        [4]uint64 // request size, initialiser, cleanup, tag mask
	mtShared int32
	_        int32
	_        [3]uint64 // estimates, name
	_        tail
}

const (
	paramFeatures = 1 << 0
	paramMTShared = 1 << 5
	featureWakeup = 1 << 4
	featureAM     = 1 << 6
	versionMajor  = 1
	versionMinor  = 12
	threadsSerial = 1 // UCS_THREAD_MODE_SERIALIZED
	datatypeIOV   = 2
	datatypeBytes = 8 // ucp_dt_make_contig(1)
)

type workerParams struct {
	mask    uint64
	threads int32
	_       int32
	_       [16]uint64 // CPUs
	events  uint32
	_       uint32
	_       [6]uint64 // user data, descriptor, flags, name, alignment, client
	_       tail
}

const (
	workerThreads = 1 << 0
	workerEvents  = 1 << 2
	wakeupTX      = 1 << 10
	wakeupRX      = 1 << 11
)

type workerAttr struct {
	mask          uint64
	threads       int32
	_             uint32
	address       uintptr
	addressLength uint64
	maxHeader     uint64
	_             [5]uint64 // name, length of debug strings
	_             tail
}

const (
	attrThreads   = 1 << 0
	attrAddress   = 1 << 1
	attrMaxHeader = 1 << 3
)

// sockaddr is ucs_sock_addr_t.
type sockaddr struct {
	address uintptr
	length  uint32
	_       uint32
}

type listenerParams struct {
	mask     uint64
	address  sockaddr
	_        [2]uint64 // handler for endpoints
	handler  uintptr   // for connection requests
	argument uintptr
	_        tail
}

const (
	listenerAddress = 1 << 0
	listenerHandler = 1 << 2
)

// storage is a struct sockaddr_storage.
type storage [128]byte

type listenerAttr struct {
	mask    uint64
	address storage
	_       tail
}

type connRequestAttr struct {
	mask    uint64
	address storage
	client  uint64
	_       tail
}

type endpointParams struct {
	mask      uint64
	remote    uintptr
	errorMode int32
	_         int32
	handler   uintptr
	argument  uintptr
	user      uintptr
	flags     uint32
	_         uint32
	address   sockaddr
	request   uintptr
	_         [3]uint64 // name, local address
	_         tail
}

const (
	endpointRemote    = 1 << 0
	endpointErrorMode = 1 << 1
	endpointHandler   = 1 << 2
	endpointAddress   = 1 << 4
	endpointFlags     = 1 << 5
	endpointRequest   = 1 << 6
	clientServer      = 1 << 0
	errorsNone        = 0 // UCP_ERR_HANDLING_MODE_NONE
	errorsOfPeer      = 1
)

type requestParam struct {
	mask     uint32
	flags    uint32
	request  uintptr
	callback uintptr
	datatype uint64
	user     uintptr
	reply    uintptr
	memory   int32
	_        int32
	info     uintptr
	memh     uintptr
	_        tail
}

const (
	opCallback = 1 << 1
	opUser     = 1 << 2
	opDatatype = 1 << 3
	opFlags    = 1 << 4
	opMemory   = 1 << 6
	opMemh     = 1 << 8

	sendReply      = 1 << 0
	sendEager      = 1 << 1
	sendRendezvous = 1 << 2
	closeForce     = 1 << 0
)

type handlerParam struct {
	mask     uint64
	id       uint32
	flags    uint32
	callback uintptr
	argument uintptr
	_        tail
}

const (
	handlerAll        = 1<<4 - 1
	handlerPersistent = 1 << 1
)

type receiveParam struct {
	attributes uint64
	replyTo    uintptr
}

const (
	receiveReplyTo    = 1 << 0
	receiveData       = 1 << 16
	receiveRendezvous = 1 << 17
)

type mapParams struct {
	mask    uint64
	address uintptr
	length  uint64
	flags   uint32
	_       uint32 // protection
	kind    int32
	_       int32
	_       tail
}

const (
	mapAddress = 1 << 0
	mapLength  = 1 << 1
	mapKind    = 1 << 4
)

// iov is ucp_dt_iov_t.
type iov struct {
	buffer uintptr
	length uint64
}
