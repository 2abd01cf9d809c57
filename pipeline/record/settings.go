// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"time"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// Settings are the settings of a camera.
type Settings struct {
	Exposure time.Duration `json:"exposure"` // in nanoseconds
	Gain     float64       `json:"gain"`     // 1 is unity
}

// settingsSchema is the JSON Schema of Settings.
const settingsSchema = `{"title":"tegracast/Settings","type":"object","required":["exposure","gain"],"properties":{` +
	`"exposure":{"type":"integer","description":"ns"},` +
	`"gain":{"type":"number","description":"1 is unity"}}}`

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
