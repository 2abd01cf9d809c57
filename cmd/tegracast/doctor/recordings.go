// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"io/fs"
	"log/slog"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cufile"
)

// serviceConfig is the path of the service's configuration.
const serviceConfig = "/etc/tegracast/tegracast.yaml"

// recordings tells for each folder of recordings of the service's configuration whether NVIDIA's libcufile writes there.
// Without the library there is a single finding.
func (p patient) recordings() []finding {
	found := p.library(cufile.LibraryName)
	if found == "" {
		return []finding{{"libcufile", isNote, "not installed: recordings are written and read without it (storage: compatibility)", ""}}
	}
	list := []finding{{"libcufile", isGood, "/" + found, ""}}
	c, err := p.config()
	if errors.Is(err, fs.ErrNotExist) {
		return list
	} else if err != nil {
		return append(list, finding{"libcufile", isNote, "folders are not checked: " + err.Error(), ""})
	}
	for i := range c.Outputs {
		if r, is := c.Outputs[i].Kind.(*config.Record); is {
			list = append(list, p.recording(c.Memory, r))
		}
	}
	return list
}

// recording tells how the recordings of an output are written.
func (p patient) recording(memory string, r *config.Record) finding {
	without := r.Directory + " is written without libcufile: "
	switch {
	case r.Storage == "compatibility":
		return finding{"libcufile", isGood, without + "storage: compatibility", ""}
	case memory == "host" && r.Storage != "library":
		return finding{"libcufile", isNote, without + "memory: host", ""}
	}
	_, err := p.attempt(filesAttempt + r.Directory)
	switch {
	case err == nil:
		return finding{"libcufile", isGood, r.Directory + " is written by libcufile", ""}
	case r.Storage == "library":
		return finding{"libcufile", isWarning, r.Directory + " cannot be written by libcufile: " + err.Error() + ": correct that, or use storage: auto", ""}
	}
	return finding{"libcufile", isNote, without + err.Error(), ""}
}

// filesAttempt is the beginning of the name of an attempt with libcufile. A folder follows.
const filesAttempt = "libcufile:"

// tryFiles has libcufile register a file in a folder, as a recording does.
func tryFiles(folder string) (about string, err error) {
	log := slog.New(slog.DiscardHandler)
	memory, err := cudahost.Open(cudahost.Config{Backend: "cuda", Logger: log})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	d, err := cufile.Open(cufile.Config{Library: cufile.LibraryName, Device: memory.(*cudahost.CUDA).Device, Logger: log})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return "", d.Prepare(folder)
}
