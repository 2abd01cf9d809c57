// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// Record writes frames to files.
type Record struct {
	Directory string         `yaml:"directory" jsonschema:"minLength=1" jsonschema_description:"Folder of the recordings, which must exist."`
	Duration  Duration       `yaml:"duration,omitempty" jsonschema_description:"How long a file is, such as 10m (default), before the next one begins."`
	Size      Size           `yaml:"size,omitempty" jsonschema_description:"How large a file gets, such as 4GB, before the next one begins (default: no limit)."`
	Keep      Size           `yaml:"keep,omitempty" jsonschema_description:"How much the recordings of this output may have together, such as 100GB, before the oldest is deleted (default: none is)."`
	KeepFor   Duration       `yaml:"keep_for,omitempty" jsonschema_description:"How long a recording of this output is kept after its end, such as 168h, before it is deleted (default: no limit)."`
	KeepFree  Size           `yaml:"keep_free,omitempty" jsonschema_description:"How much of the disk stays free, such as 20GB: beyond that the oldest recordings of this output are deleted (default: no limit)."`
	WhenFull  string         `yaml:"when_full,omitempty" jsonschema:"enum=stop,enum=delete_oldest" jsonschema_description:"What happens when the disk is full: the recording fails, and goes on in a new file when there is room (stop, default), or the oldest recordings of this output are deleted (delete_oldest)."`
	Format    string         `yaml:"format,omitempty" jsonschema:"enum=mp4,enum=mcap" jsonschema_description:"Beside rtp: mp4 (default), or mcap, with messages of foxglove.CompressedVideo or foxglove.CompressedImage."`
	Trigger   *RecordTrigger `yaml:"trigger,omitempty" jsonschema_description:"Only the frames around triggers are kept, one file for each trigger (default: all frames are)."`
	Pack      bool           `yaml:"pack,omitempty" jsonschema_description:"Samples of 10 and 12 bits, which come in words of 16, are packed without loss as MIPI CSI-2 has them: files are 37 or 25 % smaller, and only readers that know these formats show the frames (default: they are kept as they come)."`
	Storage   string         `yaml:"storage,omitempty" jsonschema:"enum=auto,enum=compatibility,enum=library" jsonschema_description:"Who writes the files. auto (default): NVIDIA's libcufile if frames are in CUDA memory, it is installed, and it accepts a file in the folder; otherwise compatibility, without it: io_uring or pwritev2. library: libcufile, and an error if that is impossible."`
	Sync      Duration       `yaml:"sync,omitempty" jsonschema_description:"How often what is written is forced to the disk, such as 1s (default): a power cut loses no more than that."`
}

// Defaults of a recording.
const (
	defaultRecordDuration = 10 * time.Minute
	defaultRecordSync     = time.Second
)

func (c *Record) resolve(r *resolver, at yamlfile.Section, o *Output) (traits, error) {
	if c.Format != "" {
		return traits{}, at.Key("format").Errorf("only encoded pictures have a choice of formats: leave format out, frames are recorded as MCAP")
	}
	return traits{OpenAt: at.Place(), recorded: true, Holds: record.Holds, check: c.check}, c.verify(r, at, o)
}

// resolveVideo resolves the section of an output whose encoded pictures are recorded.
func (c *Record) resolveVideo(r *resolver, at yamlfile.Section, o *Output, payload rtp.Payload) error {
	switch {
	case payload != rtp.H264 && payload != rtp.JPEG:
		return at.Errorf("only streams with payload h264 or jpeg are recorded as they are sent: record other frames by an output of their own")
	case c.Pack:
		return at.Key("pack").Errorf("only a camera's samples can be packed: leave pack out")
	case c.Storage != "":
		return at.Key("storage").Errorf("only frames are written as storage says: leave storage out")
	}
	return c.verify(r, at, o)
}

// verify fills in the defaults of the section, and refuses invalid values.
func (c *Record) verify(r *resolver, at yamlfile.Section, o *Output) error {
	for key, d := range map[string]*Duration{"duration": &c.Duration, "sync": &c.Sync, "keep_for": &c.KeepFor} {
		if d.V < 0 {
			return at.Key(key).Errorf("%v: must be more than 0", d.V)
		}
	}
	if c.Duration.V == 0 {
		c.Duration.V = defaultRecordDuration
	}
	if c.Sync.V == 0 {
		c.Sync.V = defaultRecordSync
	}
	if c.Size.V > 0 && c.Keep.V > 0 && c.Size.V > c.Keep.V {
		return at.Key("keep").Errorf("%d bytes: must be at least size, %d bytes", c.Keep.V, c.Size.V)
	}
	if c.Trigger == nil {
		return nil
	}
	return c.Trigger.verify(r, at.Key("trigger"), o)
}

// check refuses frames whose samples cannot be packed as configured.
func (c *Record) check(f pipeline.Format) error {
	if !c.Pack {
		return nil
	}
	_, err := f.Packed()
	return err
}
