// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/preview"
)

const (
	maxStreams  = 16          // clients of the state's stream
	maxPictured = 16          // outputs whose pictures a client of the stream can follow
	reopenPause = time.Second // until a view is opened again after it could not be opened, or has ended
)

// A PictureNotice announces a picture of an output.
type PictureNotice struct {
	Output   string    `json:"output"`
	Sequence uint64    `json:"sequence"` // of the frame
	Time     time.Time `json:"time"`     // when the picture was made
	URL      string    `json:"url"`      // relative to the page
	// Width and Height are those of the frame, to which the regions of Results refer.
	Width   int             `json:"width"`
	Height  int             `json:"height"`
	Results []preview.Found `json:"results,omitempty"` // regions that stages found in the frame
}

// streamState returns a handler that sends the state as it changes (text/event-stream, HTML Living Standard §9.2): each
// second an event "sample" (Sample) and an event "status" (Status), an event "log" for each log record, and an event
// "picture" (PictureNotice) for each picture of the outputs in the parameter pictures (picturesAsked). The id of the last
// event lets a client resume: it gets all samples and records that it does not have and that are still kept. A client
// without an id, or with one of an earlier process, gets all that are kept.
func (c *Config) streamState(ended <-chan struct{}) http.Handler {
	return atMost(maxStreams, "follow the state", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pictures, err := picturesAsked(r.URL.Query().Get("pictures"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		notices := make(chan PictureNotice)
		for name, every := range pictures {
			go c.followPictures(ctx, name, every, notices)
		}
		x := stateStream{config: c}
		x.resume(cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
		w.Header().Set("Content-Type", "text/event-stream")
		x.text.WriteString("retry: 1000\n\n")
		x.run(ctx, w, notices, ended)
	}))
}

// picturesAsked parses a list NAME:MS,NAME:MS of the outputs of which a client asks for pictures. It returns for each the
// shortest time between two pictures. Without :MS it is 0.
func picturesAsked(list string) (map[string]time.Duration, error) {
	pictures := map[string]time.Duration{}
	if list == "" {
		return pictures, nil
	}
	for element := range strings.SplitSeq(list, ",") {
		name, text, _ := strings.Cut(element, ":")
		ms, err := strconv.ParseUint(cmp.Or(text, "0"), 10, 16)
		if err != nil || name == "" || ms > 60_000 {
			return nil, fmt.Errorf("pictures: %q: write the output's name, a colon and a number of milliseconds from 0 to 60000", element)
		}
		pictures[name] = time.Duration(ms) * time.Millisecond
	}
	if len(pictures) > maxPictured {
		return nil, fmt.Errorf("pictures: there are %d outputs: at most %d can be followed", len(pictures), maxPictured)
	}
	return pictures, nil
}

// A stateStream is one client's stream of the state.
type stateStream struct {
	config         *Config
	sample, record uint64 // numbers of the latest ones that the client has
	text           bytes.Buffer
}

// resume continues after the event with an id, START.SAMPLE.RECORD, if it is one of this process.
func (x *stateStream) resume(id string) {
	var start int64
	var sample, record uint64
	if n, _ := fmt.Sscanf(id, "%d.%d.%d", &start, &sample, &record); n == 3 && start == x.config.start {
		x.sample, x.record = sample, record
	}
}

// run sends events until the client leaves or the server ends.
func (x *stateStream) run(ctx context.Context, w http.ResponseWriter, notices <-chan PictureNotice, ended <-chan struct{}) {
	for {
		moreSamples := x.addSamples()
		moreRecords := x.addRecords()
		if !sendText(w, &x.text) {
			return
		}
		select {
		case <-moreSamples:
		case <-moreRecords:
		case notice := <-notices:
			x.add("picture", notice)
		case <-ctx.Done():
			return
		case <-ended:
			return
		}
	}
}

// sendText sends and empties a text, and reports whether the client has taken it within maxAnswer.
func sendText(w http.ResponseWriter, text *bytes.Buffer) bool {
	limit(w)
	_, err := text.WriteTo(w)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

// addSamples adds the new samples, followed by the status if there are any.
func (x *stateStream) addSamples() (more <-chan struct{}) {
	list, _, more := x.config.sampler.after(x.sample)
	for _, s := range list {
		x.sample = s.Number
		x.add("sample", s)
	}
	if len(list) > 0 {
		x.add("status", x.config.sharedStatus(x.sample))
	}
	return more
}

// sharedStatus returns the state as JSON, which it takes once per sample for all clients.
func (c *Config) sharedStatus(sample uint64) json.RawMessage {
	s := c.sampler
	s.sharing.Lock()
	defer s.sharing.Unlock()
	if s.shared == nil || s.sharedAt != sample {
		s.shared, _ = json.Marshal(c.status()) // cannot fail: the types can be encoded
		s.sharedAt = sample
	}
	return s.shared
}

// addRecords adds the new log records.
func (x *stateStream) addRecords() (more <-chan struct{}) {
	if x.config.Events == nil {
		return nil
	}
	list, last, more := x.config.Events.after(x.record)
	for i, record := range list {
		x.record = last - uint64(len(list)-1-i)
		x.add("log", json.RawMessage(record))
	}
	return more
}

func (x *stateStream) add(event string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		return // cannot happen: the types can be encoded, and records are JSON
	}
	fmt.Fprintf(&x.text, "event: %s\nid: %d.%d.%d\ndata: %s\n\n", event, x.config.start, x.sample, x.record, b)
}

// followPictures sends a notice of each picture of an output, at most one per the time every, until ctx ends.
func (c *Config) followPictures(ctx context.Context, name string, every time.Duration, notices chan<- PictureNotice) {
	for ctx.Err() == nil {
		if view, err := c.View(name); err == nil {
			announcePictures(ctx, view, name, every, notices)
			view.Close()
		}
		pause(ctx, reopenPause)
	}
}

// announcePictures sends notices of a view's pictures until ctx or the view ends.
func announcePictures(ctx context.Context, view View, name string, every time.Duration, notices chan<- PictureNotice) {
	var p *preview.Picture
	var err error
	for {
		if p, err = fresh(ctx, view, p); err != nil {
			return
		}
		notice := PictureNotice{Output: name, Sequence: p.Sequence, Time: p.Time, Width: p.Width, Height: p.Height, Results: p.Found}
		notice.URL = url.PathEscape(name) + ".jpg?picture=" + strings.Trim(pictureTag(p), `"`)
		select {
		case notices <- notice:
		case <-ctx.Done():
			return
		}
		pause(ctx, every)
	}
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
