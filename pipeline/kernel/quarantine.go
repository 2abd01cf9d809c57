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
)

// An Entry is a kernel in quarantine: what it did.
type Entry struct {
	Kernel string    `json:"kernel"` // name of the stage
	File   string    `json:"file"`
	Entry  string    `json:"entry"`
	Key    string    `json:"key"`   // of Key
	Frame  uint64    `json:"frame"` // sequence number of the one that it was working on
	What   string    `json:"what"`
	When   time.Time `json:"when"`
}

// A Quarantine keeps the kernels that have cost a process its GPU, in a folder that outlives the process: a file for each.
type Quarantine struct{ folder string }

// NewQuarantine keeps its files in folder, which is made when it is needed; "" keeps none.
func NewQuarantine(folder string) *Quarantine { return &Quarantine{folder: folder} }

// Path is where the entry of that key is, or would be.
func (q *Quarantine) Path(key string) string { return filepath.Join(q.folder, key+".json") }

// Find returns the entry of that key, or nil. One that cannot be read is an entry all the same.
func (q *Quarantine) Find(key string) *Entry {
	if q.folder == "" {
		return nil
	}
	text, err := os.ReadFile(q.Path(key))
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

// Put adds an entry.
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
	next := q.Path(e.Key) + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	if err := os.Rename(next, q.Path(e.Key)); err != nil {
		return fmt.Errorf("quarantine: %w", errors.Join(err, os.Remove(next)))
	}
	return nil
}
