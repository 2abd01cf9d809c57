// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/pipeline/files"
)

// An Entry describes a kernel in quarantine and what it did.
type Entry struct {
	Kernel string    `json:"kernel"` // name of the stage
	File   string    `json:"file"`
	Entry  string    `json:"entry"`
	Key    string    `json:"key"`   // result of Key
	Frame  uint64    `json:"frame"` // sequence number of the frame being processed
	What   string    `json:"what"`
	When   time.Time `json:"when"`
}

// A Quarantine records the kernels that have cost a process its GPU, one file for each, in a folder that outlives the
// process.
type Quarantine struct{ folder string }

// maxEntry is the maximum size of an entry in bytes.
const maxEntry = 1 << 20

// NewQuarantine returns a Quarantine with its files in folder, which is made when it is needed. If folder is "", it
// keeps no entries.
func NewQuarantine(folder string) *Quarantine { return &Quarantine{folder: folder} }

// Path returns the path of the entry with that key, whether or not it exists.
func (q *Quarantine) Path(key string) string { return filepath.Join(q.folder, key+".json") }

// Find returns the entry with that key, or nil. An unreadable entry counts as an entry.
func (q *Quarantine) Find(key string) *Entry {
	if q.folder == "" {
		return nil
	}
	text, err := files.ReadRegular(q.Path(key), maxEntry, "an entry")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &Entry{Key: key, What: fmt.Sprintf("not known: %v", err)}
	}
	return parseEntry(key, text)
}

func parseEntry(key string, text []byte) *Entry {
	var e Entry
	if err := json.Unmarshal(text, &e); err != nil || e.Key != key {
		return &Entry{Key: key, What: "not known: the entry is damaged"}
	}
	return &e
}

// Put adds an entry. Without a folder it fails.
func (q *Quarantine) Put(e Entry) error {
	if q.folder == "" {
		return errors.New("quarantine: no folder for it: set HOME or STATE_DIRECTORY")
	}
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	if err := os.MkdirAll(q.folder, 0o755); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	if err := files.WriteText(q.Path(e.Key), 0o644, append(text, '\n')); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	return nil
}
