// SPDX-License-Identifier: Apache-2.0

package channel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind is the kind of a frame, which determines its sender and its payload.
type Kind uint8

const (
	Hello   Kind = iota + 1 // agent: the channel is open
	Request                 // harness: JSON of a Job
	Data                    // harness: bytes of the file to write
	Eof                     // harness: the file is complete
	Kill                    // harness: end the command, or the write, whose file is incomplete
	Stdout                  // agent: bytes
	Stderr                  // agent: bytes
	Exit                    // agent: JSON of an Ending
	kinds                   // one more than the last kind
)

// MaxPayload is the maximum payload of a frame in bytes. Piece is the maximum that senders of bulk data use.
const (
	MaxPayload = 1 << 20
	Piece      = 64 << 10
	header     = 9 // bytes before the payload
)

// ErrFrame is wrapped by the error for bytes that are not a frame: the two ends are out of step.
var ErrFrame = errors.New("channel: not a frame")

// Frame is one message. ID is the number of its job.
type Frame struct {
	Kind    Kind
	ID      uint32
	Payload []byte
}

// Op is the operation of a job.
type Op string

const (
	OpRun   Op = "run"   // runs a command
	OpWrite Op = "write" // writes a file from Data frames
	OpRead  Op = "read"  // reads a file to Stdout frames
)

// Job describes the work that a Request frame asks of the agent.
type Job struct {
	Op   Op
	Argv []string `json:",omitempty"` // for OpRun: the program and its arguments
	Path string   `json:",omitempty"` // for OpWrite and OpRead: the file
	Mode uint32   `json:",omitempty"` // for OpWrite: permission bits
}

// Ending is the result of a job. Status is the command's exit status, or 128 plus the signal's number if a signal ended
// it. Error is the reason why the job failed, or ""; a command's exit status is no such reason.
type Ending struct {
	Status int
	Error  string `json:",omitempty"`
}

// Conn sends and receives frames. Send may be called concurrently, Receive by one goroutine.
type Conn struct {
	rw   io.ReadWriter
	mu   sync.Mutex
	head [header]byte
}

// New returns a Conn over rw.
func New(rw io.ReadWriter) *Conn { return &Conn{rw: rw} }

// Send writes one frame. If the payload is longer than MaxPayload, it writes nothing and returns an error.
func (c *Conn) Send(kind Kind, id uint32, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("channel: payload of %d bytes, at most %d", len(payload), MaxPayload)
	}
	b := make([]byte, header, header+len(payload))
	binary.LittleEndian.PutUint32(b, uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[4:], id)
	b[8] = byte(kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.rw.Write(append(b, payload...))
	return err
}

// SendJSON writes one frame with v's JSON.
func (c *Conn) SendJSON(kind Kind, id uint32, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Send(kind, id, b)
}

// Receive returns the next frame, io.EOF if the stream ends before it, an error that wraps ErrFrame for anything other
// than a frame, or an error of reading.
func (c *Conn) Receive() (Frame, error) {
	if _, err := io.ReadFull(c.rw, c.head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.LittleEndian.Uint32(c.head[:])
	f := Frame{Kind: Kind(c.head[8]), ID: binary.LittleEndian.Uint32(c.head[4:])}
	if n > MaxPayload || f.Kind == 0 || f.Kind >= kinds {
		return Frame{}, fmt.Errorf("%w: kind %d, %d bytes", ErrFrame, f.Kind, n)
	}
	f.Payload = make([]byte, n)
	if _, err := io.ReadFull(c.rw, f.Payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return f, nil
}

// Writer returns a writer that sends its input as frames of one kind and job.
func (c *Conn) Writer(kind Kind, id uint32) io.Writer { return &writer{c: c, kind: kind, id: id} }

type writer struct {
	c    *Conn
	kind Kind
	id   uint32
}

func (w *writer) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		piece := p[n:min(n+Piece, len(p))]
		if err := w.c.Send(w.kind, w.id, piece); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}
