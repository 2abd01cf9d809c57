// SPDX-License-Identifier: Apache-2.0

package ucx

import "unsafe"

// An inbox records calls from the library until the worker processes them. A callback into Go takes a microsecond;
// filling the inbox takes a few instructions (inbox_amd64.s, inbox_arm64.s). They run on a thread that is inside a call
// of the library and holds the worker's lock. What does not fit is passed to the Go callback.
type inbox struct {
	count          uint64 // of notes
	message, ended uintptr
	worker         *Worker
	notes          [inboxNotes]note
}

const (
	inboxNotes  = 64
	inboxHeader = 200 // longer headers do not fit
)

// A note records one call from the library: about a request if attributes is 0, otherwise about a message.
type note struct {
	number       uint64
	handle       uintptr // of the request, or of the message's data
	status       int64   // of the request; only the lowest byte is significant
	length       uint64
	attributes   uint64 // of the receiveParam
	replyTo      uintptr
	headerLength uint64
	header       [inboxHeader]byte
}

// A key identifies a request, or the messages with one ID. The library keeps its address.
type key struct {
	inbox  *inbox
	number uint64
}

func (k *key) address() uintptr { return uintptr(unsafe.Pointer(k)) }

// Entry points for the library: a ucp_am_recv_callback_t, a ucp_am_recv_data_nbx_callback_t and a
// ucp_send_nbx_callback_t.
var atMessage, atReceived, atSent uintptr

// collect turns the notes into events. The worker's lock must be held.
func (w *Worker) collect() {
	b := w.inbox
	for i := range b.notes[:b.count] {
		switch n := &b.notes[i]; n.attributes {
		case 0:
			w.ended(n.number, n.handle, Status(int8(n.status)), int(n.length))
		default:
			w.message(n.number, n.header[:n.headerLength], n.handle, n.length, receiveParam{n.attributes, n.replyTo})
		}
	}
	b.count = 0
}

func (w *Worker) ended(number uint64, handle uintptr, status Status, length int) {
	r := w.requests[number]
	r.handle, r.status, r.length = handle, status, length
	w.events = append(w.events, event{request: r})
}

// message records a message and reports whether the worker keeps the library's descriptor of its data.
func (w *Worker) message(id uint64, header []byte, data uintptr, length uint64, p receiveParam) bool {
	m := w.newMessage()
	m.ID, m.Length, m.Rendezvous = uint16(id), int(length), p.attributes&receiveRendezvous != 0
	m.Header = append(m.Header[:0], header...)
	if m.Anonymous = p.attributes&receiveReplyTo == 0; !m.Anonymous {
		m.replyTo = p.replyTo
	}
	stays := true
	switch {
	case m.Rendezvous:
		m.desc = data
	case p.attributes&receiveData != 0:
		m.desc, m.Data = data, unsafe.Slice(*(**byte)(unsafe.Pointer(&data)), length)
	default: // the data is only valid during the call
		m.Data, stays = append([]byte(nil), unsafe.Slice(*(**byte)(unsafe.Pointer(&data)), length)...), false
	}
	w.events = append(w.events, event{message: m})
	return stays
}
