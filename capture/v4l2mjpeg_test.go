// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// TestV4L2Files takes JPEG files into slots and by a copy: a frame is as long as its file, without the padding behind it,
// and a file that is cut is a damaged frame.
func TestV4L2Files(t *testing.T) {
	for way := range 4 {
		multi, user := way&1 != 0, way&2 != 0
		t.Run(fmt.Sprintf("multi %t user %t", multi, user), func(t *testing.T) {
			d := newDouble("YUYV", "MJPG")
			d.multi, d.user = multi, user
			r := runDouble(t, d, V4L2Config{Slots: 3, Pixel: pipeline.MJPEG})
			if how := r.camera.How(); strings.HasPrefix(how, "MMAP") == user {
				t.Errorf("frames come by %s", how)
			}
			for i, file := range [][]byte{
				[]byte("\xff\xd8 short \xff\xd9"), []byte("\xff\xd8 cut"), append([]byte("\xff\xd8"+strings.Repeat("long ", 500)+"\xff\xd9"), make([]byte, 64)...),
				[]byte("no file \xff\xd9"), []byte("\xff\xd8 short again \xff\xd9"),
			} {
				r.frame(t, d, func(b *videodev.Buffer) {
					memory := d.buffers[b.Index].own
					if d.memory == videodev.MemoryUser {
						memory = d.buffers[b.Index].user
					}
					b.Used = uint32(copy(memory[0], file))
				})
				if !bytes.HasPrefix(file, []byte("\xff\xd8")) || !bytes.Contains(file, []byte("\xff\xd9")) {
					continue
				}
				f := r.next(t)
				if f.Sequence != uint64(i) || !bytes.Equal(f.Bytes, bytes.TrimRight(file, "\x00")) || f.Format.Pixel != pipeline.MJPEG {
					t.Errorf("frame %d of %s: %q, want %q", f.Sequence, f.Format, f.Bytes, file)
				}
				f.Release()
			}
			if st := r.camera.Status(); st.Counters["damaged"] != 2 || st.Counters["lost"] != 0 {
				t.Errorf("%v", st.Counters)
			}
		})
	}
}

// TestV4L2FilesOnlyWhenAsked takes pictures from a device that is set to JPEG files and has both, and says what to do if
// it has nothing else.
func TestV4L2FilesOnlyWhenAsked(t *testing.T) {
	d := newDouble("MJPG", "YUYV")
	if f := runDouble(t, d, V4L2Config{}).camera.Format(); f.Pixel != pipeline.UYVY {
		t.Errorf("%s", f)
	}
	d = newDouble("MJPG")
	if _, err := newV4L2Camera(V4L2Config{Device: "/dev/video0", Memory: hostMemory(t)}, d.machine()); err == nil || !strings.Contains(err.Error(), "it offers MJPG 64x48") {
		t.Error(err)
	}
}
