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

// Reasons why a session does not begin, or has ended.
var (
	errNoStream    = errors.New("there is no output of that name that sends H.264")
	errFull        = errors.New("too many viewers already: try again later")
	errOffer       = errors.New("this is not the SDP offer of a WebRTC client")
	errNoH264      = errors.New("the offer has no video to be received as H.264 with packetization-mode=1: nothing else is sent")
	errOutputEnded = errors.New("the output has ended")
	errServerEnded = errors.New("the appliance is ending")
	errDeleted     = errors.New("the other side has ended the session")
	errSilent      = errors.New("the other side no longer answers")
	errConnect     = errors.New("the other side did not connect in time")
)

// ServeHTTP implements http.Handler. It uses the values name and session of the request's path: POST of an offer to an
// output begins a session, and DELETE of the session's URL ends it. OPTIONS gets the list of methods. Other methods are
// refused, among them PATCH, because sessions cannot be changed.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session := r.PathValue("session") != ""
	switch {
	case r.Method == http.MethodPost && !session:
		s.post(w, r)
	case r.Method == http.MethodDelete && session:
		v := s.find(r.PathValue("name"), r.PathValue("session"))
		if v == nil {
			http.Error(w, "there is no such session: it has ended, or never existed", http.StatusNotFound)
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
		s.refuseMethod(w, r.Method, session)
	}
}

// refuseMethod answers OPTIONS, and refuses every method that the endpoint, or a session, does not have (RFC 9725
// §4.2).
func (s *Server) refuseMethod(w http.ResponseWriter, method string, session bool) {
	allowed, remedy := "POST, OPTIONS", "send an SDP offer by POST, as "+mediaType
	if session {
		allowed, remedy = "DELETE, OPTIONS", "a session cannot be changed: put all candidates into the offer, or begin another session"
	} else {
		w.Header().Set("Accept-Post", mediaType)
	}
	w.Header().Set("Allow", allowed)
	if method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Error(w, remedy, http.StatusMethodNotAllowed)
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
	s.visits.Info("webrtc: a session begins", "output", v.stream.name, "peer", r.RemoteAddr)
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
		s.visits.Warn("webrtc: a session cannot begin", "error", err)
	}
	http.Error(w, err.Error(), status)
}

// localAddress returns this machine's address to which the client has connected, or the zero Addr if it is unknown.
func localAddress(r *http.Request) netip.Addr {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap().WithZone("")
}

// watch creates a session of a stream for an offer, and returns it with the answer. The session's packets are sent from
// the address at.
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
	if !s.startSession(v) {
		s.giveBack()
		return nil, "", errors.Join(errNoStream, v.peer.GracefulClose())
	}
	return v, answer, nil
}
