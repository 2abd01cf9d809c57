// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestLine tests the legacy line of a function, on a kernel that permits no message-signalled interrupts.
func TestLine(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	if i := d.info(t); i.Flags&uapi.InfoINTX == 0 || i.NIRQs != 1 {
		t.Fatalf("%+v", i)
	}
	other := open(t)
	e := d.edu(t)
	unmask := func(d *device) error { _, err := uapi.DoControl(d.fd, uapi.ControlUnmask, 0); return err }
	silent := func(when string) {
		t.Helper()
		time.Sleep(10 * time.Millisecond)
		if n := e.msi.count(); n != 0 {
			t.Fatalf("%d events %s", n, when)
		}
	}
	wantErrno(t, "UNMASK by another open file", unmask(other), unix.EBUSY)
	for range times {
		e.write(eduIRQRaise, 1)
		e.msi.wait(t)
		e.write(eduIRQRaise, 2)
		silent("of a line that is masked")
		wantErrno(t, "UNMASK", unmask(d), 0)
		e.msi.wait(t) // it is still asserted
		e.write(eduIRQAck, 3)
		wantErrno(t, "UNMASK", unmask(d), 0)
		silent("of a line that is down")
	}
	b := anonymous(t, 2*page)
	p, iova := d.mustPin(t, b)
	for range 3 {
		e.start(toDevice, iova)
		e.finish(t)
		wantErrno(t, "UNMASK", unmask(d), 0)
	}
	d.put(t, p.Handle)
	// An interrupt without a listener is delivered to the next one.
	e.write(eduIRQRaise, 1)
	e.msi.wait(t)
	e.close()
	d.close()
	next := other.live(t).event(t, uapi.EventMSI)
	next.wait(t)
	e = &edu{msi: next}
	r, err := uapi.GetRegion(other.fd, 0)
	if err != nil {
		t.Fatal(err)
	}
	e.regs = other.mmap(t, r.MmapOffset, r.Size)
	e.write(eduIRQAck, 1)
	e.close()
}
