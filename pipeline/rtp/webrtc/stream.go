// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pion/rtp/codecs"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

const (
	packetSize = 1200    // bytes of a payload: with the headers of SRTP and of a tunnel, packets are not fragmented on the way
	maxMessage = 1 << 16 // bytes of a message with results: every WebRTC client accepts this size (RFC 8841 §6.1)
)

// stream is an output with its sessions. While it has none it requests nothing from the sink.
type stream struct {
	name string
	sink *send.Sink
	log  *slog.Logger

	mu       sync.Mutex
	sessions []*session
	unwatch  func() // stops the calls of passFrame; nil without sessions
	told     bool   // it was logged that results cannot be sent
}

// picture is a frame in the form in which all sessions send it. It is immutable.
type picture struct {
	timestamp uint32
	captured  time.Time
	key       bool
	payloads  [][]byte
	message   []byte // the frame's results, or nil if they cannot be sent
}

// Message is the message about a frame in the data channel.
type Message struct {
	RTP uint32 `json:"rtp"` // timestamp of the frame's packets
	report.Report
}

// join adds a session. Once it is connected, it gets pictures from the next key frame on.
func (st *stream) join(v *session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sessions = append(st.sessions, v); len(st.sessions) == 1 {
		st.unwatch = st.sink.Watch(st.passFrame)
	}
}

// leave removes a session. Without sessions, the sink is not watched.
func (st *stream) leave(v *session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sessions = slices.DeleteFunc(st.sessions, func(x *session) bool { return x == v }); len(st.sessions) == 0 && st.unwatch != nil {
		st.unwatch()
		st.unwatch = nil
	}
}

// all returns the current sessions.
func (st *stream) all() []*session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.sessions)
}

// passFrame offers a frame to all connected sessions, without waiting for any.
func (st *stream) passFrame(t *rtp.Train, f *pipeline.Frame) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !slices.ContainsFunc(st.sessions, func(v *session) bool { return v.connected.Load() }) {
		return
	}
	unit, key := t.Picture()
	p := &picture{
		timestamp: t.Timestamp(), captured: f.Times.Shown(), key: key,
		payloads: new(codecs.H264Payloader).Payload(packetSize, unit), // makes copies
	}
	p.message = st.report(p.timestamp, f)
	for _, v := range st.sessions {
		v.offerPicture(p)
	}
}

// report returns the message about a frame for the data channel, or nil if its results cannot be sent.
func (st *stream) report(timestamp uint32, f *pipeline.Frame) []byte {
	m := Message{RTP: timestamp, Report: report.Of(f)}
	b, err := json.Marshal(m)
	if err == nil && len(b) <= maxMessage {
		return b
	}
	if !st.told {
		st.told = true
		st.log.Warn("webrtc: results cannot be sent to viewers: make them shorter, and without numbers that JSON cannot represent",
			"output", st.name, "frame", f.Sequence, "bytes", len(b), "most", maxMessage, "error", err)
	}
	return nil
}
