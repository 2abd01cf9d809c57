// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	vt "github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
)

// FuzzMessage decodes a message as each command's request. Accepted values must lie within bounds.
func FuzzMessage(f *testing.F) {
	f.Add(vt.Frame(1, vt.Version, 0, vt.Cat(uint32(0), `{"capabilities":{}}`+"\x00")), 0)
	f.Add(vt.Frame(1, vt.DMAMap, 0, vt.Cat(uint32(32), both, uint64(0), uint64(0x1000), uint64(page))), 1)
	f.Add(vt.Frame(1, vt.DMAUnmap, 0, vt.Cat(uint32(24), no, uint64(0), uint64(page))), 0)
	f.Add(vt.Frame(1, vt.RegionInfo, 0, vt.Cat(uint32(32), no, no, no, uint64(0), uint64(0))), 0)
	f.Add(vt.Frame(1, vt.SetIRQs, 0, irq(events|trigger, msix, 0, 2)), 2)
	f.Add(vt.Frame(1, vt.SetIRQs, 0, irq(bools|trigger, msix, 0, 2, 0, 1)), 0)
	f.Add(vt.Frame(1, vt.Write, 0, vt.Cat(uint64(0), no, uint32(4), no)), 0)
	f.Fuzz(func(t *testing.T, b []byte, files int) {
		if len(b) < headerSize {
			return
		}
		var m message
		n, err := m.parseHeader(b)
		if err != nil {
			return
		}
		if n < 0 || n > maxMessage-headerSize {
			t.Fatalf("a body of %d bytes", n)
		}
		m.body, m.files = b[headerSize:], make([]int, min(max(files, 0), maxFiles))
		_ = m.versionRequest()
		_, _ = m.mapRequest()
		if r, errno := m.unmapRequest(); errno == 0 && r.all && r.size != 0 {
			t.Error("everything, and a range")
		}
		_, _ = m.infoRequest(16)
		if r, errno := m.irqRequest(); errno == 0 {
			if r.start > maxVectors || r.count > maxVectors || r.data == irqBool && len(r.chosen) != r.count || len(m.files) > 0 && len(m.files) != r.count {
				t.Errorf("%+v with %d files", r, len(m.files))
			}
		}
		for _, write := range []bool{false, true} {
			if r, errno := m.accessRequest(write); errno == 0 && (r.count < 1 || r.count > maxTransfer || write && len(r.data) != r.count) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// FuzzSession sends messages made from the fuzzer's bytes, mostly valid, with descriptors of all kinds. The server must
// answer or end the connection, keep its tables consistent, and release everything.
func FuzzSession(f *testing.F) {
	f.Add([]byte{2, 1, 0, 16, 3, 8, 2, 0, 5, 7, 10, 1, 9, 0, 3, 1, 13, 0})
	f.Add([]byte{8, 3, 2, 4, 8, 3, 2, 4, 9, 2, 0, 1, 99, 0, 0, 0})
	d := serve(f)
	fd := memfd(f, "fuzz", 64*page)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { unix.Close(event) })
	f.Fuzz(func(t *testing.T, script []byte) {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.Path(), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		go func() { _, _ = conn.Write(vt.Frame(1, vt.Version, 0, vt.Cat(no))); play(conn, script, fd, event) }()
		if _, err := io.Copy(io.Discard, conn); err != nil && !gone(err) {
			t.Fatal(err) // the connection has not ended
		}
		d.memory.mu.RLock()
		defer d.memory.mu.RUnlock()
		for i, s := range d.memory.ranges {
			if s.last() < s.addr || i > 0 && d.memory.ranges[i-1].last() >= s.addr {
				t.Fatalf("range %d is out of order: %#x to %#x", i, s.addr, s.last())
			}
		}
	})
}

// play sends the messages of the script and closes the connection.
func play(conn *net.UnixConn, script []byte, fd, event int) {
	next := func() (b byte) {
		if len(script) > 0 {
			b, script = script[0], script[1:]
		}
		return b
	}
	small := func() uint64 { return uint64(next()) * page / 2 }
	for len(script) > 0 {
		cmd := uint16(next() % 20)
		var body []byte
		switch cmd {
		case vt.DMAMap:
			body = vt.Cat(uint32(32), uint32(next()%4), small(), small(), small())
		case vt.DMAUnmap:
			body = vt.Cat(uint32(24), uint32(next()%3), small(), small())
		case vt.Info, vt.IRQInfo:
			body = vt.Cat(uint32(16), no, uint32(next()%8), no)
		case vt.RegionInfo:
			body = vt.Cat(uint32(32), no, uint32(next()%10), no, uint64(0), uint64(0))
		case vt.SetIRQs:
			body = irq(uint32(next()%64), uint32(next()%6), uint32(next()%80), uint32(next()%20))
		case vt.Read, vt.Write:
			body = vt.Cat(uint64(next())<<(next()%64), uint32(next()%10), uint32(next()))
			if cmd == vt.Write {
				body = append(body, make([]byte, body[12])...)
			}
		}
		for i := next() % 32; i == 1 && len(body) > 0; i = next() % 4 { // corrupts something
			body[int(next())%len(body)] ^= next()
		}
		var oob []byte
		switch files := next(); files % 4 {
		case 1:
			oob = unix.UnixRights(fd)
		case 2:
			oob = unix.UnixRights(slices.Repeat([]int{event}, int(files/4)%17+1)...)
		}
		flags := uint32(0)
		if next()%2 == 1 {
			flags = 1 << 4
		}
		if _, _, err := conn.WriteMsgUnix(vt.Frame(uint16(len(script)), cmd, flags, body), oob, nil); err != nil {
			break
		}
	}
	_ = conn.CloseWrite()
}
