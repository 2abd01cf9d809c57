// SPDX-License-Identifier: Apache-2.0

// Package token manages the key with which users of this machine access the page: 128 random bits in a file of the state
// folder.
package token

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tegracast/tegracast/pipeline/files"
)

// File is the name of the token's file in the state folder.
const File = "web.token"

const size = 16

// Read returns the token stored in a folder: 32 hexadecimal digits.
func Read(folder string) (string, error) {
	path := filepath.Join(folder, File)
	text, err := files.ReadRegular(path, 1<<10, "a token")
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if b, err := hex.DecodeString(token); err != nil || len(b) != size {
		return "", fmt.Errorf("%s: this is no token of %d hexadecimal digits: remove the file, and serve makes another", path, 2*size)
	}
	return token, nil
}

// Make returns the token of a folder, and creates one if necessary. With an error it returns a token that is not stored.
func Make(folder string) (string, error) {
	b := make([]byte, size)
	_, _ = rand.Read(b) // cannot fail
	made := hex.EncodeToString(b)
	if folder == "" {
		return made, errors.New("there is no folder for it: set HOME or STATE_DIRECTORY")
	}
	kept, err := Read(folder)
	if errors.Is(err, fs.ErrNotExist) {
		if err = write(folder, made); errors.Is(err, fs.ErrExist) { // another process was faster
			kept, err = Read(folder)
		} else {
			kept = made
		}
	}
	if err != nil {
		return made, err
	}
	return kept, nil
}

// write writes a token, readable only by its owner. If there is one already, it returns an error that wraps
// fs.ErrExist. Other processes never see a partial file.
func write(folder, token string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, File+".") // has mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintln(f, token)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), filepath.Join(folder, File))
}
