// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/pipeline/files"
)

// ConfigFile is the name of the stored configuration in the state folder.
const ConfigFile = "tegracast.yaml"

// A ConfigStore provides the installed file, and the configuration stored by the page, which is used in place of the
// installed file until a client of the page resets it. The stored configuration is in the service's state folder,
// because the service cannot write to /etc.
type ConfigStore struct {
	Installed string         // path of the installed file; empty: the default configuration
	Folder    string         // folder of the stored configuration; empty: nothing can be stored
	Limit     *memlock.Limit // limit of the memory for a configuration's frames; nil: none
}

// File returns the path of the stored configuration, or "" if nothing can be stored.
func (s ConfigStore) File() string {
	if s.Folder == "" {
		return ""
	}
	return filepath.Join(s.Folder, ConfigFile)
}

// Holds reports whether a configuration is stored, valid or not.
func (s ConfigStore) Holds() bool {
	if s.Folder == "" {
		return false
	}
	_, err := os.Lstat(s.File())
	return err == nil
}

// Alone returns a store that only has the installed file. If a configuration is stored, the log says that it is not used.
func (s ConfigStore) Alone(log *slog.Logger) ConfigStore {
	if s.Holds() {
		log.Info("the configuration stored by the page is not used: serve has --fault, or no file that it would replace", "file", s.File())
	}
	return ConfigStore{Installed: s.Installed, Limit: s.Limit}
}

// Load reads the stored configuration, or else the installed file. The section web always comes from the installed
// file, because the page must not change its own access. The installed file must be valid. If only the stored
// configuration is invalid or unreadable, Load logs the error and returns the installed one. kept reports whether the
// stored one is returned.
func (s ConfigStore) Load(log *slog.Logger) (c *config.Appliance, kept bool, err error) {
	installed, err := s.Original()
	if err != nil || s.Folder == "" {
		return installed, false, err
	}
	text, err := files.ReadRegular(s.File(), config.MaxFile, "a configuration")
	if errors.Is(err, fs.ErrNotExist) {
		return installed, false, nil
	}
	if err == nil {
		c, err = s.parse(s.File(), text, installed)
	}
	if err != nil {
		log.Error("the configuration stored by the page cannot be used: the installed one is used", "file", s.File(), "error", err)
		return installed, false, nil
	}
	c.TakeWeb(installed)
	log.Info("the configuration stored by the page is used: tegracast config diff shows how it differs from the installed one",
		"file", s.File(), "installed", s.Installed)
	return c, true, nil
}

// Instead returns the installed configuration after the stored one could not be opened, and logs the reason.
func (s ConfigStore) Instead(log *slog.Logger, reason error) (*config.Appliance, error) {
	log.Error("the configuration stored by the page cannot be opened: the installed one is used", "file", s.File(), "error", reason)
	return s.Original()
}

// Original returns the installed configuration, whether or not another is stored.
func (s ConfigStore) Original() (*config.Appliance, error) {
	c, err := config.Load(s.Installed)
	if err == nil {
		err = s.Limit.Check(c)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// parse parses a text from the page, which errors call name, and checks the limit of its memory.
func (s ConfigStore) parse(name string, text []byte, installed *config.Appliance) (*config.Appliance, error) {
	c, err := config.ParseFromPage(name, text, installed)
	if err == nil {
		err = s.Limit.Check(c)
	}
	return c, err
}

// Keep stores a text so that it survives a loss of power. kept is false if nothing can be stored, after an error, and
// if the text is the installed file's, in which case Keep forgets the stored one.
func (s ConfigStore) Keep(text []byte) (kept bool, err error) {
	if s.Folder == "" {
		return false, nil
	}
	if installed, err := s.installed(); err == nil && string(installed) == string(text) {
		return false, s.Forget()
	}
	if err := files.WriteLasting(s.File(), 0o600, text); err != nil { // only the owner can read it
		return false, err
	}
	return true, nil
}

// Forget returns to the installed file. It renames the stored configuration to end in .old, replacing an earlier one.
func (s ConfigStore) Forget() error {
	if s.Folder == "" {
		return nil
	}
	if err := os.Rename(s.File(), s.File()+".old"); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return files.SyncFolder(s.Folder)
}

func (s ConfigStore) installed() ([]byte, error) {
	if s.Installed == "" {
		return config.Default(), nil
	}
	return files.ReadRegular(s.Installed, config.MaxFile, "a configuration")
}
