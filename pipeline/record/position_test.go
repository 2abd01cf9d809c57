// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"
	"time"
)

func TestPositionText(t *testing.T) {
	for _, p := range []Position{At(0), At(90 * time.Second), AtFrame(0), AtFrame(1200)} {
		text, err := p.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var q Position
		if err := q.UnmarshalText(text); err != nil || q != p {
			t.Errorf("%v becomes %q, and that %v: %v", p, text, q, err)
		}
	}
}
