// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAWeekOfRetention begins a file every ten minutes for a week of virtual time, on a disk that has room for less than
// half of them. Each limit must keep the newest files and no others, the list must name the files that there are, and what
// others have put into the folder, with names like the recording's, must stay. The program starts again twice, with another
// format.
func TestAWeekOfRetention(t *testing.T) {
	const bytes, every, files = 64 << 10, 10 * time.Minute, 7 * 24 * 6
	begin := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name        string
		keep        Retention
		least, most int
	}{
		{"size", Retention{Size: 100 * bytes}, 100, 100},
		{"age", Retention{Age: 24 * time.Hour}, 144, 145},
		{"free", Retention{Free: 8 << 20}, 180, 192},
		{"all", Retention{Size: 100 * bytes, Age: 12 * time.Hour, Free: 1 << 20}, 72, 73},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := small(t, "size=20m")
			elsewhere := filepath.Join(t.TempDir(), "precious")
			if err := os.WriteFile(elsewhere, make([]byte, bytes), 0o600); err != nil {
				t.Fatal(err)
			}
			var deleted []string
			var d *folder
			start := func(extension string) {
				d = &folder{directory: dir, name: "rec", extension: extension, keep: c.keep, log: slog.New(slog.DiscardHandler)}
				d.told = func(n News) {
					if n.Deleted {
						deleted = append(deleted, n.File)
					}
				}
			}
			foreign := filepath.Join(dir, "rec-20200103T000000000Z.mcap")
			now := begin
			create := func(path string) error {
				f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return err
				}
				if _, err := f.Write(make([]byte, bytes)); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					return err
				}
				return os.Chtimes(path, now, now)
			}
			var made []string
			for i := range files {
				now = begin.Add(time.Duration(i) * every)
				switch i {
				case 0, 2 * files / 3:
					start(VideoExtension)
				case files / 3:
					if err := os.Remove(foreign); err != nil { // otherwise it would now be one of the recording's own
						t.Error(err)
					}
					start(Extension)
				}
				if err := d.prune(now); err != nil {
					t.Fatal(err)
				}
				path, err := d.names(now, create)
				if err != nil {
					t.Fatal(err)
				}
				made = append(made, path)
				if i == 0 { // others' files, older than all
					if err := os.Symlink(elsewhere, filepath.Join(dir, "rec-20200101T000000000Z.mp4")); err != nil {
						t.Fatal(err)
					}
					if err := errors.Join(create(filepath.Join(dir, "rec-20200102T000000000Z.mp4")), create(foreign)); err != nil {
						t.Fatal(err)
					}
				}
			}
			left := made[len(deleted):]
			if n := len(left) - 1; n < c.least || n > c.most { // the last one was not finished at the last check
				t.Errorf("%d finished files are left, want %d to %d", n, c.least, c.most)
			}
			for i, path := range deleted {
				if path != made[i] {
					t.Fatalf("deletion %d was of %s, the oldest was %s", i, path, made[i])
				}
			}
			want := map[string]string{VideoExtension: "", Extension: ""}
			for _, path := range left {
				var st unix.Stat_t
				if err := unix.Lstat(path, &st); err != nil {
					t.Errorf("%s: %v", path, err)
				}
				want[filepath.Ext(path)] += filepath.Base(path) + "\n"
			}
			for extension, want := range want {
				if index, err := os.ReadFile(d.indexPath(extension)); err != nil || string(index) != want {
					t.Errorf("%v: the list of %s has %d lines, want %d", err, extension, strings.Count(string(index), "\n"), strings.Count(want, "\n"))
				}
			}
			for _, path := range []string{elsewhere, filepath.Join(dir, "rec-20200101T000000000Z.mp4"), filepath.Join(dir, "rec-20200102T000000000Z.mp4")} {
				if _, err := os.Stat(path); err != nil {
					t.Errorf("a file of somebody else's: %v", err)
				}
			}
		})
	}
}
