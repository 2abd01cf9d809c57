// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cudahost/headertest"
)

const headers113 = "/usr/include/ucp/api/ucp.h"

func needHeaders(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(headers113); err != nil {
		t.Fatalf("%v (make setup-test installs libucx-dev)", err)
	}
}

// TestLayout compares the structures passed to libucp with the headers of 1.13, and of Debian 13's 1.18.
func TestLayout(t *testing.T) {
	needHeaders(t)
	text := ""
	for _, f := range append(layout(), constants()...) {
		text += fmt.Sprintf("%s %d\n", f.name, f.n)
	}
	for release, folder := range map[string]func() string{
		"1.13": func() string { return "/usr/include" },
		"1.18": func() string {
			p, err := vjetson.FetchPackages(t.Context(), runtime.GOARCH, "trixie", slog.Default(), "libucx-dev")
			if errors.Is(err, vjetson.ErrUnreachable) {
				t.Skipf("NEEDS Debian 13's libucx-dev: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			return filepath.Join(p.Dir, "usr/include")
		},
	} {
		if out := headertest.Output(t, "testdata/layout.c", "-I"+folder()); out != text {
			t.Errorf("ucp.h of %s has\n%s, and the package\n%s", release, out, text)
		}
	}
}

type field struct {
	name string
	n    uintptr
}

func layout() []field {
	var (
		c contextParams
		w workerParams
		a workerAttr
		l listenerParams
		b listenerAttr
		q connRequestAttr
		e endpointParams
		r requestParam
		h handlerParam
		m receiveParam
		p mapParams
		v iov
	)
	return []field{
		{"ucp_params_t.features", unsafe.Offsetof(c.features)},
		{"ucp_params_t.mt_workers_shared", unsafe.Offsetof(c.mtShared)},
		{"ucp_worker_params_t.thread_mode", unsafe.Offsetof(w.threads)},
		{"ucp_worker_params_t.events", unsafe.Offsetof(w.events)},
		{"ucp_worker_attr_t.thread_mode", unsafe.Offsetof(a.threads)},
		{"ucp_worker_attr_t.address", unsafe.Offsetof(a.address)},
		{"ucp_worker_attr_t.address_length", unsafe.Offsetof(a.addressLength)},
		{"ucp_worker_attr_t.max_am_header", unsafe.Offsetof(a.maxHeader)},
		{"ucp_listener_params_t.sockaddr", unsafe.Offsetof(l.address)},
		{"ucp_listener_params_t.conn_handler", unsafe.Offsetof(l.handler)},
		{"ucp_listener_attr_t.sockaddr", unsafe.Offsetof(b.address)},
		{"ucp_conn_request_attr_t.client_address", unsafe.Offsetof(q.address)},
		{"ucp_ep_params_t.address", unsafe.Offsetof(e.remote)},
		{"ucp_ep_params_t.err_mode", unsafe.Offsetof(e.errorMode)},
		{"ucp_ep_params_t.err_handler", unsafe.Offsetof(e.handler)},
		{"ucp_ep_params_t.flags", unsafe.Offsetof(e.flags)},
		{"ucp_ep_params_t.sockaddr", unsafe.Offsetof(e.address)},
		{"ucp_ep_params_t.conn_request", unsafe.Offsetof(e.request)},
		{"ucp_request_param_t.flags", unsafe.Offsetof(r.flags)},
		{"ucp_request_param_t.cb", unsafe.Offsetof(r.callback)},
		{"ucp_request_param_t.datatype", unsafe.Offsetof(r.datatype)},
		{"ucp_request_param_t.user_data", unsafe.Offsetof(r.user)},
		{"ucp_request_param_t.memory_type", unsafe.Offsetof(r.memory)},
		{"ucp_request_param_t.memh", unsafe.Offsetof(r.memh)},
		{"ucp_am_handler_param_t.id", unsafe.Offsetof(h.id)},
		{"ucp_am_handler_param_t.flags", unsafe.Offsetof(h.flags)},
		{"ucp_am_handler_param_t.cb", unsafe.Offsetof(h.callback)},
		{"ucp_am_handler_param_t.arg", unsafe.Offsetof(h.argument)},
		{"ucp_am_recv_param_t.reply_ep", unsafe.Offsetof(m.replyTo)},
		{"ucp_mem_map_params_t.address", unsafe.Offsetof(p.address)},
		{"ucp_mem_map_params_t.length", unsafe.Offsetof(p.length)},
		{"ucp_mem_map_params_t.memory_type", unsafe.Offsetof(p.kind)},
		{"ucp_dt_iov_t.length", unsafe.Offsetof(v.length)},
	}
}

func constants() []field {
	return []field{
		{"sizeof(ucs_status_t)", unsafe.Sizeof(ok)},
		{"ucp_dt_make_contig(1)", datatypeBytes},
		{"UCP_DATATYPE_IOV", datatypeIOV},
		{"UCP_FEATURE_AM | UCP_FEATURE_WAKEUP", featureAM | featureWakeup},
		{"UCS_THREAD_MODE_SERIALIZED", threadsSerial},
		{"UCP_ERR_HANDLING_MODE_PEER", errorsOfPeer},
		{"UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE", opMemh | opMemory},
		{"UCP_AM_SEND_FLAG_RNDV", sendRendezvous},
		{"UCP_AM_FLAG_PERSISTENT_DATA", handlerPersistent},
		{"UCP_AM_RECV_ATTR_FLAG_RNDV", receiveRendezvous},
		{"UCS_MEMORY_TYPE_CUDA_MANAGED", uintptr(CUDAManaged)},
	}
}

// TestStatuses checks that every error in the header has its name here.
func TestStatuses(t *testing.T) {
	needHeaders(t)
	header, err := os.ReadFile("/usr/include/ucs/type/status.h")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(UCS_ERR_\w+)\s*=\s*(-\d+)`).FindAllStringSubmatch(string(header), -1)
	if len(all) != len(statusTexts)+1 { // UCS_ERR_LAST is not an error
		t.Errorf("%d errors in the header, %d here", len(all)-1, len(statusTexts))
	}
	for _, m := range all {
		if m[1] == "UCS_ERR_LAST" {
			continue
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if text := Status(n).Error(); !strings.HasPrefix(text, fmt.Sprintf("%s (%d): ", m[1], n)) {
			t.Errorf("%s is %q", m[1], text)
		}
	}
	for _, p := range []struct {
		pointer statusPointer
		want    Status
	}{{0, ok}, {^statusPointer(0), ErrNoMessage}, {^statusPointer(0) - 99, -100}, {^statusPointer(0) - 100, inProgress}, {1 << 40, inProgress}} {
		if got := p.pointer.status(); got != p.want {
			t.Errorf("%#x is %d, not %d", p.pointer, got, p.want)
		}
	}
}
