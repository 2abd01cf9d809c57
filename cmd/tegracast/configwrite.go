// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/printable"
)

// serviceGroup returns the number of the service's group, for root.
func serviceGroup() (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("--write: only root may write the service's files: use sudo, or leave --write out")
	}
	g, err := user.LookupGroup("tegracast")
	if err != nil {
		return 0, fmt.Errorf("--write: %w: install the package tegracast, or leave --write out", err)
	}
	return strconv.Atoi(g.Gid)
}

// madeTLS describes the files that makeTLS has made.
type madeTLS struct {
	certificate string // path of the certificate's file
	text        string // for people
	section     string // of the configuration that uses them
}

// writeSection adds a section to the end of the service's configuration, and says so. If the result would not be valid,
// it prints the section and why it was not added, and returns terminal.ErrChecked.
func (e env) writeSection(path string, made madeTLS) error {
	added, err := addSection(path, made)
	switch {
	case err != nil:
		fmt.Fprintf(e.Out, "Write into %s, which was not changed:\n\n%s", path, made.section)
		fmt.Fprintf(e.Err, "tegracast config: %s\n", printable.Lines(err.Error()))
		return terminal.ErrChecked
	case added:
		_, err = fmt.Fprintf(e.Out, "%s has the section web now; to use it: systemctl reload tegracast\n", path)
	default:
		_, err = fmt.Fprintf(e.Out, "%s names these files already; to use them: systemctl restart tegracast\n", path)
	}
	return err
}

// documentEnd finds the line that ends a document (YAML 1.2 §9.1.2).
var documentEnd = regexp.MustCompile(`(?m)^\.\.\.(\s|$)`)

// addSection adds a section to the end of a configuration, unless its certificate is in use there already. The file keeps
// its owner and its mode. Nothing is added to a file that has mistakes, or would have any with the section.
func addSection(path string, made madeTLS) (added bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("%w: make one with tegracast config default", err)
	}
	c, err := config.Parse(path, text)
	if err != nil || c.Web.Certificate == made.certificate {
		return false, err
	}
	end := len(text)
	if at := documentEnd.FindIndex(text); at != nil {
		end = at[0]
	}
	section := "\n" + made.section
	if !bytes.HasSuffix(text[:end], []byte("\n")) {
		section = "\n" + section
	}
	text = slices.Insert(text, end, []byte(section)...)
	if _, err := config.Parse(path, text); err != nil {
		return false, fmt.Errorf("the section does not fit: %w", err)
	}
	return true, replaceText(path, text)
}

// replaceText replaces the text of a file, or of the file that a link leads to, and keeps owner and mode. If it fails, the
// text is as before.
func replaceText(path string, text []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := files.WriteLasting(path, st.Mode().Perm(), text); err != nil {
		return err
	}
	owner := st.Sys().(*syscall.Stat_t)
	return errors.Join(os.Chown(path, int(owner.Uid), int(owner.Gid)), os.Chmod(path, st.Mode().Perm()))
}

// keepPassword checks that the password in a file will be accepted, and lets the group, unless that is -1, read it.
func keepPassword(path string, group int) error {
	password, err := config.Password(path)
	switch {
	case err != nil:
		return err
	case len(password) < guesses.LeastPassword:
		return fmt.Errorf("%s: the password has %d characters: write at least %d, or remove the file", path, len(password), guesses.LeastPassword)
	case group < 0:
		return nil
	}
	return errors.Join(os.Chown(path, -1, group), os.Chmod(path, 0o640))
}

// writeNew creates new files, readable only by their owner and the group, unless that is -1: all of them, or none.
func writeNew(paths []string, content [][]byte, group int) error {
	for i, path := range paths {
		made, err := writeOne(path, content[i], group)
		if err == nil {
			continue
		}
		if made {
			i++
		}
		for _, path := range paths[:i] {
			err = errors.Join(err, os.Remove(path))
		}
		return err
	}
	return nil
}

// writeOne creates a file. made reports whether the file exists now, even if there is an error.
func writeOne(path string, content []byte, group int) (made bool, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("%w: remove it, or write to another folder (--dir)", err)
	case err != nil:
		return false, fmt.Errorf("%w: name a folder that can be written to with --dir", err)
	}
	if group >= 0 {
		err = errors.Join(f.Chown(-1, group), f.Chmod(0o640))
	}
	_, failed := f.Write(content)
	return true, errors.Join(err, failed, f.Close())
}
