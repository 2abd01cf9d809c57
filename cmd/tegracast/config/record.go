// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// Record writes frames to files.
type Record struct {
	Directory string         `yaml:"directory" jsonschema:"minLength=1" jsonschema_description:"Folder of the recordings, which must exist."`
	Duration  Duration       `yaml:"duration,omitempty" jsonschema_description:"How long a file is, such as 10m (default), before the next one begins."`
	Size      Size           `yaml:"size,omitempty" jsonschema_description:"How large a file gets, such as 4GB, before the next one begins (default: no limit)."`
	Keep      Size           `yaml:"keep,omitempty" jsonschema_description:"How much the recordings of this output may have together, such as 100GB, before the oldest is deleted (default: none is)."`
	WhenFull  string         `yaml:"when_full,omitempty" jsonschema:"enum=stop,enum=delete_oldest" jsonschema_description:"What happens when the disk is full: the recording fails, and goes on in a new file when there is room (stop, default), or the oldest recordings of this output are deleted (delete_oldest)."`
	Trigger   *RecordTrigger `yaml:"trigger,omitempty" jsonschema_description:"Only the frames around triggers are kept, one file for each trigger (default: all frames are)."`
	Pack      bool           `yaml:"pack,omitempty" jsonschema_description:"Samples of 10 and 12 bits, which come in words of 16, are packed without loss as MIPI CSI-2 has them: files are 37 or 25 % smaller, and only readers that know these formats show the frames (default: they are kept as they come)."`
	Storage   string         `yaml:"storage,omitempty" jsonschema:"enum=auto,enum=compatibility,enum=library" jsonschema_description:"Who writes the files. auto (default): NVIDIA's libcufile if frames are in CUDA memory, it is installed, and it accepts a file in the folder; otherwise compatibility, without it: io_uring or pwritev2. library: libcufile; it is an error if it cannot."`
	Sync      Duration       `yaml:"sync,omitempty" jsonschema_description:"How often what is written is forced to the disk, such as 1s (default): a power cut loses no more than that."`
}

// Defaults of a recording.
const (
	defaultRecordDuration = 10 * time.Minute
	defaultRecordSync     = time.Second
)

func (c *Record) resolve(r *resolver, at yamlfile.Section, o *Output) (traits, error) {
	t := traits{OpenAt: at.Place(), recorded: true, Holds: record.Holds, check: c.check}
	for key, d := range map[string]*Duration{"duration": &c.Duration, "sync": &c.Sync} {
		if d.V < 0 {
			return t, at.Key(key).Errorf("%v: must be more than 0", d.V)
		}
	}
	if c.Duration.V == 0 {
		c.Duration.V = defaultRecordDuration
	}
	if c.Sync.V == 0 {
		c.Sync.V = defaultRecordSync
	}
	if c.Size.V > 0 && c.Keep.V > 0 && c.Size.V > c.Keep.V {
		return t, at.Key("keep").Errorf("%d bytes: must be at least size, %d bytes", c.Keep.V, c.Size.V)
	}
	if c.Trigger == nil {
		return t, nil
	}
	return t, c.Trigger.verify(r, at.Key("trigger"), o)
}

// check refuses frames whose samples cannot be packed as configured.
func (c *Record) check(f pipeline.Format) error {
	if !c.Pack {
		return nil
	}
	_, err := f.Packed()
	return err
}
