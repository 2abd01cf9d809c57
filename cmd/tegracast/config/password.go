// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tegracast/tegracast/pipeline/files"
)

const maxPassword = 4096 // bytes of a file

// Password returns the first line of a file, without the line break. It returns an error if that line is empty, or if
// the file has more than maxPassword bytes or cannot be read.
func Password(path string) (string, error) {
	b, err := files.ReadRegular(path, maxPassword, "a password")
	if err != nil {
		return "", err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	password := strings.TrimRight(string(line), "\r")
	if password == "" {
		return "", fmt.Errorf("%s: the first line is empty: write a password there", path)
	}
	return password, nil
}
