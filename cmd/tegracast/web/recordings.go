// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline/record"
)

// A RecordingList is the answer of /api/v1/recordings.
type RecordingList struct {
	Files   []RecordingFile   `json:"files"` // the newest first
	More    bool              `json:"more"`  // there are older ones
	Folders []RecordingFolder `json:"folders"`
}

// A RecordingFile is a file of a recording. What a file contains is only known when it is not being written, and was
// read: encoding is then not empty.
type RecordingFile struct {
	File       string    `json:"file"` // its name, without the folder
	Output     string    `json:"output"`
	Begin      time.Time `json:"begin"`
	Bytes      int64     `json:"bytes"`
	State      string    `json:"state,omitempty"`    // finished, being written or not finished; empty: not known yet
	Encoding   string    `json:"encoding,omitempty"` // h264, jpeg, or the pixel format
	Seconds    float64   `json:"seconds"`            // from the first frame to the last one
	Frames     int       `json:"frames"`
	FirstFrame uint64    `json:"first_frame"` // its number
	LastFrame  uint64    `json:"last_frame"`
	Width      int       `json:"width"`
	Height     int       `json:"height"`
	Error      string    `json:"error,omitempty"` // why it cannot be read, or not as a whole
}

// A RecordingFolder is a folder of recordings.
type RecordingFolder struct {
	Folder string `json:"folder"`
	Free   int64  `json:"free_bytes"` // of its file system
	Total  int64  `json:"total_bytes"`
	Error  string `json:"error,omitempty"` // why neither its space nor its files are known
}

// A RecordedSpan is the answer of /api/v1/recordings/NAME/frames.
type RecordedSpan struct {
	Begin  float64         `json:"begin"`  // of the video of the span, in seconds since the recording's first picture
	Frames []RecordedFrame `json:"frames"` // in the order of the pictures
	More   bool            `json:"more"`   // the span has further ones
	Last   uint64          `json:"last"`   // number of the last frame of the span
}

// A RecordedFrame describes a picture of a recording.
type RecordedFrame struct {
	Seconds float64                    `json:"seconds"` // of the picture in the video of the span
	Note    map[string]json.RawMessage `json:"note"`    // the frame's number, times and results, as in MCAP recordings
}

const (
	maxRecordings  = 1000    // files in an answer
	maxNotes       = 1000    // pictures in an answer
	maxNoteBytes   = 1 << 20 // of their notes, apart from the last one
	maxDownloading = 8       // concurrent requests for files of recordings
	maxListing     = 2       // concurrent requests for what is in them, and to delete them
)

// addRecordings adds the handlers for the files of recordings.
func (c *Config) addRecordings(mux *http.ServeMux) {
	list := newClass(mux, maxListing)
	list.Handle("GET /api/v1/recordings", http.HandlerFunc(c.listRecordings))
	list.Handle("GET /api/v1/recordings/{name}/frames", withClip(c.Recordings, readWait, showFrames))
	list.Handle("DELETE /api/v1/recordings/{name}", http.HandlerFunc(c.deleteRecording))
	places := placesFor(maxDownloading)
	download := func(pattern string, h http.Handler) {
		mux.Handle(pattern, places.atMost("download recordings", inParts(h)))
	}
	download("GET /api/v1/recordings/{name}", http.HandlerFunc(c.sendRecording))
	download("GET /api/v1/recordings/{name}/video.mp4", withClip(c.Recordings, 0, sendClip))
}

func (c *Config) listRecordings(w http.ResponseWriter, r *http.Request) {
	found, err := c.Recordings.Catalog(r.URL.Query().Get("before"), maxRecordings)
	if err != nil {
		refuse(w, err)
		return
	}
	l := RecordingList{Files: []RecordingFile{}, More: found.More, Folders: []RecordingFolder{}}
	for _, f := range found.Files {
		l.Files = append(l.Files, RecordingFile{
			File: filepath.Base(f.Path), Output: f.Output, Begin: f.Begun, Bytes: f.Bytes, State: string(f.State), Encoding: f.Encoding,
			Seconds: f.Last.Sub(f.First).Seconds(), Frames: f.Frames, FirstFrame: f.FirstFrame, LastFrame: f.LastFrame,
			Width: f.Width, Height: f.Height, Error: strings.TrimPrefix(f.Error, f.Path+": "),
		})
	}
	for _, d := range found.Folders {
		x := RecordingFolder{Folder: d.Path, Free: d.Free, Total: d.Total}
		if d.Err != nil {
			x.Error = d.Err.Error()
		}
		l.Folders = append(l.Folders, x)
	}
	writeJSON(w, http.StatusOK, l)
}

func (c *Config) deleteRecording(w http.ResponseWriter, r *http.Request) {
	if err := c.Recordings.Delete(r.PathValue("name"), "http from "+r.RemoteAddr); err != nil {
		refuse(w, err)
		return
	}
	answer(w, nil)
}

// sendRecording sends the file as it is.
func (c *Config) sendRecording(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	f, err := c.Recordings.Open(name)
	if err != nil {
		refuse(w, err)
		return
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		refuse(w, err)
		return
	}
	kind := "application/octet-stream"
	if strings.HasSuffix(name, record.VideoExtension) {
		kind = "video/mp4"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	http.ServeContent(w, r, "", info.ModTime(), f)
}
