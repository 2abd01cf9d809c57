// SPDX-License-Identifier: Apache-2.0

package token

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestMake checks that concurrent calls return the same token, which persists and which only its owner can read.
func TestMake(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state", "tegracast")
	tokens := make([]string, 8)
	var making sync.WaitGroup
	for i := range tokens {
		making.Go(func() {
			var err error
			if tokens[i], err = Make(folder); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	kept, err := Read(folder)
	if err != nil || len(kept) != 2*size {
		t.Fatalf("%q, %v", kept, err)
	}
	for _, token := range tokens {
		if token != kept {
			t.Errorf("%s, and %s is kept", token, kept)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := files[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Error(info, err)
	}
}

// TestNotKept checks that a token that cannot be stored is returned with the reason.
func TestNotKept(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, File), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for where, why := range map[string]string{"": "STATE_DIRECTORY", folder: "remove the file", "/proc/nowhere": "no such file"} {
		token, err := Make(where)
		if len(token) != 2*size || err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %q, %v", where, token, err)
		}
	}
}
