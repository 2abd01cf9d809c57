// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"github.com/tegracast/tegracast/cmd/tegracast/preview"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// ErrNoOutput means that there is no output of that name.
var ErrNoOutput = errors.New("there is no output of that name")

// An Output describes an output and the operations that it allows.
type Output struct {
	Name  string   `json:"name"`
	From  string   `json:"from"`  // the source or stage that it reads from
	Sends string   `json:"sends"` // description of the payload
	To    []string `json:"to,omitempty"`
	Added []string `json:"added,omitempty"` // those of To that clients have added, and can remove
	// Troubles has the destinations in To that get no whole frames, and why, for as long as that lasts.
	Troubles map[string]string `json:"troubles,omitempty"`

	RTSP    string   `json:"rtsp,omitempty"`    // URL for reading
	Readers []Reader `json:"readers,omitempty"` // those that receive it by RTSP or WHEP, and the server to which it is published
	SDP     bool     `json:"sdp"`               // it is a stream with destinations, which an SDP file describes
	WHEP    bool     `json:"whep"`              // it can be watched by WebRTC
	Picture bool     `json:"picture"`           // it can be viewed
	Samples bool     `json:"samples"`           // its source is a sensor, whose samples can be downloaded
	Record  bool     `json:"record"`            // it is a recording
	Trigger bool     `json:"trigger"`           // it is a recording with triggers
	Files   bool     `json:"files"`             // its recordings can be listed
	Stopped bool     `json:"stopped"`           // a client has stopped it; a client or the next reload starts it again

	Recording *Recording `json:"recording,omitempty"` // nil: it is not an open recording
	pipeline.OutputStatus
}

// A Recording is the state of an open recording.
type Recording struct {
	Waiting bool   `json:"waiting"` // it waits for a trigger, and nothing is being saved
	File    string `json:"file"`    // path of the file that is being written; empty: none
	Bytes   int64  `json:"bytes"`   // of that file so far
	Folder  string `json:"folder"`
	Free    *int64 `json:"free_bytes,omitempty"` // of the folder's file system; nil: the disk does not answer
	Error   string `json:"error,omitempty"`      // why a stream is not recorded at the moment
}

// A Reader receives an output by RTSP or WHEP, or is the server to which it is published.
type Reader struct {
	Address string `json:"address"`
	By      string `json:"by"`                // protocol by which it receives
	Session string `json:"session,omitempty"` // last element of the URL of its WHEP session
	Frames  uint64 `json:"frames"`            // frames sent completely
	Lost    uint64 `json:"lost"`              // frames of which packets were not sent
}

// A Reading is a value of one of the board's sensors.
type Reading struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`            // °C or W
	Alarm bool    `json:"alarm,omitempty"` // the board is throttled
}

// A Line is a GPIO line of the board.
type Line struct {
	Name    string `json:"name"`
	Where   string `json:"where"` // its place on the board
	Output  bool   `json:"output"`
	On      bool   `json:"on"` // state of an output before inversion
	Pulses  uint64 `json:"pulses"`
	Missed  uint64 `json:"missed_pulses"`
	Errors  uint64 `json:"errors"`
	Edges   uint64 `json:"edges"` // of an input
	Lost    uint64 `json:"lost_edges"`
	Matched uint64 `json:"matched_frames"`
	Offset  int64  `json:"pps_offset_ns"` // offset of this machine's clock at the latest pulse per second
}

// A Clock is the clock of a card, which follows another one.
type Clock struct {
	Card string `json:"card"` // the FPGA's device file, or the name of a source that is a model
	pipeline.ClockReport
}

// A Group is a group of sources whose frames of one moment have one number.
type Group struct {
	Name       string        `json:"name"`
	Complete   uint64        `json:"complete"`         // groups with a frame of each source
	Incomplete uint64        `json:"incomplete"`       // groups in which a frame is missing
	Open       int           `json:"open"`             // groups that are not decided yet
	Missed     uint64        `json:"missed_triggers"`  // instants at which the program was too late to trigger at least one source
	Refused    uint64        `json:"refused_triggers"` // triggers that a source could not take
	Members    []GroupMember `json:"members"`
	Recent     []GroupGap    `json:"recent,omitempty"` // the latest incomplete groups, the newest last
}

// A GroupMember is a source in a group.
type GroupMember struct {
	Source  string            `json:"source"`
	Frames  uint64            `json:"frames"`            // all frames of the source
	Grouped uint64            `json:"grouped"`           // those in complete and incomplete groups
	Missing map[string]uint64 `json:"missing,omitempty"` // groups in which its frame is missing, by reason
	Other   map[string]uint64 `json:"other,omitempty"`   // frames in no such group, by reason
}

// A GroupGap is an incomplete group.
type GroupGap struct {
	Number  uint64    `json:"number"`
	At      time.Time `json:"at"`      // its instant, or the exposure that opened it
	Missing []string  `json:"missing"` // sources and reasons, as in "right lost"
}

// A Bus is the state of publishing on the message bus.
type Bus struct {
	Server    string `json:"server"`
	Connected bool   `json:"connected"`
	Trouble   string `json:"trouble,omitempty"` // why it is not connected
	Published uint64 `json:"published"`         // messages that the server has acknowledged
	Waiting   int    `json:"waiting"`           // messages that it has not yet acknowledged
	Stored    int64  `json:"stored_bytes"`      // bytes of the waiting messages that are on disk
	Lost      uint64 `json:"lost"`              // messages that will never be delivered
}

// A View shows the pictures of an output.
type View interface {
	// Next waits for a picture other than old, which may be nil.
	Next(ctx context.Context, old *preview.Picture) (*preview.Picture, error)
	Close()
}

// Status is the answer of /api/v1/status.
type Status struct {
	Version string    `json:"version"`
	Host    string    `json:"host"`            // name of the machine
	Model   string    `json:"model,omitempty"` // of the board, such as NVIDIA Jetson Orin Nano
	Time    time.Time `json:"time"`            // of this state
	Ready   bool      `json:"ready"`
	Stalled string    `json:"stalled,omitempty"` // the part that makes no progress
	Outputs []Output  `json:"outputs"`
	Parts   []Part    `json:"parts"` // in the order of the frames' way
	Board   []Reading `json:"board,omitempty"`
	Lines   []Line    `json:"lines,omitempty"`
	Clocks  []Clock   `json:"clocks,omitempty"`
	Groups  []Group   `json:"groups,omitempty"`
	Bus     *Bus      `json:"bus,omitempty"`
	// Exposure and WhiteBalance list what can be set.
	Exposure     []Exposure     `json:"exposure,omitempty"`
	WhiteBalance []WhiteBalance `json:"white_balance,omitempty"`
	// Events is the number of the latest event of /api/v1/events.
	Events uint64 `json:"events"`
	// Configurable reports whether the configuration can be read and changed, at /api/v1/config.
	Configurable bool `json:"configurable"`
	// Books holds the graph's statistics.
	Books pipeline.Stats `json:"books"`
}

const (
	maxWatchers  = 8               // concurrent requests for JPEG pictures, moving or not
	maxStills    = 1               // concurrent stills: each keeps a processor busy
	maxBeginning = 4               // WHEP sessions that begin or end at the same time
	firstWait    = 5 * time.Second // maximum wait for the current picture
	newerWait    = time.Second     // maximum wait for a picture that the client does not have
	stillWait    = 2 * time.Second // maximum wait for a frame

	staleView = 300 * time.Millisecond // age of a picture for which a client waits for the next one
)

//go:embed page
var pageFiles embed.FS

// addPage adds the handlers of the page and its scripts, of the description of the interface, and of the status.
func (c *Config) addPage(mux class) {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // cannot happen: the name is a constant
	}
	compress, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestCompression))
	if err != nil {
		panic(err) // cannot happen: the options are constants
	}
	page := compress(http.FileServerFS(files))
	paths := []string{"{$}"}
	for _, kind := range []string{"*.css", "*.js", "*.svg", "recordings.html"} {
		names, _ := fs.Glob(files, kind) // fails only for a wrong pattern
		paths = append(paths, names...)
	}
	for _, path := range paths {
		mux.Handle("GET /"+path, page)
	}
	mux.Handle("GET /api/v1/openapi.json", compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "openapi.json")
	})))
	mux.Handle("GET /api/v1/status", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, c.status())
	}))
}

// files returns a handler for the files of an output, which selects them by the extension in the path.
func (c *Config) files() http.Handler {
	split := func(r *http.Request) (name, kind string) {
		kind = path.Ext(r.PathValue("file"))
		return strings.TrimSuffix(r.PathValue("file"), kind), kind
	}
	stills := atMost(maxStills, "take a picture", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, kind := split(r)
		c.still(w, r, name, strings.TrimPrefix(kind, "."))
	}))
	pictures := atMost(maxWatchers, "watch", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, kind := split(r)
		c.show(w, r, name, kind == ".mjpeg")
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name, kind := split(r); kind {
		case ".sdp":
			c.describe(w, name)
		case ".png", ".dng":
			stills.ServeHTTP(w, r)
		case ".jpg", ".mjpeg":
			pictures.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// status returns the current state.
func (c *Config) status() Status {
	s := Status{
		Version: c.Version, Host: c.Host, Model: c.Model, Time: time.Now(), Outputs: c.Outputs(), Books: c.Stats(),
		Configurable: c.Configurator != nil,
	}
	s.Parts = newParts(&s.Books, s.Outputs)
	c.sampler.addHistory(s.Parts)
	if c.Board != nil {
		s.Board = c.Board()
	}
	if c.Lines != nil {
		s.Lines = c.Lines()
	}
	if c.Clocks != nil {
		s.Clocks = c.Clocks()
	}
	if c.Groups != nil {
		s.Groups = c.Groups()
	}
	if c.Bus != nil {
		s.Bus = c.Bus()
	}
	if c.Settings != nil {
		s.Exposure, s.WhiteBalance = c.Settings.Exposures(), c.Settings.WhiteBalances()
	}
	if c.Events != nil {
		s.Events = c.Events.number()
	}
	ready, stalled := c.Health()
	if s.Ready = ready; stalled != nil {
		s.Stalled = stalled.Error()
	}
	return s
}

func (c *Config) describe(w http.ResponseWriter, name string) {
	text, err := c.SDP(name)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/sdp")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name+".sdp"))
	limit(w)
	_, _ = w.Write(text)
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusConflict
	switch {
	case errors.Is(err, ErrNoOutput), errors.Is(err, ErrDestination), errors.Is(err, ErrNoControl), errors.Is(err, record.ErrNoFile):
		status = http.StatusNotFound
	case errors.Is(err, record.ErrHangs):
		status = http.StatusServiceUnavailable
	}
	http.Error(w, err.Error(), status)
}

// limit sets the write deadline for the next part of the answer.
func limit(w http.ResponseWriter) { within(w, maxAnswer) }

func within(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)) // every connection of a server has one
}

// pictureTag returns a picture's ETag. The frame number alone is not unique, because numbers begin again with each start.
func pictureTag(p *preview.Picture) string {
	return fmt.Sprintf(`"%d-%x"`, p.Sequence, crc32.ChecksumIEEE(p.JPEG))
}

// fresh waits for a picture other than old that is not older than staleView.
func fresh(ctx context.Context, view View, old *preview.Picture) (*preview.Picture, error) {
	p, err := view.Next(ctx, old)
	if err == nil && time.Since(p.Time) > staleView { // it was made for another client
		p, err = view.Next(ctx, p)
	}
	return p, err
}

// newer waits up to newerWait for the next picture, and returns the old one if none comes.
func newer(ctx context.Context, view View, old *preview.Picture) *preview.Picture {
	ctx, cancel := context.WithTimeout(ctx, newerWait)
	defer cancel()
	if p, err := view.Next(ctx, old); err == nil {
		return p
	}
	return old
}

// show sends the current picture. If the client already has it (RFC 9110 §13.1.2), show waits up to newerWait for the
// next one. Moving pictures follow one another until the client leaves, as a multipart/x-mixed-replace body. A slow
// client misses pictures.
func (c *Config) show(w http.ResponseWriter, r *http.Request, name string, moving bool) {
	view, err := c.View(name)
	if err != nil {
		refuse(w, err)
		return
	}
	defer view.Close()
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(c.patience, firstWait))
	defer cancel()
	p, err := fresh(ctx, view, nil)
	if err != nil {
		limit(w)
		http.Error(w, "no picture arrives: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	const boundary = "frame"
	h := w.Header()
	if !moving {
		tag := pictureTag(p)
		if tag == r.Header.Get("If-None-Match") {
			p = newer(r.Context(), view, p)
			tag = pictureTag(p)
		}
		h.Set("ETag", tag)
		h.Set("X-Sequence", strconv.FormatUint(p.Sequence, 10))
		h.Set("Content-Type", "image/jpeg")
		if r.URL.Query().Get("picture") == strings.Trim(tag, `"`) { // the URL is that of this very picture
			h.Set("Cache-Control", "private, max-age=60, immutable")
		}
		limit(w)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.JPEG)) // 304 if the client already has it
		return
	}
	h.Set("Content-Type", "multipart/x-mixed-replace; boundary="+boundary)
	for err == nil {
		within(w, cmp.Or(c.patience, maxAnswer))
		_, err = fmt.Fprintf(w, "--%s\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\nX-Sequence: %d\r\n\r\n%s\r\n",
			boundary, len(p.JPEG), p.Sequence, p.JPEG)
		if err = errors.Join(err, http.NewResponseController(w).Flush()); err == nil {
			p, err = view.Next(r.Context(), p)
		}
	}
}
