// SPDX-License-Identifier: Apache-2.0

// Package kept is the configuration that the page has changed. It is kept in the service's state folder, since the service cannot write
// to /etc, and is used instead of the installed file until somebody goes back to that.
package kept

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/pipeline"
)

// Name is the file's name in the state folder.
const Name = "tegracast.yaml"

// Folder is the service manager's state folder (systemd.exec(5)); empty: there is none.
func Folder() string {
	dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	return dir
}

// A Store is an installed file, and what is kept in its stead.
type Store struct {
	Installed string         // path; empty: it is the default configuration
	Folder    string         // empty: nothing can be kept
	Limit     *memlock.Limit // of the memory of a configuration's frames; nil: there is none
}

// File is the path of what is kept; empty: nothing can be.
func (s Store) File() string {
	if s.Folder == "" {
		return ""
	}
	return filepath.Join(s.Folder, Name)
}

// Holds says whether something is kept, good or not.
func (s Store) Holds() bool {
	if s.Folder == "" {
		return false
	}
	_, err := os.Lstat(s.File())
	return err == nil
}

// Alone is the installed file, and nothing kept in its stead. If there is something, the log says that it is not used.
func (s Store) Alone(log *slog.Logger) Store {
	if s.Holds() {
		log.Info("the configuration that the page has kept is not used: serve has --fault, or no file that it would replace", "file", s.File())
	}
	return Store{Installed: s.Installed, Limit: s.Limit}
}

// Load reads what is kept, or else the installed file. The section web is always the installed file's: the page cannot change how it is
// reached itself. The installed file must be good. If only what is kept is not, the installed file is used, and the log has the error.
func (s Store) Load(log *slog.Logger) (c *config.Appliance, kept bool, err error) {
	installed, err := s.Original()
	if err != nil || s.Folder == "" {
		return installed, false, err
	}
	text, err := pipeline.ReadRegular(s.File(), config.MaxFile, "a configuration")
	if errors.Is(err, fs.ErrNotExist) {
		return installed, false, nil
	}
	if err == nil {
		c, err = s.parse(s.File(), text)
	}
	if err != nil {
		log.Error("the configuration that the page has kept cannot be used: the installed one is", "file", s.File(), "error", err)
		return installed, false, nil
	}
	c.TakeWeb(installed)
	log.Info("the configuration is the one that was changed on the page: tegracast config diff shows what differs from the installed one",
		"file", s.File(), "installed", s.Installed)
	return c, true, nil
}

// Instead is the installed file, after what is kept could not be opened. The log has the reason.
func (s Store) Instead(log *slog.Logger, reason error) (*config.Appliance, error) {
	log.Error("the configuration that the page has kept cannot be opened: the installed one is", "file", s.File(), "error", reason)
	return s.Original()
}

// Original is the installed file, whatever is kept.
func (s Store) Original() (*config.Appliance, error) {
	c, err := config.Load(s.Installed)
	if err == nil {
		err = s.Limit.Check(c)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// parse reads a text, which errors call by name.
func (s Store) parse(name string, text []byte) (*config.Appliance, error) {
	c, err := config.Parse(name, text)
	if err == nil {
		err = s.Limit.Check(c)
	}
	return c, err
}

// Keep keeps a text, so that it outlives a loss of power. The installed file's own text is not kept: it returns false.
func (s Store) Keep(text []byte) (kept bool, err error) {
	if s.Folder == "" {
		return false, nil
	}
	if installed, err := s.installed(); err == nil && string(installed) == string(text) {
		return false, s.Forget()
	}
	// One name, so that what a loss of power has left is written over.
	f, err := os.OpenFile(s.File()+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // for its owner alone
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.File())
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(f.Name()))
	}
	return true, s.sync()
}

// sync has the names in the folder outlive a loss of power.
func (s Store) sync() error {
	folder, err := os.Open(s.Folder)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Forget goes back to the installed file. What was kept stays beside it, under the name with .old, instead of the one before.
func (s Store) Forget() error {
	if s.Folder == "" {
		return nil
	}
	if err := os.Rename(s.File(), s.File()+".old"); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return s.sync()
}

func (s Store) installed() ([]byte, error) {
	if s.Installed == "" {
		return config.Default(), nil
	}
	return pipeline.ReadRegular(s.Installed, config.MaxFile, "a configuration")
}
