// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/pipeline/crc"
	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// A Report describes a recording.
type Report struct {
	Path       string            `json:"file"`               // its path
	Bytes      int64             `json:"bytes"`              // its size
	Library    string            `json:"library"`            // program that wrote it
	Finished   bool              `json:"finished"`           // the file was closed, and has its index
	Readable   int64             `json:"readable_bytes"`     // up to the end of the last complete record
	Trouble    string            `json:"trouble,omitempty"`  // what is wrong with the records or the index
	Frames     int               `json:"frames"`             // in the file, of the channel that is played
	Lost       uint64            `json:"lost"`               // frames missing between the recorded ones, by their numbers
	First      time.Time         `json:"first"`              // time of the first frame
	Last       time.Time         `json:"last"`               // time of the last frame
	FirstFrame uint64            `json:"first_frame"`        // number of the first frame; 0 without frames
	LastFrame  uint64            `json:"last_frame"`         // number of the last frame
	Image      *Image            `json:"image,omitempty"`    // the first frame, without its pixels
	About      map[string]string `json:"about,omitempty"`    // metadata of the frames' channel, texts by name
	Settings   []Settings        `json:"settings,omitempty"` // the camera's: the first 1000 of them
	Traced     int               `json:"traced"`             // frames whose pixels have the CRC that the FPGA computed; 0 with `record info`
	Others     []Unplayed        `json:"others,omitempty"`   // channels of images that are not played (the first 1000)
	Triggers   []TriggerNote     `json:"triggers,omitempty"` // the first 1000 of them
	Checked    int               `json:"checked"`            // frames in chunks with the right CRC; 0 with `record info`
	Wrong      []string          `json:"wrong,omitempty"`    // descriptions of damaged chunks and attachments

	Channel uint16 `json:"-"` // ID of the frames' channel
}

// An inspection makes a Report.
type inspection struct {
	*Report
	begin  int64     // of the chunk that was verified last
	pixels mcap.Span // in it, of the pixels, if they lie there as in the chunk before
}

// Unplayed describes a channel of images that are not played.
type Unplayed struct {
	Topic    string `json:"topic"`    // topic of the channel
	Schema   string `json:"schema"`   // the images' kind, such as sensor_msgs/msg/CompressedImage
	Encoding string `json:"encoding"` // of the first image: its pixel format, or its compression, such as jpeg
	Frames   int    `json:"frames"`   // the channel's images in the file
	Reason   string `json:"reason"`   // why they are not played

	Channel uint16 `json:"-"` // its number
}

// maxWrong is the maximum number of damaged chunks that a Report lists. maxTriggers is the maximum number of triggers
// that it lists, and also of settings, and of channels that are not played.
const (
	maxWrong    = 100
	maxTriggers = 1000
)

// Good reports whether Inspect has found nothing wrong. An unfinished file can be good.
func (r *Report) Good() bool { return len(r.Wrong) == 0 && r.Trouble == "" }

// Inspect examines a recording and, with verify, also the checksums of all its chunks and attachments. progress is
// called with the completed fraction of the work, from 0 to 1. Inspect returns an error if the file cannot be opened or
// is neither MCAP nor MP4, or if ctx ends; what else is wrong is in the report.
func Inspect(ctx context.Context, path string, verify bool, progress func(part float64)) (*Report, error) {
	in, size, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // the file was only read
	if filepath.Ext(path) == VideoExtension {
		return inspectVideo(ctx, in, size, path, verify, progress)
	}
	f, err := mcap.Open(ctx, in, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := &Report{Path: path, Bytes: size, Library: f.Library, Finished: f.Finished, Readable: f.End}
	if f.Trouble != nil {
		r.Trouble = f.Trouble.Error()
	}
	n := &inspection{Report: r}
	for i := range f.Chunks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := n.chunk(f, i, verify); err != nil {
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

// chunk examines a chunk, and returns an error if something is wrong with it.
func (r *inspection) chunk(f *mcap.File, i int, verify bool) error {
	checked := false
	if verify {
		var err error
		if checked, err = r.verify(f, i); err != nil {
			return err
		}
	}
	list, err := f.Messages(i)
	if err != nil {
		return err
	}
	var pixels mcap.MessageInfo // of the frame in the chunk
	for _, m := range list {
		name := f.Schemas[f.Channels[m.Channel].Schema].Name
		if image, _ := kindOf(name); image {
			pixels = m
			if err := r.image(f, m); err != nil {
				return fmt.Errorf("chunk %d: %w", i, err)
			}
			if checked && r.Image != nil && m.Channel == r.Channel {
				r.Checked++
			}
			continue
		}
		switch name {
		case noteName:
			var n Note
			if err := readNote(f, m, &n); err != nil {
				return fmt.Errorf("chunk %d: the note of a frame: %w", i, err)
			}
			r.Lost += n.Lost
			r.triggered(n.Triggers...)
			if r.Image != nil && pixels.Size > 0 && pixels.Channel == r.Channel && pixels.Sequence == m.Sequence {
				r.number(n.Frame)
			}
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
			r.triggered(n)
		}
	}
	return nil
}

// triggered adds triggers to the list.
func (r *Report) triggered(list ...TriggerNote) {
	r.Triggers = append(r.Triggers, list[:min(len(list), maxTriggers-len(r.Triggers))]...)
}

// number sets the number of the frame that was counted last.
func (r *Report) number(n uint64) {
	if r.LastFrame = n; r.Frames == 1 {
		r.FirstFrame = n
	}
}

// verify checks the CRC of chunk i, and computes that for trace on the way.
func (r *inspection) verify(f *mcap.File, i int) (checked bool, err error) {
	begin := f.Chunks[i].Offset
	r.pixels = mcap.Span{Offset: r.pixels.Offset - r.begin + begin, Size: r.pixels.Size}
	r.begin = begin
	return f.VerifySpan(i, &r.pixels)
}

// trace compares the CRC of a frame's pixels with that from the FPGA, and returns an error if they differ. It reads only
// pixels that verify has not seen.
func (r *inspection) trace(f *mcap.File, m mcap.MessageInfo, n *Note) error {
	image, err := readImage(f, m)
	if err != nil {
		return err
	}
	c := f.Channels[m.Channel]
	at, size := m.Offset+int64(image.Pixels), int64(image.Size)
	packed := c.Metadata[unpackedKey] != ""
	sum := r.pixels.Sum
	if packed || m.Compressed() || r.pixels.Offset != at || r.pixels.Seen != size {
		b := make([]byte, image.Size)
		if err := f.ReadInto(b, m, int64(image.Pixels)); err != nil {
			return err
		}
		if packed {
			if b, err = unpacked(b, c, image); err != nil {
				return err
			}
		}
		sum = crc.Castagnoli(0, b)
	}
	if r.pixels = (mcap.Span{}); !packed && !m.Compressed() {
		r.pixels = mcap.Span{Offset: at, Size: size} // where the next chunk's are expected
	}
	if sum != n.CRC {
		return fmt.Errorf("%w: the pixels of frame %d have CRC-32C %#x, the FPGA gave them %#x", mcap.ErrDamaged, n.Frame, sum, n.CRC)
	}
	r.Traced++
	return nil
}

// unpacked returns a packed frame's pixels as the camera delivered them, to which its CRC applies.
func unpacked(b []byte, c mcap.Channel, i Image) ([]byte, error) {
	f, _, err := formatOf(c, i)
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

// readNote reads a JSON message.
func readNote(f *mcap.File, m mcap.MessageInfo, v any) error {
	if m.Size > maxBeside {
		return fmt.Errorf("%w: the message at byte %d has %d bytes", mcap.ErrDamaged, m.Offset, m.Size)
	}
	b, err := f.Read(m)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// image counts an image. The first one that can be played chooses the channel whose frames the report describes.
func (r *Report) image(f *mcap.File, m mcap.MessageInfo) error {
	at := time.Unix(0, int64(m.Log))
	if r.Image != nil && m.Channel == r.Channel {
		r.Frames++
		r.Last = at
		r.number(max(uint64(m.Sequence), r.LastFrame+1)) // as Player does it; a note has the right number
		return nil
	}
	for i := range r.Others {
		if o := &r.Others[i]; o.Channel == m.Channel {
			o.Frames++
			return nil
		}
	}
	_, image, err := playable(f, m)
	if err == nil && r.Image == nil {
		r.Frames, r.Image, r.First, r.Last = 1, &image, at, at
		r.Channel, r.About = m.Channel, f.Channels[m.Channel].Metadata
		r.number(uint64(m.Sequence))
		return nil
	}
	if err == nil {
		err = errOtherChannel
	}
	if !errors.Is(err, errUnplayable) || len(r.Others) == maxTriggers {
		return err
	}
	c := f.Channels[m.Channel]
	r.Others = append(r.Others, Unplayed{
		Topic: c.Topic, Schema: f.Schemas[c.Schema].Name, Encoding: image.Encoding, Frames: 1, Reason: err.Error(), Channel: m.Channel,
	})
	return nil
}

// errOtherChannel is the reason why images that could be played are not.
var errOtherChannel = fmt.Errorf("images of a second channel %w: the first channel's are played", errUnplayable)
