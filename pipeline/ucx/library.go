// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/pipeline/distribution"
)

// LibraryName is the soname of libucp, which is also its file name.
const LibraryName = "libucp.so.0"

// A symbol identifies a function of libucp (ucp/api/ucp.h).
type symbol int

const (
	symGetVersionString symbol = iota
	symConfigRead
	symConfigRelease
	symInit
	symCleanup
	symMemMap
	symMemUnmap
	symWorkerCreate
	symWorkerQuery
	symWorkerReleaseAddress
	symWorkerDestroy
	symWorkerProgress
	symWorkerGetEfd
	symWorkerArm
	symWorkerSignal
	symWorkerSetAMRecvHandler
	symListenerCreate
	symListenerQuery
	symListenerDestroy
	symConnRequestQuery
	symEpCreate
	symEpFlush
	symEpClose
	symAMSend
	symAMRecvData
	symAMDataRelease
	symRequestFree
	symbolCount
)

// symbolNames are the names in ucp.h. There, ucp_init is an inline function that calls ucp_init_version.
var symbolNames = [symbolCount]string{
	symGetVersionString:       "ucp_get_version_string",
	symConfigRead:             "ucp_config_read",
	symConfigRelease:          "ucp_config_release",
	symInit:                   "ucp_init_version",
	symCleanup:                "ucp_cleanup",
	symMemMap:                 "ucp_mem_map",
	symMemUnmap:               "ucp_mem_unmap",
	symWorkerCreate:           "ucp_worker_create",
	symWorkerQuery:            "ucp_worker_query",
	symWorkerReleaseAddress:   "ucp_worker_release_address",
	symWorkerDestroy:          "ucp_worker_destroy",
	symWorkerProgress:         "ucp_worker_progress",
	symWorkerGetEfd:           "ucp_worker_get_efd",
	symWorkerArm:              "ucp_worker_arm",
	symWorkerSignal:           "ucp_worker_signal",
	symWorkerSetAMRecvHandler: "ucp_worker_set_am_recv_handler",
	symListenerCreate:         "ucp_listener_create",
	symListenerQuery:          "ucp_listener_query",
	symListenerDestroy:        "ucp_listener_destroy",
	symConnRequestQuery:       "ucp_conn_request_query",
	symEpCreate:               "ucp_ep_create",
	symEpFlush:                "ucp_ep_flush_nbx",
	symEpClose:                "ucp_ep_close_nbx",
	symAMSend:                 "ucp_am_send_nbx",
	symAMRecvData:             "ucp_am_recv_data_nbx",
	symAMDataRelease:          "ucp_am_data_release",
	symRequestFree:            "ucp_request_free",
}

// environment holds settings of the library for this process, which the user's settings override. The library reads
// them when it is loaded; programs started by this process do not inherit them.
var environment = [][2]string{
	{"UCX_ERROR_SIGNALS", ""},      // its signal handlers would end the process on faults that Go recovers from
	{"UCX_HANDLE_ERRORS", "none"},  // likewise
	{"UCX_DEBUG_SIGNO", "0"},       // the library would take over SIGHUP, with which a service is told to reload its configuration
	{"UCX_MEM_EVENTS", "n"},        // its memory hooks do not see Go's memory
	{"UCX_LOG_FILE", "stderr"},     // standard output belongs to the program
	{"UCX_MM_ERROR_HANDLING", "y"}, // otherwise shared memory is not used
	{"UCX_CM_REUSEADDR", "y"},      // lets a listener reuse the port of one that was killed, while TCP still remembers its connections
	// Keeps a connection to a listener on the device of its address. Otherwise it starts there and switches to others,
	// some of which may not reach the peer, and 1.13 loses messages that were sent before it switched to shared memory.
	{"UCX_CM_USE_ALL_DEVICES", "n"},
}

// A library is a loaded libucp.
type library struct {
	symbols [symbolCount]uintptr
	release string
}

// libraries holds the loaded libraries by name. They are never unloaded, because their threads and callbacks would
// remain.
var libraries struct {
	sync.Mutex
	loaded map[string]*library
}

// newer is the remedy for a libucp that cannot be used.
const newer = "install NVIDIA's UCX (package ucx of DOCA), or that of a later distribution"

// CheckRelease returns an error if a release of UCX, of this side or of the other one, cannot be used. Releases before
// 1.12 begin a connection in another way.
func CheckRelease(release string) error {
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	if m, bad := strconv.Atoi(major); bad != nil || err != nil || m != versionMajor || n < versionMinor {
		return fmt.Errorf("release %q of UCX: it must be %d.%d or a later %d on both sides", release, versionMajor, versionMinor, versionMajor)
	}
	return nil
}

// load loads libucp, or returns it if it has already been loaded under this name.
func load(name string) (*library, error) {
	libraries.Lock()
	defer libraries.Unlock()
	if l := libraries.loaded[name]; l != nil {
		return l, nil
	}
	if err := setEnvironment(); err != nil {
		return nil, err
	}
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoLibrary, distribution.UCX.Advice(os.DirFS("/")), err)
	}
	l := &library{}
	for i, name := range symbolNames {
		if l.symbols[i], err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("%w: %s is too old, %d.%d is needed: %s: %w", ErrNoLibrary, LibraryName, versionMajor, versionMinor, newer, err)
		}
	}
	at := l.call(symGetVersionString)
	l.release = goString(*(**byte)(unsafe.Pointer(&at)))
	if err := CheckRelease(l.release); err != nil {
		return nil, fmt.Errorf("%w: %w: %s", ErrNoLibrary, err, newer)
	}
	if libraries.loaded == nil {
		libraries.loaded = map[string]*library{}
	}
	libraries.loaded[name] = l
	return l, nil
}

// setEnvironment sets the variables that are not set yet, in the C environment only.
func setEnvironment() error {
	setenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return fmt.Errorf("%w: the C library has no setenv: %w", ErrNoLibrary, err)
	}
	for _, v := range environment {
		name, value := cString(v[0]), cString(v[1])
		purego.SyscallN(setenv, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(value)), 0)
	}
	return nil
}

// call calls a function. Pointers may be converted to uintptr in the argument list.
//
//go:uintptrescapes
func (l *library) call(f symbol, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(l.symbols[f], args...)
	return r
}

// try calls a function that returns a ucs_status_t, which is one byte, and returns the error for it. what is the object
// that the error names.
//
//go:uintptrescapes
func (l *library) try(f symbol, what string, args ...uintptr) error {
	r, _, _ := purego.SyscallN(l.symbols[f], args...)
	return check(f, what, Status(int8(r)))
}

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

// goString copies a C string.
func goString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
