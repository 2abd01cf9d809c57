// SPDX-License-Identifier: Apache-2.0

package web

import "net/http"

const maxChanging = 4 // requests that change something at a time

// changes is for requests that change something: of clients that may look, and of no other site's page. They may wait for a reload, so
// they take no turn of the other answers.
func (c *Config) changes() func(http.HandlerFunc) http.Handler {
	places := placesFor(maxChanging)
	own := http.NewCrossOriginProtection()
	return func(do http.HandlerFunc) http.Handler {
		return c.private(own.Handler(places.atMost("change something", do)))
	}
}

// addControls lets clients start and stop outputs.
func (c *Config) addControls(mux *http.ServeMux) {
	changes := c.changes()
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
