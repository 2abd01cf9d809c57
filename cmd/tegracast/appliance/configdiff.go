// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/files"
)

// Diff writes the differences between the installed file and the stored text in the format of diff -u, and reports
// whether there are any. If nothing is stored, it writes that.
func (s ConfigStore) Diff(ctx context.Context, out io.Writer) (differs bool, err error) {
	text, err := files.ReadRegular(s.File(), config.MaxFile, "a configuration")
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(out, "nothing is kept in %s: the service uses %s\n", s.Folder, s.Installed)
		return false, err
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: use sudo", err)
	}
	if err != nil {
		return false, err
	}
	if _, err := s.installed(); err != nil {
		return false, err
	}
	diff := exec.CommandContext(ctx, "diff", "-u", "--label", s.Installed, "--label", s.File(), "--", s.Installed, "-")
	var complaint bytes.Buffer
	diff.Stdin, diff.Stdout, diff.Stderr = bytes.NewReader(text), out, &complaint
	err = diff.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == 1 {
		return true, nil
	}
	if err != nil {
		err = fmt.Errorf("diff: %w %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	return false, err
}
