// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"bytes"
	"errors"
	"testing"
)

// TestCopiesThroughStandin checks the requests to the driver; TestGPUCopies uses a GPU.
func TestCopiesThroughStandin(t *testing.T) {
	c := openStandin(t)
	if c.Device.Processors != 14 {
		t.Errorf("%d multiprocessors", c.Device.Processors)
	}
	checkCopies(t, c)
	if _, err := c.Device.AllocDevice(0); !errors.Is(err, ErrSize) {
		t.Errorf("no bytes: %v", err)
	}
	var e *Error
	if _, err := c.Device.AllocDevice(1 << 31); !errors.As(err, &e) || e.Call != "cuMemAlloc_v2" {
		t.Errorf("too much: %v", err)
	}
}

func TestGPUCopies(t *testing.T) { checkCopies(t, gpu(t)) }

// checkCopies copies lines to the device on one stream and back on another one, which waits for the first.
func checkCopies(t *testing.T, c *CUDA) {
	t.Helper()
	const stride, height = 100, 30
	from, err := c.AllocHost(stride*height, Mapped)
	if err != nil {
		t.Fatal(err)
	}
	to, err := c.AllocHost(stride*height, Mapped)
	if err != nil {
		t.Fatal(err)
	}
	device, err := c.Device.AllocDevice(stride * height)
	if err != nil {
		t.Fatal(err)
	}
	var streams [2]*Stream
	for i := range streams {
		if streams[i], err = c.Device.NewStream(); err != nil {
			t.Fatal(err)
		}
	}
	event, err := c.Device.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	for i := range from.Bytes() {
		from.Bytes()[i], to.Bytes()[i] = byte(i%251), 255
	}
	l := Lines{Width: 60, Height: height, Stride: stride}
	if err := errors.Join(
		device.Write(bytes.Repeat([]byte{7}, stride*height)), device.Write(nil),
		streams[0].CopyIn(device.Pointer, from.Addr(), l), streams[0].Clear(device.Pointer+stride, 10), streams[0].Mark(event),
		streams[1].After(event), streams[1].CopyOut(to.Addr(), device.Pointer, l),
		streams[1].Read(to.Addr()+80, device.Pointer+80, 5),
	); err != nil {
		t.Fatal(err)
	}
	if err := device.Write(make([]byte, stride*height+1)); !errors.Is(err, ErrSize) {
		t.Errorf("more than there is: %v", err)
	}
	var seen []byte
	f, err := streams[1].FenceThen(func(err error) {
		if err == nil {
			seen = bytes.Clone(to.Bytes())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, b := range seen {
		want := byte(255)
		switch x := i % stride; {
		case i/stride == 1 && x < 10:
			want = 0
		case x < 60:
			want = byte(i % 251)
		case i >= 80 && i < 85:
			want = 7
		}
		if b != want {
			t.Fatalf("byte %d is %d, want %d", i, b, want)
		}
	}
	if len(seen) == 0 {
		t.Error("the fence opened before what it had to do first")
	}
	if err := errors.Join(event.Close(), streams[0].Close(), streams[1].Close(), device.Close(), from.Close(), to.Close()); err != nil {
		t.Error(err)
	}
}
