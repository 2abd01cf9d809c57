// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const bodyLimit = 5 * time.Second // for receiving a request's body

// readBody returns a handler that reads a request's body before it calls next, so that a slow client does not delay
// others.
func readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyLimit)) // every connection of a server has one
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxConfiguration))
		var long *http.MaxBytesError
		switch {
		case errors.As(err, &long):
			refuseUnread(w, r, fmt.Sprintf("a request has at most %d bytes", maxConfiguration), http.StatusRequestEntityTooLarge)
		case err != nil:
			refuseUnread(w, r, "the request's body did not arrive: "+err.Error(), http.StatusRequestTimeout)
		default:
			r.Body = io.NopCloser(bytes.NewReader(text))
			next.ServeHTTP(w, r)
		}
	})
}

// refuseUnread refuses a request. It closes the connection if the request may have a body, since net/http would wait for
// the rest.
func refuseUnread(w http.ResponseWriter, r *http.Request, why string, status int) {
	leaveUnread(w, r)
	http.Error(w, why, status)
}

// leaveUnread closes the connection after the answer if the request may have a body.
func leaveUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a time in the past
		w.Header().Set("Connection", "close")
	}
}
