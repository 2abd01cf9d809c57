// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// A Report is what a recording has.
type Report struct {
	Path     string            `json:"file"`
	Bytes    int64             `json:"bytes"`
	Library  string            `json:"library"`
	Finished bool              `json:"finished"`          // it has its index
	Readable int64             `json:"readable_bytes"`    // up to the last whole chunk
	Trouble  string            `json:"trouble,omitempty"` // what is wrong behind that, or with the index
	Frames   int               `json:"frames"`
	Lost     uint64            `json:"lost"` // frames that are missing, by the frames' numbers
	First    time.Time         `json:"first"`
	Last     time.Time         `json:"last"`
	Image    *Image            `json:"image,omitempty"`    // of the first frame
	About    map[string]string `json:"about,omitempty"`    // of the frames' channel
	Settings []Settings        `json:"settings,omitempty"` // of the camera, the first of them
	Traced   int               `json:"traced"`             // frames with the CRC that the FPGA gave them
	Triggers []TriggerNote     `json:"triggers,omitempty"` // the first of them
	Checked  int               `json:"checked"`            // frames whose CRC is right
	Wrong    []string          `json:"wrong,omitempty"`    // what is wrong with frames, one by one
}

// maxWrong and maxTriggers are how many wrong frames and triggers a Report names.
const (
	maxWrong    = 100
	maxTriggers = 1000
)

// Good says whether all that was looked at is as it was written. An unfinished file is good as far as it goes.
func (r *Report) Good() bool { return len(r.Wrong) == 0 && r.Trouble == "" }

// Inspect looks at a recording; with verify also at every byte. progress is called with how much of the work is done, from 0
// to 1. Errors are of files that are no MCAP files, or cannot be read.
func Inspect(ctx context.Context, path string, verify bool, progress func(part float64)) (*Report, error) {
	in, size, err := pipeline.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // it was only read
	f, err := mcap.Open(in, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := &Report{Path: path, Bytes: size, Library: f.Library, Finished: f.Finished, Readable: f.End}
	if f.Trouble != nil {
		r.Trouble = f.Trouble.Error()
	}
	for i := range f.Chunks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.chunk(f, i, verify); err != nil {
			if len(r.Wrong) == maxWrong {
				break
			}
			r.Wrong = append(r.Wrong, err.Error())
		}
		progress(float64(i+1) / float64(len(f.Chunks)))
	}
	for i := range f.Attachments {
		if !verify {
			break
		}
		if _, err := f.ReadAttachment(i); err != nil {
			r.Wrong = append(r.Wrong, err.Error())
		}
	}
	return r, nil
}

// chunk looks at a chunk. An error says what is wrong with it.
func (r *Report) chunk(f *mcap.File, i int, verify bool) error {
	checked := false
	if verify {
		var err error
		if checked, err = f.VerifyChunk(i); err != nil {
			return err
		}
	}
	list, err := f.Messages(i)
	if err != nil {
		return err
	}
	var pixels mcap.MessageInfo // of the chunk's frame
	for _, m := range list {
		c := f.Channels[m.Channel]
		switch f.Schemas[c.Schema].Name {
		case imageName, packedName:
			if checked {
				r.Checked++
			}
			pixels = m
			if err := r.image(f, m, c.Metadata); err != nil {
				return fmt.Errorf("chunk %d: %w", i, err)
			}
		case noteName:
			var n Note
			if err := readNote(f, m, &n); err != nil {
				return fmt.Errorf("chunk %d: the note of a frame: %w", i, err)
			}
			r.Lost += n.Lost
			if verify && n.CRC != 0 && pixels.Size > 0 {
				if err := r.trace(f, pixels, &n); err != nil {
					return fmt.Errorf("chunk %d: %w", i, err)
				}
			}
		case settingsName:
			var s Settings
			if err := readNote(f, m, &s); err != nil {
				return fmt.Errorf("chunk %d: the camera's settings: %w", i, err)
			}
			if len(r.Settings) < maxTriggers {
				r.Settings = append(r.Settings, s)
			}
		case triggerName:
			var n TriggerNote
			if err := readNote(f, m, &n); err != nil {
				return fmt.Errorf("chunk %d: a trigger: %w", i, err)
			}
			if len(r.Triggers) < maxTriggers {
				r.Triggers = append(r.Triggers, n)
			}
		}
	}
	return nil
}

// trace compares a frame's pixels with the CRC that the FPGA gave them.
func (r *Report) trace(f *mcap.File, m mcap.MessageInfo, n *Note) error {
	b, err := f.Read(m)
	if err != nil {
		return err
	}
	image, err := ParseImage(b, int(m.Size))
	if err != nil {
		return err
	}
	b = b[image.Pixels:]
	if about := f.Channels[m.Channel].Metadata; about[unpackedKey] != "" {
		if b, err = unpacked(b, about, image); err != nil {
			return err
		}
	}
	if got := crc.Castagnoli(0, b); got != n.CRC {
		return fmt.Errorf("%w: the pixels of frame %d have CRC-32C %#x, the FPGA gave them %#x", mcap.ErrDamaged, n.Frame, got, n.CRC)
	}
	r.Traced++
	return nil
}

// unpacked are a packed frame's pixels as the camera delivered them, to which its CRC belongs.
func unpacked(b []byte, about map[string]string, i Image) ([]byte, error) {
	f, err := formatOf(about, i)
	if err != nil {
		return nil, err
	}
	s, _ := f.Pixel.Samples()
	if line := f.Pixel.LineBytes(f.Width); !s.Packed || f.Stride != line {
		return nil, fmt.Errorf("%w: its channel says that %s is packed", ErrFormat, f)
	}
	words := make([]byte, 2*f.Width*f.Height)
	s.Unpack(words, b)
	return words, nil
}

// readNote reads a message of JSON.
func readNote(f *mcap.File, m mcap.MessageInfo, v any) error {
	b, err := f.Read(m)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func (r *Report) image(f *mcap.File, m mcap.MessageInfo, about map[string]string) error {
	at := time.Unix(0, int64(m.Log))
	if r.Frames++; r.Image == nil {
		image, err := readImage(f, m)
		if err != nil {
			return err
		}
		r.Image, r.First, r.About = &image, at, about
	}
	r.Last = at
	return nil
}
