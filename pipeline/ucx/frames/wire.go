// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/printable"
)

// Versions of the protocol that this package supports.
const (
	oldest = 1
	newest = withGroups
)

// withGroups is the first version in which a frame's header has the number of its group.
const withGroups = 2

// Message numbers, as carried by UCX. A frame's data are its pixels, sent by rendezvous; all other messages are eager.
const (
	idHello     = 1 // receiver: supported versions
	idWelcome   = 2 // sender: chosen version, and the list of streams
	idBye       = 3 // either: why the connection ends
	idSubscribe = 4 // receiver: which frames it wants
	idAccept    = 5 // sender: format of the frames
	idCredit    = 6 // receiver: number of further frames that it can take; 0: the receiver only shows that it is alive
	idFrame     = 7 // sender
	idResults   = 8 // sender: results of the next frame
	idState     = 9 // sender, every two seconds: the receiver's counters
	lastID      = idState
)

// magic is the number that begins each hello: "TCUX".
const magic = 'T' | 'C'<<8 | 'U'<<16 | 'X'<<24

// Limits of messages. Those of names, releases and reasons are in bytes.
const (
	maxName    = 64
	maxRelease = 64
	maxReason  = 512
	maxStreams = 64
	maxControl = 8 << 10 // bytes of a control message
	maxResults = 1 << 20 // bytes of results
	maxCredits = 64
	maxFrame   = 1 << 30 // bytes of a frame
)

// errWire is wrapped by errors about malformed messages.
var errWire = errors.New("frames: malformed message")

var le = binary.LittleEndian

// A hello contains what a receiver supports.
type hello struct {
	oldest, newest uint16 // versions of the protocol
	release        string // the receiver's release of UCX
}

func (h *hello) append(b []byte) []byte {
	b = le.AppendUint32(b, magic)
	b = le.AppendUint16(b, h.oldest)
	b = le.AppendUint16(b, h.newest)
	return appendText(b, h.release)
}

// parseHello parses a hello. It ignores trailing bytes, because a later version may add fields.
func parseHello(b []byte) (h hello, err error) {
	r := reader{rest: b}
	if m := r.word32(); m != magic {
		return h, fmt.Errorf("%w: a hello begins with %#x", errWire, m)
	}
	h.oldest, h.newest, h.release = r.word16(), r.word16(), r.text(maxRelease)
	if r.bad || h.oldest == 0 || h.oldest > h.newest {
		return h, fmt.Errorf("%w: hello of %d bytes", errWire, len(b))
	}
	return h, nil
}

// A welcome contains the version that is used from now on, and the list of streams.
type welcome struct {
	version uint16
	release string // of UCX
	streams []stream
}

// A stream describes one stream of a sender.
type stream struct {
	name   string
	format pipeline.Format
}

func (w *welcome) append(b []byte) []byte {
	b = le.AppendUint16(b, w.version)
	b = appendText(b, w.release)
	b = le.AppendUint16(b, uint16(len(w.streams)))
	for _, s := range w.streams {
		b = appendFormat(appendText(b, s.name), s.format)
	}
	return b
}

func parseWelcome(b []byte) (w welcome, err error) {
	r := reader{rest: b}
	w.version, w.release = r.word16(), r.text(maxRelease)
	n := int(r.word16())
	if n > maxStreams {
		return w, fmt.Errorf("%w: welcome with %d streams", errWire, n)
	}
	for range n {
		s := stream{name: r.text(maxName)}
		if s.format, err = r.format(); err != nil {
			return w, err
		}
		w.streams = append(w.streams, s)
	}
	return w, r.checkEnd("welcome")
}

// A bye contains the reason why a connection ends.
type bye struct {
	code   Code
	reason string
}

func (y *bye) append(b []byte) []byte {
	b = le.AppendUint16(b, uint16(y.code))
	reason := y.reason[:min(len(y.reason), maxReason)]
	return append(le.AppendUint16(b, uint16(len(reason))), reason...)
}

func parseBye(b []byte) (y bye, err error) {
	r := reader{rest: b}
	y.code = Code(r.word16())
	n := int(r.word16())
	if n > maxReason {
		return y, fmt.Errorf("%w: reason of %d bytes", errWire, n)
	}
	y.reason = printable.Text(string(r.takeBytes(n)))
	return y, r.checkEnd("bye")
}

// A subscribe contains the description of the frames that a receiver wants.
type subscribe struct {
	stream  string // empty: the only one
	every   uint32 // take every nth frame; at least 1
	region  Region
	credits uint32
}

func (s *subscribe) append(b []byte) []byte {
	b = appendText(b, s.stream)
	for _, n := range []uint32{s.every, uint32(s.region.X), uint32(s.region.Y), uint32(s.region.Width), uint32(s.region.Height), s.credits} {
		b = le.AppendUint32(b, n)
	}
	return b
}

func parseSubscribe(b []byte) (s subscribe, err error) {
	r := reader{rest: b}
	s.stream, s.every = r.text(maxName), r.word32()
	s.region = Region{X: r.small(), Y: r.small(), Width: r.small(), Height: r.small()}
	s.credits = r.word32()
	if err := r.checkEnd("subscribe"); err != nil {
		return s, err
	}
	if s.every == 0 || s.credits > maxCredits {
		return s, fmt.Errorf("%w: every %d, %d credits", errWire, s.every, s.credits)
	}
	return s, nil
}

// parseAccept parses the body of an accept message: the format of the frames.
func parseAccept(b []byte) (pipeline.Format, error) {
	r := reader{rest: b}
	f, err := r.format()
	if err != nil {
		return f, err
	}
	return f, r.checkEnd("accept")
}

func appendCredit(b []byte, more uint32) []byte { return le.AppendUint32(b, more) }

func parseCredit(b []byte) (more uint32, err error) {
	r := reader{rest: b}
	more = r.word32()
	if err := r.checkEnd("credit"); err != nil {
		return 0, err
	}
	if more > maxCredits {
		return 0, fmt.Errorf("%w: %d credits", errWire, more)
	}
	return more, nil
}

// books are a sender's counters for one receiver.
type books struct {
	offered uint64 // frames of the stream since it subscribed
	sent    uint64
	lost    uint64 // frames that it wanted but that could not be sent to it
}

func (k *books) append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(b, k.offered), k.sent), k.lost)
}

func parseBooks(b []byte) (k books, err error) {
	r := reader{rest: b}
	k = books{r.word64(), r.word64(), r.word64()}
	return k, r.checkEnd("state")
}

// appendTime appends a time in ns since 1970, or 0 for an unknown time.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return le.AppendUint64(b, 0)
	}
	return le.AppendUint64(b, uint64(t.UnixNano()))
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}
