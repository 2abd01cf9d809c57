// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// clientLimit bounds a client's waiting, on a busy machine.
const clientLimit = 30 * time.Second

// playRTSP starts a reader of a stream, over TCP or to a pair of UDP ports, and returns its connection.
func playRTSP(from, transport string) (net.Conn, *bufio.Reader, error) {
	u, err := url.Parse(from)
	if err != nil {
		return nil, nil, err
	}
	c, err := net.DialTimeout("tcp", u.Host, clientLimit)
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(c)
	_ = c.SetDeadline(time.Now().Add(clientLimit))
	h, err := askRTSP(c, in, "SETUP "+from+"/trackID=0 RTSP/1.0\r\nTransport: "+transport+"\r\nCSeq: 1\r\n")
	if err == nil {
		id, _, _ := strings.Cut(h.Get("Session"), ";")
		_, err = askRTSP(c, in, "PLAY "+from+" RTSP/1.0\r\nSession: "+id+"\r\nCSeq: 2\r\n")
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, in, c.SetDeadline(time.Time{})
}

// askRTSP sends a request, before any packets arrive, and returns the headers of the answer.
func askRTSP(c net.Conn, in *bufio.Reader, request string) (textproto.MIMEHeader, error) {
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return nil, err
	}
	r := textproto.NewReader(in)
	status, err := r.ReadLine()
	if err != nil {
		return nil, err
	}
	if !strings.Contains(status, " 200 ") {
		return nil, errors.New(status)
	}
	return r.ReadMIMEHeader()
}

// watchWHEP begins a WebRTC session and returns when it is connected. It calls packets for each packet received.
func watchWHEP(ctx context.Context, at string, packets func()) (*pion.PeerConnection, error) {
	var s pion.SettingEngine
	s.SetIncludeLoopbackCandidate(true)
	s.SetInterfaceFilter(func(name string) bool { return name == "lo" })
	peer, err := pion.NewAPI(pion.WithSettingEngine(s)).NewPeerConnection(pion.Configuration{})
	if err != nil {
		return nil, err
	}
	if err := beginWHEP(ctx, peer, at, packets); err != nil {
		return nil, errors.Join(err, peer.Close())
	}
	return peer, nil
}

func beginWHEP(ctx context.Context, peer *pion.PeerConnection, at string, packets func()) error {
	up := make(chan struct{})
	peer.OnConnectionStateChange(func(s pion.PeerConnectionState) {
		if s == pion.PeerConnectionStateConnected {
			close(up)
		}
	})
	peer.OnTrack(func(track *pion.TrackRemote, _ *pion.RTPReceiver) {
		for {
			if _, _, err := track.ReadRTP(); err != nil {
				return
			}
			packets()
		}
	})
	offer, err := programtest.OfferWHEP(ctx, peer)
	if err != nil {
		return err
	}
	answer, err := offerWHEP(ctx, at, offer)
	if err != nil {
		return err
	}
	if err := peer.SetRemoteDescription(pion.SessionDescription{Type: pion.SDPTypeAnswer, SDP: answer}); err != nil {
		return err
	}
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// offerWHEP sends an offer and returns the answer. It retries while the page has no room.
func offerWHEP(ctx context.Context, at, offer string) (string, error) {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(offer))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/sdp")
		r.Close = true
		a, err := programtest.Client.Do(r)
		if err == nil {
			b, rerr := io.ReadAll(a.Body)
			_ = a.Body.Close()
			if a.StatusCode == http.StatusCreated {
				return string(b), rerr
			}
			err = fmt.Errorf("%s: %s", a.Status, b)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return "", err
		}
	}
}
