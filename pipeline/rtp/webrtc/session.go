// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	packets "github.com/pion/rtp"
	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

const (
	waiting   = 4                // pictures that may wait for a session; if more come, they are lost until the next key frame
	together  = 16               // maximum number of packets sent without a pause
	pause     = time.Millisecond // length of the pause after together packets
	behind    = 256 << 10        // bytes of results that may wait in a data channel; further results are skipped
	results   = "results"        // label of the data channel for results
	byWHEP    = "WebRTC"         // how viewers receive a stream
	streamTag = "tegracast"      // name of the stream in the answer
)

// session is one peer that receives a stream: a viewer, or a server to which it is published.
type session struct {
	id     string
	stream *stream
	peer   *pion.PeerConnection
	track  *pion.TrackLocalStaticRTP
	by     string // how the session was set up
	begins func() // called when the peer is connected
	heads  heads

	pictures  chan *picture
	lost      bool // pictures are skipped until the next key frame; guarded by the stream's lock
	asked     bool // that key frame was requested; guarded by the stream's lock
	connected atomic.Bool
	channel   atomic.Pointer[pion.DataChannel]
	sequence  uint16 // of the next packet

	up    chan struct{} // closed when the peer is connected
	ended chan struct{} // closed when the session should end
	over  chan struct{} // closed when the session has released everything
	once  sync.Once
	why   error // reason of the end, for the log; set before ended is closed

	sent, bytes, frames, cut, dropped atomic.Uint64
}

// heads contains the ids of the header extensions in a session; 0 means that the session does not use the extension.
type heads struct{ captureTime, playoutDelay, sendTime uint8 }

// open creates a session for an offer, and returns it with the answer.
func open(st *stream, offer string, at netip.Addr, l limits) (v *session, answer string, err error) {
	codec, err := choose(offer)
	if err != nil {
		return nil, "", err
	}
	v, sender, err := newSession(st, codec, way{lite: true, from: []netip.Addr{at}}, l)
	if err != nil {
		return nil, "", err
	}
	v.peer.OnDataChannel(func(c *pion.DataChannel) {
		if c.Label() == results {
			c.OnOpen(func() { v.channel.Store(c) })
		}
	})
	if answer, err = negotiate(v.peer, offer); err != nil {
		return nil, "", errors.Join(err, v.peer.GracefulClose())
	}
	v.agreed(sender)
	if st.sink != nil {
		answer = withLevel(answer, st.sink.ProfileLevelID())
	}
	return v, answer, nil
}

// newSession creates a session that is not yet negotiated, and returns it with the sender of its packets.
func newSession(st *stream, codec pion.RTPCodecParameters, w way, l limits) (v *session, sender *pion.RTPSender, err error) {
	network, err := newGuardedNet()
	if err != nil {
		return nil, nil, err
	}
	api, err := engine(codec, w, l, network)
	if err != nil {
		return nil, nil, err
	}
	peer, err := api.NewPeerConnection(pion.Configuration{})
	if err != nil {
		return nil, nil, err
	}
	v = &session{
		id: rand.Text(), stream: st, peer: peer, by: byWHEP, begins: func() {}, pictures: make(chan *picture, waiting), lost: true,
		up: make(chan struct{}), ended: make(chan struct{}), over: make(chan struct{}),
	}
	v.track, err = pion.NewTrackLocalStaticRTP(codec.RTPCodecCapability, "video", streamTag)
	if err == nil {
		sender, err = w.addTrack(peer, v.track)
	}
	if err != nil {
		return nil, nil, errors.Join(err, peer.GracefulClose())
	}
	peer.OnConnectionStateChange(v.changes)
	peer.SCTP().Transport().ICETransport().OnSelectedCandidatePairChange(func(pair *pion.ICECandidatePair) {
		if at, err := netip.ParseAddr(pair.Remote.Address); err == nil {
			network.connected(at.Unmap())
		}
	})
	return v, sender, nil
}

// agreed records which header extensions were negotiated, and starts to handle RTCP packets from the peer.
func (v *session) agreed(sender *pion.RTPSender) {
	for _, x := range sender.GetParameters().HeaderExtensions {
		switch x.URI {
		case captureTime:
			v.heads.captureTime = uint8(x.ID)
		case playoutDelay:
			v.heads.playoutDelay = uint8(x.ID)
		case sendTime:
			v.heads.sendTime = uint8(x.ID)
		}
	}
	go v.hear(sender) // until the peer is closed
}

// changes handles a change of the connection's state.
func (v *session) changes(s pion.PeerConnectionState) {
	switch s {
	case pion.PeerConnectionStateConnected:
		if v.connected.CompareAndSwap(false, true) {
			close(v.up)
		}
	case pion.PeerConnectionStateFailed:
		v.end(errSilent)
	case pion.PeerConnectionStateClosed:
		v.end(errDeleted)
	}
}

// hear handles RTCP packets from the peer.
func (v *session) hear(sender *pion.RTPSender) {
	for {
		list, _, err := sender.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range list {
			switch p := p.(type) {
			case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
				v.stream.sink.KeyFrame()
			case *rtcp.ReceiverReport:
				v.lose(p.Reports)
			case *rtcp.SenderReport:
				v.lose(p.Reports)
			case *rtcp.ReceiverEstimatedMaximumBitrate:
				v.stream.sink.Estimate(v.id, float64(p.Bitrate))
			}
		}
	}
}

// lose handles a peer's reception reports. Packets that were sent again count as lost.
func (v *session) lose(reports []rtcp.ReceptionReport) {
	for _, r := range reports { // there is only one track
		v.stream.sink.Lost(float64(r.FractionLost) / 256)
	}
}

// end makes the session end soon. Only the first reason is recorded.
func (v *session) end(why error) {
	v.once.Do(func() {
		v.why = why
		close(v.ended)
	})
}

// run sends pictures until the session ends, and then releases everything.
func (v *session) run(connect time.Duration) {
	deadline := time.NewTimer(connect)
	defer deadline.Stop()
	for up := v.up; ; {
		select {
		case <-up:
			deadline.Stop()
			up = nil
			v.begins()
		case <-deadline.C:
			v.end(errConnect)
		case p := <-v.pictures:
			v.send(p)
		case <-v.ended:
			v.close()
			return
		}
	}
}

func (v *session) close() {
	st := v.stats()
	v.stream.leave(v)
	if err := v.peer.GracefulClose(); err != nil {
		v.stream.log.Warn("webrtc: a session was closed with errors", "output", v.stream.name, "peer", st.Address, "error", err)
	}
	v.stream.log.Info("webrtc: a session has ended",
		"output", v.stream.name, "peer", st.Address, "frames", st.Frames, "lost", st.Cut, "reason", v.why)
}

// offerPicture offers a picture to the session. The caller must hold the stream's lock.
func (v *session) offerPicture(p *picture) {
	if !v.connected.Load() {
		return
	}
	if v.lost && !p.key {
		if v.frames.Load()+v.cut.Load() > 0 { // otherwise the session has not begun
			v.miss(p)
		}
		if !v.asked && len(v.pictures) == 0 { // not requested for a session that accepts nothing
			v.asked = true
			v.stream.sink.KeyFrame()
		}
		return
	}
	select {
	case v.pictures <- p:
		v.lost, v.asked = false, false
	default:
		v.lost = true
		v.miss(p)
	}
}

func (v *session) miss(p *picture) {
	v.cut.Add(1)
	v.dropped.Add(uint64(len(p.payloads)))
}

// send sends a picture, preceded by the results of its frame, if any. They are left out if too much data is still
// buffered in the data channel.
func (v *session) send(p *picture) {
	if c := v.channel.Load(); c != nil && p.message != nil && c.BufferedAmount() <= behind {
		_ = c.SendText(string(p.message)) // fails only while the session ends
	}
	h := packets.Header{Version: 2, Timestamp: p.timestamp}
	v.heads.write(&h, p)
	for i, payload := range p.payloads {
		if i > 0 && i%together == 0 {
			time.Sleep(pause)
		}
		h.SequenceNumber, h.Marker = v.sequence, i == len(p.payloads)-1
		v.sequence++
		v.heads.stamp(&h, time.Now())
		if err := v.track.WriteRTP(&packets.Packet{Header: h.Clone(), Payload: payload}); err != nil {
			v.cut.Add(1)
			v.dropped.Add(uint64(len(p.payloads) - i))
			return
		}
		v.sent.Add(1)
		v.bytes.Add(uint64(h.MarshalSize() + len(payload)))
	}
	v.frames.Add(1)
}

// write adds the extensions with the capture time and the request to show the frame without delay.
func (x heads) write(h *packets.Header, p *picture) {
	if x.captureTime != 0 {
		b, _ := packets.AbsCaptureTimeExtension{Timestamp: rtp.NTP(p.captured)}.Marshal() // never fails
		_ = h.SetExtension(x.captureTime, b)                                              // the id is valid, because it comes from the SDP
	}
	if x.playoutDelay != 0 {
		_ = h.SetExtension(x.playoutDelay, make([]byte, 3)) // minimum and maximum are 0
	}
}

// stamp adds a packet's sending time, which viewers use to estimate the bandwidth of their network.
func (x heads) stamp(h *packets.Header, now time.Time) {
	if x.sendTime != 0 {
		b, _ := packets.NewAbsSendTimeExtension(now).Marshal() // never fails
		_ = h.SetExtension(x.sendTime, b)                      // the id is valid, because it comes from the SDP
	}
}

// stats returns the session's counters in the form of a destination's.
func (v *session) stats() send.DestinationStats {
	st := send.DestinationStats{
		Address: v.address(), Reader: v.by, Packets: v.sent.Load(), Bytes: v.bytes.Load(), Frames: v.frames.Load(), Cut: v.cut.Load(),
		Dropped: v.dropped.Load(),
	}
	if v.by == byWHEP {
		st.Session = v.id
	}
	return st
}

// address returns the destination address of the packets, or "not connected".
func (v *session) address() string {
	if !v.connected.Load() { // pion may be about to begin
		return "not connected"
	}
	if pair, err := v.peer.SCTP().Transport().ICETransport().GetSelectedCandidatePair(); err == nil && pair != nil {
		return net.JoinHostPort(pair.Remote.Address, strconv.Itoa(int(pair.Remote.Port)))
	}
	return "not connected"
}
