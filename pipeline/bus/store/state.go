// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tegracast/tegracast/pipeline"
)

// state is what outlives the process besides messages.
type state struct {
	ID    string `json:"id"` // hexadecimal
	Epoch uint64 `json:"epoch"`
	// Ended says that the process has ended in order: Numbers has the last number of each subject. Else some may have been given that
	// nobody knows of, and a new epoch begins.
	Ended   bool              `json:"ended"`
	Numbers map[string]uint64 `json:"numbers,omitempty"`
	// Segment and Offset are where the first message is that is not safe elsewhere.
	Segment uint64 `json:"segment,omitempty"`
	Offset  int64  `json:"offset,omitempty"`
}

const (
	stateFile = "state.json"
	maxState  = 1 << 20
)

// readState reads the state; the zero state: there is none that is whole.
func (s *Store) readState() (st state) {
	path := filepath.Join(s.config.Folder, stateFile)
	b, err := pipeline.ReadRegular(path, maxState, "the state of the numbers of messages")
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

// writeState replaces the state as a whole, for sure.
func (s *Store) writeState(st state) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	path := filepath.Join(s.config.Folder, stateFile)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	return syncFolder(s.config.Folder)
}

// begin takes over the numbers of the process before, or begins an epoch. It is on the disk before a number is given.
func (s *Store) begin(st state) error {
	switch {
	case st.ID == "":
		st = state{ID: fmt.Sprintf("%016x", NewID()), Epoch: 1}
	case !st.Ended:
		st.Epoch, st.Numbers = st.Epoch+1, nil
	}
	s.ID, _ = strconv.ParseUint(st.ID, 16, 64) // it was read or made as such
	s.Epoch, s.Numbers = st.Epoch, st.Numbers
	if s.Numbers == nil {
		s.Numbers = map[string]uint64{}
	}
	return s.writeState(state{ID: st.ID, Epoch: st.Epoch})
}

// NewID is an ID that nobody else has.
func NewID() uint64 { return rand.Uint64() | 1 }
