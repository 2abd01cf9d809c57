// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// TestTheFlightRecorderFollowsNoLink checks that a link with the file's name, which any user can create in a shared
// folder, is replaced.
func TestTheFlightRecorderFollowsNoLink(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "")
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "flight-recorder.txt"), filepath.Join(dir, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o600), os.Symlink(victim, path)); err != nil {
		t.Fatal(err)
	}
	if err := dump(&pipeline.Recorder{}, dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(victim)
	info, serr := os.Lstat(path)
	if err := errors.Join(err, serr); err != nil || string(text) != "mine" || !info.Mode().IsRegular() {
		t.Errorf("%q, %v, %v", text, info, err)
	}
}
