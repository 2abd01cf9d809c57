// SPDX-License-Identifier: Apache-2.0

package terminal_test

import (
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

func TestNearest(t *testing.T) {
	words := []string{"serve", "loopback", "probe", "receive", "record", "doctor", "bind", "config", "version", "completion", "man"}
	for typed, want := range map[string]string{
		"sevre": "serve", "serv": "serve", "prob": "probe", "recodr": "record", "rec": "receive", "docktor": "doctor", "conf": "config",
		"loopbak": "loopback", "mna": "man", "x": "", "": "", "stream": "", "configuration-of-all": "",
	} {
		if got := terminal.Nearest(typed, words); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
