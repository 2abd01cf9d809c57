// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
)

const (
	maxOffer   = 64 << 10 // bytes
	mediaType  = "application/sdp"
	retryAfter = "10" // seconds
)

// Why a session does not begin, or has ended.
var (
	errNoStream    = errors.New("there is no output of that name that sends H.264")
	errFull        = errors.New("so many watch already that there is no room: watch later")
	errOffer       = errors.New("this is no SDP offer of a WebRTC client")
	errNoH264      = errors.New("the offer has no video to be received as H.264 with packetization-mode=1: nothing else is sent")
	errOutputEnded = errors.New("the output has ended")
	errServerEnded = errors.New("the appliance ends")
	errDeleted     = errors.New("the other side has ended the session")
	errSilent      = errors.New("nothing comes from the other side any more")
	errConnect     = errors.New("the other side did not connect in time")
)

// ServeHTTP implements http.Handler by the values name and session of the request's path: POST of an offer to an output begins a session,
// and DELETE of its address ends it. Sessions are not changed: PATCH is refused.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		s.post(w, r)
	case http.MethodDelete:
		v := s.find(r.PathValue("name"), r.PathValue("session"))
		if v == nil {
			http.Error(w, "there is no such session: it has ended, or never was", http.StatusNotFound)
			return
		}
		v.end(errDeleted)
		select {
		case <-v.over:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	default:
		w.Header().Set("Allow", http.MethodDelete)
		http.Error(w, "a session does not change: put all candidates into the offer, or begin another session", http.StatusMethodNotAllowed)
	}
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != mediaType {
		w.Header().Set("Accept-Post", mediaType)
		http.Error(w, "send an SDP offer, as "+mediaType, http.StatusUnsupportedMediaType)
		return
	}
	offer, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOffer))
	if err != nil {
		status := http.StatusBadRequest
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, err.Error(), status)
		return
	}
	v, answer, err := s.watch(r.PathValue("name"), string(offer), localAddress(r))
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.log.Info("webrtc: a session begins", "output", v.stream.name, "peer", r.RemoteAddr)
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Location", r.URL.Path+"/"+v.id)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

func (s *Server) refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errNoStream):
		status = http.StatusNotFound
	case errors.Is(err, errFull):
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", retryAfter)
	case errors.Is(err, errOffer):
		status = http.StatusBadRequest
	case errors.Is(err, errNoH264):
		status = http.StatusUnprocessableEntity
	default:
		s.log.Warn("webrtc: a session cannot begin", "error", err)
	}
	http.Error(w, err.Error(), status)
}

// localAddress is the address of this machine that the client has reached.
func localAddress(r *http.Request) netip.Addr {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap().WithZone("")
}

// watch makes a session of a stream for an offer, and the answer. The session's packets leave from the address at.
func (s *Server) watch(name, offer string, at netip.Addr) (v *session, answer string, err error) {
	st, err := s.reserve(name)
	if err != nil {
		return nil, "", err
	}
	v, answer, err = open(st, offer, at, s.limits)
	if err != nil {
		s.giveBack()
		return nil, "", err
	}
	if !s.begin(v) {
		s.giveBack()
		return nil, "", errors.Join(errNoStream, v.peer.GracefulClose())
	}
	return v, answer, nil
}
