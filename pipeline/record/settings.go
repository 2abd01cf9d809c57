// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"time"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// Settings are the settings of a camera, and those of the first isp that processes its samples.
type Settings struct {
	Exposure time.Duration `json:"exposure"` // in nanoseconds; 0: not known
	Gain     float64       `json:"gain"`     // 1 is unity; 0: not known
	// A monochrome sensor has only the second black level.
	BlackLevels  [4]int     `json:"black_levels,omitzero"`  // in the unit of the samples: of red, green in red lines, green in blue lines, blue
	WhiteBalance [3]float64 `json:"white_balance,omitzero"` // gains of red, green and blue
	Orientation  int        `json:"orientation,omitzero"`   // how the isp turns its pictures, 1 to 8 as in TIFF 6.0; 0: not known
}

// settingsSchema is the JSON Schema of Settings.
const settingsSchema = `{"title":"tegracast/Settings","type":"object","required":["exposure","gain"],"properties":{` +
	`"exposure":{"type":"integer","description":"ns; 0: not known"},` +
	`"gain":{"type":"number","description":"1 is unity; 0: not known"},` +
	`"black_levels":{"type":"array","items":{"type":"integer"},"description":"in the unit of the samples: ` +
	`red, green in the lines of red, green in the lines of blue, blue"},` +
	`"white_balance":{"type":"array","items":{"type":"number"},"description":"gains of red, green and blue"},` +
	`"orientation":{"type":"integer","description":"how the isp turns its pictures, 1 to 8 as in TIFF 6.0"}}}`

// looks is the interval at which the camera's settings are read.
const looks = time.Second

// settings writes the camera's settings, at the time at, into the file if they have changed, or if the file does not
// contain any yet. It does nothing if they are not known.
func (r *run) settings(at int64, now time.Time) error {
	ask := r.sink.config.Settings
	if ask == nil || r.told == r.segment && now.Sub(r.asked) < looks {
		return nil
	}
	s, known := ask()
	if r.asked = now; !known || r.told == r.segment && s == r.set {
		return nil
	}
	r.told, r.set = r.segment, s
	text, err := json.Marshal(&s)
	if err != nil {
		return err
	}
	return r.append(at, mcap.Part{Message: mcap.Message{Channel: settingsChannel, Log: uint64(at), Publish: uint64(at)}, Data: text})
}

// append appends a chunk with one small message to the file.
func (r *run) append(at int64, p mcap.Part) error {
	g := r.segment
	begin := int64(g.writer.Offset)
	b := g.writer.Messages(nil, page, p)
	if err := r.sink.reserve(g, int64(len(b))); err != nil {
		return err
	}
	_, err := g.plain.WriteAt(b, begin)
	if r.ring != nil {
		r.ring.entries = append(r.ring.entries, entry{at, begin, &p})
	}
	return err
}

// settled holds the settings of the frame whose settings were last asked for. The zero value holds none.
type settled struct {
	chunk int // index of the frame's chunk; the first chunk has no settings before it
	Settings
	first *Settings // the first in the file, or zero if there are none; nil: not looked for
}

// Settings returns the settings with which the frame was taken, or zero if the recording does not contain any. The frames
// of an event that precede its first settings have these.
func (f *Frame) Settings() Settings {
	r := f.reader
	if r == nil {
		return Settings{}
	}
	defer func(l listing) { r.listed = l }(r.listed)
	from, last := 0, Settings{}
	if r.settled.chunk <= f.chunk {
		from, last = r.settled.chunk, r.settled.Settings
	}
	for i := f.chunk - 1; i >= from; i-- {
		if s, is := r.settingsOf(i); is {
			last = s
			break
		}
	}
	r.settled.chunk, r.settled.Settings = f.chunk, last
	if last != (Settings{}) {
		return last
	}
	if r.settled.first == nil {
		r.settled.first = new(Settings)
		for i := range r.Chunks {
			if s, is := r.settingsOf(i); is {
				r.settled.first = &s
				break
			}
		}
	}
	return *r.settled.first
}

// settingsOf returns the settings in chunk i, or false if it does not contain any.
func (r *Reader) settingsOf(i int) (s Settings, is bool) {
	for _, m := range r.beside(i) {
		if r.schema(m) == settingsName && readNote(r.File, m, &s) == nil {
			return s, true
		}
	}
	return s, false
}
