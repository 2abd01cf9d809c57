// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLabelsAreRead(t *testing.T) {
	long := strings.Repeat("ä", maxLabel/2)
	for text, want := range map[string][]string{
		"cat\ndog\n": {"cat", "dog"}, "cat\ndog": {"cat", "dog"}, "cat\r\n\r\ndog\r\n": {"cat", "", "dog"}, "\uFEFFcat\n": {"cat"}, "\n": {""},
		" <script>\x00\n" + long:        {" <script>\x00", long},
		strings.Repeat("\n", maxLabels): make([]string, maxLabels),
	} {
		path := filepath.Join(t.TempDir(), "labels.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadLabels(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%.40q: %.40q, %v", text, got, err)
		}
	}
}

func TestLabelsThatAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "labels.txt")
	for want, text := range map[string]string{
		"labels.txt: line 2: 257 bytes, and at most 256 are allowed":            "a\n" + strings.Repeat("x", 257),
		"labels.txt: line 3: more than 4096 bytes, and at most 256 are allowed": "a\n\n" + strings.Repeat("x", 1<<20),
		`labels.txt: line 2: "\xfe" is not UTF-8`:                               "a\n\xfe\n",
		"labels.txt: line 65537: at most 65536 labels are allowed":              strings.Repeat("a\n", maxLabels+1),
		"labels.txt: the file is empty: write one label a line":                 "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadLabels(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, must contain %s", err, want)
		}
	}
	fifo, long := path+".fifo", path+".long" // opening the first would wait for ever
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.WriteFile(long, nil, 0o600), os.Truncate(long, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{path + "x", filepath.Dir(path), fifo, "/dev/zero", long} {
		if _, err := ReadLabels(other); err == nil || !strings.Contains(err.Error(), other) {
			t.Error(err)
		}
	}
}
