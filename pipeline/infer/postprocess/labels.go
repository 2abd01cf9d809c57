// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/tegracast/tegracast/pipeline/files"
)

// Limits of labels.
const (
	maxLabel  = 256 // bytes of each
	maxLabels = 64 << 10
)

// ReadLabels reads a file with one label a line, of which the first one is that of class 0. An empty line is a class without
// a name. An error says which line is wrong.
func ReadLabels(path string) ([]string, error) {
	text, err := files.ReadRegular(path, maxLabels*(maxLabel+2), "a list of labels")
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	labels, err := parseLabels(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("labels: %s: %w", path, err)
	}
	return labels, nil
}

// parseLabels reads labels. Lines may end as in Windows, and the text may begin with a byte order mark.
func parseLabels(text io.Reader) (labels []string, err error) {
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, 0, 4<<10), 4<<10) // a line that is too long for it is too long for a label
	for lines.Scan() {
		line := lines.Bytes()
		if len(labels) == 0 {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		label := string(line)
		if err := checkLabel(label); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(labels)+1, err)
		}
		if len(labels) == maxLabels {
			return nil, fmt.Errorf("line %d: at most %d labels are allowed", len(labels)+1, maxLabels)
		}
		labels = append(labels, label)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d: more than %d bytes, and at most %d are allowed", len(labels)+1, 4<<10, maxLabel)
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", len(labels)+1, err)
	case len(labels) == 0:
		return nil, errors.New("the file is empty: write one label a line")
	}
	return labels, nil
}
