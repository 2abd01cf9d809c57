// SPDX-License-Identifier: Apache-2.0

// Package gotest describes the output of go test -json.
package gotest

import (
	"regexp"
	"slices"
	"strings"
)

// An Event is one line of the output of go test -json (go doc cmd/test2json).
type Event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// place matches the file and line that go test writes before the reason of a skip.
var place = regexp.MustCompile(`^ +[\w.-]+\.go:\d+: `)

// Reason returns the last line of a skipped test's output that begins with a file and line number, without these, or
// "no reason" if there is no such line.
func Reason(said []string) string {
	for _, line := range slices.Backward(said) {
		if at := place.FindString(line); at != "" {
			return strings.TrimSpace(line[len(at):])
		}
	}
	return "no reason"
}
