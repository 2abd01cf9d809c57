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
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

const (
	packetSize = 1200    // bytes of a payload: with SRTP, its headers and those of a tunnel no packet is cut on its way
	maxMessage = 1 << 16 // bytes of a message with results: what every WebRTC client takes (RFC 8841 §6.1)
)

// stream is an output that is watched. While nobody watches it asks nothing of the sink.
type stream struct {
	name string
	sink *send.Sink
	log  *slog.Logger

	mu       sync.Mutex
	sessions []*session
	told     bool // that results are too long
}

// picture is a frame as all sessions send it. Nobody changes it.
type picture struct {
	timestamp uint32
	captured  time.Time
	key       bool
	payloads  [][]byte
	message   []byte // its results; nil: they cannot be sent
}

// Message is what the data channel tells of a frame.
type Message struct {
	RTP uint32 `json:"rtp"` // timestamp of the frame's packets
	pipeline.Report
}

// join has a session sent to, from the next key frame on.
func (st *stream) join(v *session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sessions = append(st.sessions, v); len(st.sessions) == 1 {
		st.sink.Watch(st.take)
	}
}

// leave takes a session off.
func (st *stream) leave(v *session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sessions = slices.DeleteFunc(st.sessions, func(x *session) bool { return x == v }); len(st.sessions) == 0 {
		st.sink.Watch(nil)
	}
}

// all are the sessions of now.
func (st *stream) all() []*session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.sessions)
}

// take gives a frame to all sessions, and waits for none.
func (st *stream) take(t *rtp.Train, f *pipeline.Frame) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !slices.ContainsFunc(st.sessions, func(v *session) bool { return v.connected.Load() }) {
		return
	}
	unit, _ := rtp.NextUnit(t.Payload())
	p := &picture{
		timestamp: t.Timestamp(), captured: f.Times.Shown(), key: len(unit) > 0 && unit[0]&rtp.UnitTypes == rtp.UnitSPS,
		payloads: new(codecs.H264Payloader).Payload(packetSize, t.Payload()), // copies
	}
	p.message = st.report(p.timestamp, f)
	for _, v := range st.sessions {
		v.take(p)
	}
}

// report is what the data channel tells of a frame; nil: its results cannot be sent.
func (st *stream) report(timestamp uint32, f *pipeline.Frame) []byte {
	m := Message{RTP: timestamp, Report: f.Report()}
	b, err := json.Marshal(m)
	if err == nil && len(b) <= maxMessage {
		return b
	}
	if !st.told {
		st.told = true
		st.log.Warn("webrtc: results cannot be sent to viewers: make them shorter, and without numbers that JSON has no word for",
			"output", st.name, "frame", f.Sequence, "bytes", len(b), "most", maxMessage, "error", err)
	}
	return nil
}
