// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"time"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// Settings are a camera's.
type Settings struct {
	Exposure time.Duration `json:"exposure"`
	Gain     float64       `json:"gain"` // 1 is unity
}

// settingsSchema describes Settings (JSON Schema).
const settingsSchema = `{"title":"tegracast/Settings","type":"object","required":["exposure","gain"],"properties":{` +
	`"exposure":{"type":"integer","description":"ns"},` +
	`"gain":{"type":"number","description":"1 is unity"}}}`

// looks is how often the camera is asked for its settings.
const looks = time.Second

// settings writes the camera's settings into the file when they have changed, or when it has none yet.
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

// append writes a chunk of one small message at the end of the file.
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
