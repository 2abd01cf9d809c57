// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"net/http"
)

// ErrDestination means that Config.Send has not added the destination to the stream, so Config.Unsend cannot remove it.
var ErrDestination = errors.New("the stream is not sent there at a client's request")

// addDestinations adds the handlers that add destinations to streams and remove them.
func (c *Config) addDestinations(mux class) {
	for pattern, do := range map[string]http.HandlerFunc{
		"PUT /api/v1/outputs/{name}/destinations/{destination}":    c.send,
		"DELETE /api/v1/outputs/{name}/destinations/{destination}": c.unsend,
	} {
		mux.Handle(pattern, do)
	}
}

func (c *Config) send(w http.ResponseWriter, r *http.Request) {
	text, err := c.Send(r.Context(), r.PathValue("name"), r.PathValue("destination"))
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/sdp")
	_, _ = w.Write(text)
}

func (c *Config) unsend(w http.ResponseWriter, r *http.Request) {
	if err := c.Unsend(r.PathValue("name"), r.PathValue("destination")); err != nil {
		refuse(w, err)
		return
	}
	answer(w, nil)
}
