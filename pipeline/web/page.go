// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/preview"
)

// ErrNoOutput means that there is no output of that name.
var ErrNoOutput = errors.New("there is no output of that name")

// An Output is what can be done with an output.
type Output struct {
	Name    string   `json:"name"`
	Sends   string   `json:"sends"` // in words
	To      []string `json:"to,omitempty"`
	RTSP    string   `json:"rtsp,omitempty"`    // where it is read
	Readers []Reader `json:"readers,omitempty"` // who read it there, or watch it
	SDP     bool     `json:"sdp"`               // it is a stream, which a file describes
	WHEP    bool     `json:"whep"`              // it is watched by WebRTC
	Picture bool     `json:"picture"`           // it can be looked at
	Samples bool     `json:"samples"`           // its source is a sensor, whose samples can be had
	Record  bool     `json:"record"`            // it is a recording
	Trigger bool     `json:"trigger"`           // it is a recording that waits for a trigger
	Stopped bool     `json:"stopped"`           // a client has stopped it, until a client starts it or the next reload
	pipeline.OutputStatus
}

// A Reader takes an output by RTSP or WHEP.
type Reader struct {
	Address string `json:"address"`
	By      string `json:"by"`     // in words
	Frames  uint64 `json:"frames"` // sent as a whole
	Lost    uint64 `json:"lost"`   // frames of which all or some packets were not sent
}

// A Reading is what a sensor of the board says.
type Reading struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`            // °C or W
	Alarm bool    `json:"alarm,omitempty"` // the board is held back
}

// A Line is a GPIO line of the board.
type Line struct {
	Name    string `json:"name"`
	Where   string `json:"where"` // on the board
	Output  bool   `json:"output"`
	On      bool   `json:"on"` // what an output is driven with, if not inverted
	Pulses  uint64 `json:"pulses"`
	Missed  uint64 `json:"missed_pulses"`
	Errors  uint64 `json:"errors"`
	Edges   uint64 `json:"edges"` // of an input
	Lost    uint64 `json:"lost_edges"`
	Matched uint64 `json:"matched_frames"`
	Offset  int64  `json:"pps_offset_ns"` // of this machine's clock at the last pulse per second
}

// A Bus is how messages leave for the bus.
type Bus struct {
	Server    string `json:"server"`
	Connected bool   `json:"connected"`
	Trouble   string `json:"trouble,omitempty"` // why it is not
	Published uint64 `json:"published"`         // messages that the server has for sure
	Waiting   int    `json:"waiting"`           // messages that it has not yet
	Stored    int64  `json:"stored_bytes"`      // of these, on disk
	Lost      uint64 `json:"lost"`              // messages that it never will have
}

// A View is a look at an output.
type View interface {
	// Next waits for a picture that is not old, which may be nil.
	Next(ctx context.Context, old *preview.Picture) (*preview.Picture, error)
	Close()
}

// Status is the answer of /api/v1/status.
type Status struct {
	Version string    `json:"version"`
	Ready   bool      `json:"ready"`
	Stalled string    `json:"stalled,omitempty"` // what makes no progress
	Outputs []Output  `json:"outputs"`
	Board   []Reading `json:"board,omitempty"`
	Lines   []Line    `json:"lines,omitempty"`
	Bus     *Bus      `json:"bus,omitempty"`
	// Exposure and WhiteBalance are what can be set.
	Exposure     []Exposure     `json:"exposure,omitempty"`
	WhiteBalance []WhiteBalance `json:"white_balance,omitempty"`
	// Configurable says that the configuration can be seen and changed, /api/v1/config.
	Configurable bool `json:"configurable"`
	// Books are the graph's.
	Books pipeline.Stats `json:"books"`
}

const (
	maxWatchers  = 8               // of moving pictures
	maxStills    = 1               // that are made at a time: each keeps a processor busy
	maxBeginning = 4               // sessions by WHEP at a time, or ending
	firstWait    = 5 * time.Second // for a picture
	stillWait    = 2 * time.Second // for a frame
)

//go:embed page
var pageFiles embed.FS

// addPage adds what not everyone may see, but for files.
func (c *Config) addPage(mux class) {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the name is a constant
	}
	page := http.FileServerFS(files)
	for _, path := range []string{"/{$}", "/page.css", "/page.js", "/watch.js", "/configure.js", "/settings.js"} {
		mux.Handle("GET "+path, c.private(page))
	}
	mux.Handle("GET /api/v1/openapi.json", c.private(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "openapi.json")
	})))
	mux.Handle("GET /api/v1/status", c.private(http.HandlerFunc(c.status)))
}

// files answers what is asked of an output, by the end of the path.
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
	show := c.private(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name, kind := split(r); kind {
		case ".sdp":
			c.describe(w, name)
		case ".png", ".dng":
			stills.ServeHTTP(w, r)
		default:
			pictures.ServeHTTP(w, r)
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Ext(r.PathValue("file")) {
		case ".sdp", ".jpg", ".mjpeg", ".png", ".dng":
			show.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

const forThisMachine = "only this machine itself can look, at http://127.0.0.1 or http://localhost; " +
	"from another one: ssh -L 8080:127.0.0.1:8080 HOST, or by TLS and a password (tegracast config tls)"

// private admits clients of this machine, and those that Access lets in. The former must name the machine as such: else a page of
// another site, whose name leads here, could read the answers through a browser of this machine.
func (c *Config) private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		switch {
		case here(r):
		case c.door == nil:
			http.Error(w, forThisMachine, http.StatusForbidden)
			return
		case !c.door.admits(w, r):
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guarded is private where there is a password. Without one everyone may ask who reaches the address.
func (c *Config) guarded(next http.Handler) http.Handler {
	if c.door == nil {
		return next
	}
	return c.private(next)
}

// here says whether a request is of this machine, and names it as such.
func here(r *http.Request) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	host, _, splitErr := net.SplitHostPort(r.Host)
	if splitErr != nil {
		host = r.Host
	}
	asked, _ := netip.ParseAddr(strings.Trim(host, "[]")) // the zero Addr is no loopback address
	return err == nil && client.Addr().Unmap().IsLoopback() && (host == "localhost" || asked.IsLoopback())
}

func (c *Config) status(w http.ResponseWriter, _ *http.Request) {
	s := Status{Version: c.Version, Outputs: c.Outputs(), Books: c.Stats(), Configurable: c.Configurator != nil}
	if c.Board != nil {
		s.Board = c.Board()
	}
	if c.Lines != nil {
		s.Lines = c.Lines()
	}
	if c.Bus != nil {
		s.Bus = c.Bus()
	}
	if c.Settings != nil {
		s.Exposure, s.WhiteBalance = c.Settings.Exposures(), c.Settings.WhiteBalances()
	}
	ready, stalled := c.Health()
	if s.Ready = ready; stalled != nil {
		s.Stalled = stalled.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // into memory
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
	if errors.Is(err, ErrNoOutput) || errors.Is(err, ErrDestination) || errors.Is(err, ErrNoControl) {
		status = http.StatusNotFound
	}
	http.Error(w, err.Error(), status)
}

// limit gives the client time to take what is written next.
func limit(w http.ResponseWriter) { within(w, maxAnswer) }

func within(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)) // every connection of a server has one
}

// show sends the picture of now, or one after the other until the client goes: a multipart/x-mixed-replace body. A client that reads
// slowly misses pictures.
func (c *Config) show(w http.ResponseWriter, r *http.Request, name string, moving bool) {
	view, err := c.View(name)
	if err != nil {
		refuse(w, err)
		return
	}
	defer view.Close()
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(c.patience, firstWait))
	defer cancel()
	p, err := view.Next(ctx, nil)
	if err != nil {
		limit(w)
		http.Error(w, "no picture comes: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	const boundary = "frame"
	h := w.Header()
	if !moving {
		h.Set("Content-Type", "image/jpeg")
		h.Set("Content-Length", strconv.Itoa(len(p.JPEG)))
		h.Set("X-Sequence", strconv.FormatUint(p.Sequence, 10))
		limit(w)
		_, _ = w.Write(p.JPEG)
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
