// SPDX-License-Identifier: Apache-2.0

package web

import "net/http"

const maxChanging = 4 // concurrent requests to the handlers of one call of changes

// changes returns a function that makes handlers of requests that change something, and limits how many run at a time.
// They may wait for a reload, so they do not use the turns of other answers.
func changes() func(http.HandlerFunc) http.Handler {
	places := placesFor(maxChanging)
	return func(do http.HandlerFunc) http.Handler { return places.atMost("change something", do) }
}

// addControls adds the handlers that start and stop outputs.
func (c *Config) addControls(mux *http.ServeMux) {
	changes := changes()
	for pattern, on := range map[string]bool{
		"POST /api/v1/outputs/{name}/start": true,
		"POST /api/v1/outputs/{name}/stop":  false,
	} {
		mux.Handle(pattern, changes(func(w http.ResponseWriter, r *http.Request) {
			err := c.Switch(r.Context(), r.PathValue("name"), on)
			limit(w)
			if err != nil {
				refuse(w, err)
				return
			}
			answer(w, nil)
		}))
	}
}
