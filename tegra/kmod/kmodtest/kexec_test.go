// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// TestKexec starts another kernel during a DMA. The function must be stopped before, as by every fence: the halt list has
// run, and bus mastering is off. The PCI core also does the latter.
func TestKexec(t *testing.T) { testKexec(t, build(t, "arm64")) }

func testKexec(t *testing.T, b built) {
	m := b.start(t, b.gup, vjetson.Config{Edu: true, Memory: 640, Files: map[string]string{"/kernel": b.kernel.Image()}})
	ctx, cancel := context.WithTimeout(t.Context(), guestLimit())
	defer cancel()
	said := make(chan []byte, 1)
	go func() {
		r, err := m.Run(ctx, "sh", "-c", "GUEST=1 exec /guest.test -test.run '^TestKexec$'")
		if err == nil { // returns only on a failure
			said <- r.Stdout
			cancel()
		}
	}()
	if err := m.Wait(ctx); err != nil {
		select {
		case out := <-said:
			t.Fatalf("%s", out)
		default:
			t.Fatal(err)
		}
	}
	log := strings.Join(m.KernelLog(), "\n")
	for _, want := range []string{
		"tegra_p2p 0000:01:00.0: stopped: the machine ends, or starts another kernel", "kexec_core: Starting new kernel",
		"Booting Linux on physical CPU", "second kernel: bus master false, halted true",
	} {
		_, after, found := strings.Cut(log, want)
		if !found {
			t.Fatalf("no %q in:\n%s", want, log)
		}
		log = after
	}
}
