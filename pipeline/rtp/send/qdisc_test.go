// SPDX-License-Identifier: Apache-2.0

package send

import (
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func TestDisciplines(t *testing.T) {
	rtptest.InNamespace(t, func() {
		rtptest.IP(t, "link", "add", "x", "type", "ifb")
		rtptest.IP(t, "link", "set", "x", "up")
		if kinds, err := disciplines("x"); err != nil || !slices.Equal(kinds, []string{"pfifo_fast"}) {
			t.Errorf("an ifb has %q, %v", kinds, err)
		}
		if _, err := disciplines("no-such-link"); err == nil {
			t.Error("an interface that is not there has disciplines")
		}
	})
}

// FuzzDisciplines checks that the parser handles any bytes from the kernel.
func FuzzDisciplines(f *testing.F) {
	if dump, err := dumpDisciplines(); err == nil {
		f.Add(dump, 1)
	}
	f.Fuzz(func(_ *testing.T, dump []byte, index int) { _, _ = parseDisciplines(dump, index) })
}
