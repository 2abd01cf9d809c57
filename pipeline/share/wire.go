// SPDX-License-Identifier: Apache-2.0

package share

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

var le = binary.LittleEndian

// Message types, in the first 4 bytes.
const (
	kindSubscribe = 1 // from a consumer
	kindReady     = 2
	kindAnswer    = 3
	kindWelcome   = 17 // from the program
	kindFrame     = 18
	kindBye       = 19
)

const (
	magic   = 'T' | 'G'<<8 | 'S'<<16 | 'H'<<24
	version = 1

	versionFlags = 2 // of a subscription that has flags

	subscribeSize = 5 * 4 // version 1
	flagsSize     = 6 * 4 // version 2
	readySize     = 16
	answerSize    = 4 * 8            // plus the results
	welcomeSize   = 6*4 + formatSize // plus the name
	formatSize    = 6 * 4
	frameSize     = 2*4 + 4*8 + formatSize + 7*8 + 4*4 + 2*8 // plus the group, and the results
	groupSize     = 8                                        // for consumers that have asked for it
	byeSize       = 2 * 4                                    // plus the reason

	maxEvery   = 1 << 20
	maxName    = 64
	maxReason  = 512
	maxResults = 16 << 10
	maxAnswer  = 48 << 10 // bytes of results from a consumer
	maxSlots   = 1 << 10
	maxMessage = frameSize + groupSize + maxResults // from the program
)

// Flags of a subscription.
const (
	flagAnswers = 1 // it returns results
	flagGroups  = 2 // its frames have the number of their group
)

// Flags of a frame, besides those of package pipeline.
const (
	flagCRC       = 1 << 16 // crc is valid
	flagNoResults = 1 << 17 // the results were left out: they were larger than maxResults, or impossible in JSON
	knownFlags    = flagCRC | flagNoResults | uint32(pipeline.FlagPadded|pipeline.FlagUnverified)
)

// errWire is wrapped by all errors about invalid messages.
var errWire = errors.New("share: invalid message")

// A Code is the reason why a connection ends.
type Code uint32

const (
	CodeEnd     Code = iota // the output ends
	CodeBroken              // an invalid message
	CodeBusy                // the output has its maximum number of consumers
	CodeRefused             // the process may not have the frames
	CodeSlow                // the process has not subscribed in time
)

func (c Code) String() string {
	if names := [...]string{"end", "broken", "busy", "refused", "slow"}; int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("code %d", uint32(c))
}

// subscribe is a consumer's first message.
type subscribe struct {
	policy  pipeline.Policy
	every   uint32
	answers bool // it returns results
	groups  bool // it takes the numbers of groups
}

func (s subscribe) append(b []byte) []byte {
	v, flags := uint32(version), s.flags()
	if flags != 0 {
		v = versionFlags
	}
	for _, v := range []uint32{kindSubscribe, magic, v, uint32(s.policy), s.every} {
		b = le.AppendUint32(b, v)
	}
	if flags != 0 {
		b = le.AppendUint32(b, flags)
	}
	return b
}

// flags returns the flags of a subscription, which make it one of version 2.
func (s subscribe) flags() (f uint32) {
	if s.answers {
		f |= flagAnswers
	}
	if s.groups {
		f |= flagGroups
	}
	return f
}

func parseSubscribe(b []byte) (s subscribe, err error) {
	if len(b) < subscribeSize || le.Uint32(b) != kindSubscribe || le.Uint32(b[4:]) != magic {
		return s, fmt.Errorf("%w: %d bytes instead of a subscription", errWire, len(b))
	}
	v, policy, every, flags := le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:]), uint32(0)
	if v == versionFlags && len(b) == flagsSize {
		flags = le.Uint32(b[20:])
	}
	switch {
	case v != version && v != versionFlags:
		return s, fmt.Errorf("%w: version %d of the protocol, this is %d", errWire, v, versionFlags)
	case v == version && len(b) != subscribeSize, v == versionFlags && (flags == 0 || flags&^(flagAnswers|flagGroups) != 0):
		return s, fmt.Errorf("%w: a subscription of version %d with %d bytes, or unknown flags", errWire, v, len(b))
	case policy > uint32(pipeline.Block) || every == 0 || every > maxEvery:
		return s, fmt.Errorf("%w: a subscription with policy %d to every frame in %d", errWire, policy, every)
	}
	return subscribe{pipeline.Policy(policy), every, flags&flagAnswers != 0, flags&flagGroups != 0}, nil
}

// ready requests more frames, returns one, or both.
type ready struct {
	more  uint32
	lease uint64 // 0: none
}

func (r ready) append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint32(le.AppendUint32(b, kindReady), r.more), r.lease)
}

func parseReady(b []byte) (r ready, err error) {
	if len(b) != readySize || le.Uint32(b) != kindReady {
		return r, fmt.Errorf("%w: %d bytes instead of a return", errWire, len(b))
	}
	r = ready{le.Uint32(b[4:]), le.Uint64(b[8:])}
	if r.more == 0 && r.lease == 0 {
		return r, fmt.Errorf("%w: a return of nothing", errWire)
	}
	return r, nil
}

// answer returns the results of a frame, which the consumer must hold.
type answer struct {
	lease        uint64
	began, ended time.Time // zero: not given
	text         []byte    // JSON
}

func (a *answer) append(b []byte) []byte {
	b = le.AppendUint32(le.AppendUint32(b, kindAnswer), uint32(len(a.text)))
	b = appendTime(appendTime(le.AppendUint64(b, a.lease), a.began), a.ended)
	return append(b, a.text...)
}

func parseAnswer(b []byte) (a answer, err error) {
	if len(b) < answerSize || len(b) > answerSize+maxAnswer || le.Uint32(b) != kindAnswer || int(le.Uint32(b[4:])) != len(b)-answerSize {
		return a, fmt.Errorf("%w: %d bytes instead of results of at most %d", errWire, len(b), maxAnswer)
	}
	a = answer{lease: le.Uint64(b[8:]), text: b[answerSize:]}
	a.began, a.ended = parseTime(b[16:]), parseTime(b[24:])
	return a, nil
}

// parseTime parses a time from appendTime.
func parseTime(b []byte) time.Time {
	if ns := int64(le.Uint64(b)); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// welcome is the reply to a subscription.
type welcome struct {
	holds  uint32
	name   string
	format pipeline.Format
}

func (w welcome) append(b []byte) []byte {
	for _, v := range []uint32{kindWelcome, version, w.holds, uint32(w.format.Rate.Num), uint32(w.format.Rate.Den), uint32(len(w.name))} {
		b = le.AppendUint32(b, v)
	}
	return append(appendFormat(b, w.format), w.name...)
}

func parseWelcome(b []byte) (w welcome, err error) {
	if len(b) < welcomeSize || le.Uint32(b) != kindWelcome || le.Uint32(b[4:]) != version {
		return w, fmt.Errorf("%w: %d bytes instead of a welcome", errWire, len(b))
	}
	if w.format, err = parseFormat(b[24:]); err != nil {
		return w, err
	}
	w.holds, w.name = le.Uint32(b[8:]), string(b[welcomeSize:])
	num, den := le.Uint32(b[12:]), le.Uint32(b[16:])
	if w.holds == 0 || w.holds > maxFrames || len(w.name) > maxName || le.Uint32(b[20:]) != uint32(len(w.name)) || num > 1<<30 || den > 1<<30 {
		return w, fmt.Errorf("%w: a welcome with %d frames and a name of %d bytes", errWire, w.holds, len(w.name))
	}
	w.format.Rate = pipeline.Rate{Num: int(num), Den: int(den)}
	return w, w.format.Validate()
}

func appendFormat(b []byte, f pipeline.Format) []byte {
	b = le.AppendUint32(le.AppendUint32(b, uint32(f.Pixel)), uint32(f.Width))
	b = le.AppendUint32(le.AppendUint32(b, uint32(f.Height)), uint32(f.Stride))
	return le.AppendUint32(le.AppendUint32(b, uint32(f.Color)), 0)
}

// parseFormat parses a format; b must be long enough. The rate is not included.
func parseFormat(b []byte) (f pipeline.Format, err error) {
	width, height, stride, color := le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:])
	if width > 1<<15 || height > 1<<15 || stride > 1<<24 || color > uint32(pipeline.BT601Limited) || le.Uint32(b[20:]) != 0 {
		return f, fmt.Errorf("%w: a format of %d x %d", errWire, width, height)
	}
	f = pipeline.Format{
		Pixel: pipeline.PixelFormat(le.Uint32(b)), Width: int(width), Height: int(height), Stride: int(stride), Color: pipeline.Colorimetry(color),
	}
	if err := f.Validate(); err != nil {
		return f, fmt.Errorf("%w: %w", errWire, err)
	}
	return f, nil
}

// header describes a frame to a consumer.
type header struct {
	slot          uint32
	lease         uint64
	sequence      uint64
	grouped       bool   // the message has group, because the consumer has asked for it
	group         uint64 // 0: none
	offset        uint64
	length        uint64
	format        pipeline.Format
	times         pipeline.Times
	sent          time.Time
	flags         uint32
	crc           uint32
	offered, lost uint64
	results       []byte
}

func (h *header) append(b []byte) []byte {
	b = le.AppendUint32(le.AppendUint32(b, kindFrame), h.slot)
	b = le.AppendUint64(le.AppendUint64(b, h.lease), h.sequence)
	b = le.AppendUint64(le.AppendUint64(b, h.offset), h.length)
	b = appendFormat(b, h.format)
	b = appendTime(appendTime(b, h.times.ExposureStart), h.times.ExposureEnd)
	b = le.AppendUint64(b, uint64(h.times.Uncertainty))
	b = appendTime(appendTime(b, h.times.Captured), h.times.Processed)
	b = appendTime(appendTime(b, h.times.Replayed), h.sent)
	b = le.AppendUint32(le.AppendUint32(b, h.flags), h.crc)
	b = le.AppendUint32(le.AppendUint32(b, uint32(len(h.results))), 0)
	b = le.AppendUint64(le.AppendUint64(b, h.offered), h.lost)
	if h.grouped {
		b = le.AppendUint64(b, h.group)
	}
	return append(b, h.results...)
}

// parseHeader parses a frame's message. grouped is whether the subscription has asked for the numbers of groups.
func parseHeader(b []byte, grouped bool) (h header, err error) {
	size := frameSize
	if grouped {
		size += groupSize
	}
	if len(b) < size || len(b) > maxMessage || le.Uint32(b) != kindFrame || int(le.Uint32(b[128:])) != len(b)-size || le.Uint32(b[132:]) != 0 {
		return h, fmt.Errorf("%w: %d bytes instead of a frame", errWire, len(b))
	}
	h = header{
		slot: le.Uint32(b[4:]), lease: le.Uint64(b[8:]), sequence: le.Uint64(b[16:]), offset: le.Uint64(b[24:]), length: le.Uint64(b[32:]),
		flags: le.Uint32(b[120:]), crc: le.Uint32(b[124:]), offered: le.Uint64(b[136:]), lost: le.Uint64(b[144:]), results: b[size:],
		grouped: grouped,
	}
	if grouped {
		h.group = le.Uint64(b[frameSize:])
	}
	if h.format, err = parseFormat(b[40:]); err != nil {
		return h, err
	}
	for i, t := range []*time.Time{&h.times.ExposureStart, &h.times.ExposureEnd, nil, &h.times.Captured, &h.times.Processed, &h.times.Replayed, &h.sent} {
		if t != nil {
			*t = parseTime(b[64+8*i:])
		}
	}
	h.times.Uncertainty = time.Duration(le.Uint64(b[80:]))
	if h.slot >= maxSlots || h.lease == 0 || h.length != uint64(h.format.Size()) || h.offset > 1<<40 || h.flags&^knownFlags != 0 || h.times.Uncertainty < 0 {
		return h, fmt.Errorf("%w: frame %d in slot %d, %d bytes from %d on", errWire, h.sequence, h.slot, h.length, h.offset)
	}
	return h, nil
}

// appendTime appends a time in ns since 1970, or 0 for an unknown time.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return le.AppendUint64(b, 0)
	}
	return le.AppendUint64(b, uint64(t.UnixNano()))
}

// bye contains the reason why a connection ends.
type bye struct {
	code   Code
	reason string
}

func (y bye) append(b []byte) []byte {
	b = le.AppendUint32(le.AppendUint32(b, kindBye), uint32(y.code))
	return append(b, y.reason[:min(len(y.reason), maxReason)]...)
}

func parseBye(b []byte) (y bye, err error) {
	if len(b) < byeSize || len(b) > byeSize+maxReason || le.Uint32(b) != kindBye {
		return y, fmt.Errorf("%w: %d bytes instead of an end", errWire, len(b))
	}
	return bye{Code(le.Uint32(b[4:])), string(b[byeSize:])}, nil
}
