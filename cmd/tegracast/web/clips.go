// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tegracast/tegracast/pipeline/record"
)

// readWait is the maximum wait for a file to be read by a request of a class, whose turns others wait for.
const readWait = time.Second

// withClip returns a handler that calls show with the pictures that a request names: those of the recording NAME with
// the parameters from and to, as tegracast record export takes them. If the recording has not been read within wait, the
// client is to ask again; 0: the request waits for it.
func withClip(recordings *record.Recordings, wait time.Duration, show func(http.ResponseWriter, *http.Request, *record.Clip)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from, to record.Position
		for key, p := range map[string]*record.Position{"from": &from, "to": &to} {
			text := r.URL.Query().Get(key)
			if text == "" {
				continue
			}
			if err := p.UnmarshalText([]byte(text)); err != nil {
				http.Error(w, key+": "+err.Error(), http.StatusBadRequest)
				return
			}
		}
		ctx := r.Context()
		if wait > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, wait)
			defer cancel()
		}
		clip, err := recordings.OpenClip(ctx, r.PathValue("name"), from, to)
		switch {
		case errors.Is(err, record.ErrRange):
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case errors.Is(err, record.ErrReading):
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		case err != nil:
			refuse(w, err)
			return
		}
		defer func() { _ = clip.Close() }() // it was only read
		show(w, r, clip)
	})
}

// sendClip sends the pictures as an MP4 file. Browsers play it, and ask for any part of it.
func sendClip(w http.ResponseWriter, r *http.Request, clip *record.Clip) {
	h := w.Header()
	h.Set("Content-Type", "video/mp4")
	h.Set("ETag", `"`+clip.Tag()+`"`)
	h.Set("Content-Disposition", fmt.Sprintf("inline; filename=%q", clip.Name()))
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(clip, 0, clip.Size()))
}

// showFrames sends the notes of the first pictures.
func showFrames(w http.ResponseWriter, _ *http.Request, clip *record.Clip) {
	span, size := RecordedSpan{Begin: clip.Begin().Seconds(), Frames: []RecordedFrame{}, Last: clip.Last()}, 0
	for p, err := range clip.Pictures() {
		f := RecordedFrame{Seconds: p.At.Seconds()}
		if err == nil {
			err = json.Unmarshal(p.Note, &f.Note)
		}
		if err != nil {
			refuse(w, fmt.Errorf("%s: %w", clip.Name(), err))
			return
		}
		if span.More = len(span.Frames) == maxNotes || size > maxNoteBytes; span.More {
			break
		}
		span.Frames, size = append(span.Frames, f), size+len(p.Note)
	}
	writeJSON(w, http.StatusOK, span)
}

// inParts returns a handler whose answers may be of any length: a client loses its connection only if it takes nothing
// for maxAnswer.
func inParts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(partWriter{w}, r)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // every connection of a server has one
	})
}

// A partWriter sets the write deadline before each part of an answer.
type partWriter struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (w partWriter) Write(b []byte) (int, error) {
	limit(w.ResponseWriter)
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the original http.ResponseWriter for http.ResponseController.
func (w partWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
