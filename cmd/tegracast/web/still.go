// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// A Still is one frame as a file.
type Still struct {
	Sequence uint64 // of the frame
	File     []byte
}

// stillTypes are the media types of stills.
var stillTypes = map[string]string{"png": "image/png", "dng": "image/x-adobe-dng"}

// still sends the next frame as a file: png or dng.
func (c *Config) still(w http.ResponseWriter, r *http.Request, name, kind string) {
	ctx, cancel := context.WithTimeout(r.Context(), stillWait)
	defer cancel()
	s, err := c.Still(ctx, name, kind)
	limit(w)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		http.Error(w, "no frame arrives", http.StatusServiceUnavailable)
		return
	case err != nil:
		refuse(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", stillTypes[kind])
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", fmt.Sprintf("%s-%08d.%s", name, s.Sequence, kind)))
	h.Set("Content-Length", strconv.Itoa(len(s.File)))
	h.Set("X-Sequence", strconv.FormatUint(s.Sequence, 10))
	_, _ = w.Write(s.File)
}
