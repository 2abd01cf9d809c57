// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// prune deletes the oldest files of the recording but those that are busy, as long as they have more than Keep bytes.
func (s *Sink) prune(busy ...string) error {
	if s.config.Keep == 0 {
		return nil
	}
	list, err := Files(s.config.Directory, s.config.Name)
	if err != nil {
		return err
	}
	var sizes []int64
	total := int64(0)
	for _, path := range list {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			sizes = append(sizes, 0)
			continue
		} else if err != nil {
			return err
		}
		sizes = append(sizes, info.Size())
		total += info.Size()
	}
	for i, path := range list {
		if total <= s.config.Keep {
			break
		}
		if slices.Contains(busy, path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.log.Info("an old recording was deleted", "file", path, "bytes", sizes[i])
		total -= sizes[i]
	}
	return nil
}

// Files are the files of a recording, from the oldest to the newest.
func Files(directory, name string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		stamp, is := strings.CutPrefix(e.Name(), name+"-")
		stamp, is2 := strings.CutSuffix(stamp, "Z"+Extension)
		if is && is2 && len(stamp) == len("20060102T150405000") && e.Type().IsRegular() {
			list = append(list, filepath.Join(directory, e.Name()))
		}
	}
	slices.Sort(list)
	return list, nil
}
