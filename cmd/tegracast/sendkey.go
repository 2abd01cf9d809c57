// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/folders"
	"github.com/tegracast/tegracast/cmd/tegracast/token"
	"github.com/tegracast/tegracast/pipeline/guesses"
)

// keyFor returns the key, which is the password or the token, of the page that serve provides at an address, or an
// error if the key cannot be read or must not be sent there (knownTo). If the page has no password and this user has
// never run serve, the key is empty: the failure or refusal of the connection is the better message.
func keyFor(w config.Web, at netip.AddrPort) (key string, err error) {
	file := w.PasswordFile
	if file != "" {
		key, err = config.Password(file)
	} else {
		folder := folders.StateOrUser()
		file = filepath.Join(folder, token.File)
		key, err = token.Read(folder)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && w.PasswordFile == "":
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%w: run this as the user of serve", err)
	case w.TLS(): // the certificate identifies the server
		return key, nil
	}
	return key, knownTo(file, at)
}

// knownTo returns an error if the content of a file must not be sent to the program that listens at an address, because
// that program's user cannot read the file. While serve is not running, any user may listen there, and would learn the
// key of the next run of serve.
func knownTo(file string, at netip.AddrPort) error {
	who, there := guesses.Listener(at)
	if !there || who == os.Geteuid() {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if owner, is := info.Sys().(*syscall.Stat_t); is && !reads(who, owner) {
		return fmt.Errorf("user %d listens at %s, and cannot read %s: that is not serve: stop it", who, at, file)
	}
	return nil
}

// reads reports whether a user may read a file according to its mode, owner and group. who is the user's number.
func reads(who int, file *syscall.Stat_t) bool {
	switch {
	case who == 0 || file.Mode&0o004 != 0:
		return true
	case who == int(file.Uid):
		return file.Mode&0o400 != 0
	case file.Mode&0o040 == 0:
		return false
	}
	u, err := user.LookupId(strconv.Itoa(who))
	if err != nil {
		return false
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(append(groups, u.Gid), strconv.Itoa(int(file.Gid)))
}
