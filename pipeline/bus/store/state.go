// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"

	"github.com/tegracast/tegracast/pipeline/files"
)

// state holds the data, besides the messages, that outlive the process.
type state struct {
	ID    string `json:"id"` // hexadecimal
	Epoch uint64 `json:"epoch"`
	// Ended is set if the process ended cleanly. Numbers then holds the last number of each subject. Otherwise numbers
	// may have been given that nobody knows of, so a new epoch starts.
	Ended   bool              `json:"ended"`
	Numbers map[string]uint64 `json:"numbers,omitempty"`
	// Segment and Offset locate the first message that is not safe elsewhere.
	Segment uint64 `json:"segment,omitempty"`
	Offset  int64  `json:"offset,omitempty"`
}

const (
	stateFile = "state.json"
	maxState  = 1 << 20
)

// readState returns the saved state, or the zero state if there is none or it is damaged.
func (s *Store) readState() (st state) {
	path := filepath.Join(s.config.Folder, stateFile)
	b, err := files.ReadRegular(path, maxState, "the state of the numbers of messages")
	if errors.Is(err, fs.ErrNotExist) {
		return state{}
	}
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	id, bad := strconv.ParseUint(st.ID, 16, 64)
	if err != nil || bad != nil || id == 0 || st.Epoch == 0 {
		s.config.Logger.Warn("the numbers of messages begin again under a new id: their state cannot be read", "file", path, "error", err)
		return state{}
	}
	return st
}

// writeState replaces the state atomically and durably.
func (s *Store) writeState(st state) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return files.WriteLasting(filepath.Join(s.config.Folder, stateFile), 0o600, append(b, '\n'))
}

// startEpoch continues the numbers of the previous process, or starts a new epoch. The epoch is on disk before any
// number is given.
func (s *Store) startEpoch(st state) error {
	switch {
	case st.ID == "":
		st = state{ID: fmt.Sprintf("%016x", NewID()), Epoch: 1}
	case !st.Ended:
		st.Epoch, st.Numbers = st.Epoch+1, nil
	}
	s.ID, _ = strconv.ParseUint(st.ID, 16, 64) // cannot fail: it was parsed or generated before
	s.Epoch, s.Numbers = st.Epoch, st.Numbers
	if s.Numbers == nil {
		s.Numbers = map[string]uint64{}
	}
	return s.writeState(state{ID: st.ID, Epoch: st.Epoch})
}

// NewID returns a random, non-zero ID.
func NewID() uint64 { return rand.Uint64() | 1 }
