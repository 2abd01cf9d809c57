// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// TestInbox calls the functions of inbox_*.s as the library does. What the assembly passes on to Go must keep its place
// in the order.
func TestInbox(t *testing.T) {
	w := &Worker{}
	w.inbox = &inbox{message: callbacks().message, ended: callbacks().ended, worker: w}
	for i := range 200 {
		w.requests = append(w.requests, &request{key: key{w.inbox, uint64(i)}})
	}
	messages := &key{w.inbox, 7}
	pixels := []byte("pixels")
	data := uintptr(unsafe.Pointer(&pixels[0]))
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&pixels[0])
	arrives := func(headerLength int, attributes uint64, want Status) string {
		header := append([]byte("header"), bytes.Repeat([]byte{'.'}, 256)...)[:headerLength]
		p := &receiveParam{attributes, 0x1234}
		r, _, _ := purego.SyscallN(atMessage, messages.address(), uintptr(unsafe.Pointer(unsafe.SliceData(header))), uintptr(len(header)), data, 6,
			uintptr(unsafe.Pointer(p)))
		if got := Status(int8(r)); got != want {
			t.Errorf("a message with a header of %d bytes and attributes %#x returns %v, not %v", headerLength, attributes, got, want)
		}
		text, reply := "PIXELS", uintptr(0)
		switch {
		case attributes&receiveRendezvous != 0:
			text = ""
		case want == ok: // copied
			text = "pixels"
		}
		if attributes&receiveReplyTo != 0 {
			reply = 0x1234
		}
		return fmt.Sprintf("message 7 %q %q of 6, to %#x, kept %v", header, text, reply, want == inProgress)
	}
	var want []string
	for i := range uintptr(100) { // 64 fit
		want = append(want, arrives(int(i)*3%201, receiveData|receiveReplyTo, inProgress))
		purego.SyscallN(atReceived, 0x1000+i, uintptr(0xffffff00|uint32(uint8(-int8(i)))), 1<<40+i, w.requests[i].key.address())
		want = append(want, fmt.Sprintf("request %d: %#x %d %d", i, 0x1000+i, -int(i), 1<<40+i))
		purego.SyscallN(atSent, 0x2000+i, uintptr(uint8(-int8(i))), w.requests[100+i].key.address())
		want = append(want, fmt.Sprintf("request %d: %#x %d 0", 100+i, 0x2000+i, -int(i)))
	}
	want = append(want,
		arrives(0, receiveRendezvous, inProgress),
		arrives(200, receiveData, inProgress),
		arrives(201, receiveRendezvous|receiveReplyTo, inProgress), // too long
		arrives(6, receiveReplyTo, ok),                             // only valid during the call
		arrives(6, receiveData, inProgress))
	copy(pixels, "PIXELS")
	w.collect()
	got := written(w.events, data)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("event %d of %d is %q, not %q", i, len(got), got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
	}
	if w.inbox.count != 0 {
		t.Errorf("%d notes are left", w.inbox.count)
	}
}

// written describes events as text. at is the address of the messages' data.
func written(events []event, at uintptr) (list []string) {
	for _, ev := range events {
		switch r, m := ev.request, ev.message; {
		case r != nil:
			list = append(list, fmt.Sprintf("request %d: %#x %d %d", r.key.number, r.handle, r.status, r.length))
		case m != nil:
			list = append(list, fmt.Sprintf("message %d %q %q of %d, to %#x, kept %v", m.ID, m.Header, m.Data, m.Length, m.replyTo, m.desc == at))
		}
	}
	return list
}
