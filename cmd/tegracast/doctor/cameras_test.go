// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

// TestCameras checks what is told of cameras: what they offer, who holds them, and why one cannot be used.
func TestCameras(t *testing.T) {
	about := videodev.About{Card: "Double", Driver: "double"}
	for _, c := range []struct {
		camera videodev.Camera
		grade  grade
		says   string
	}{
		{
			videodev.Camera{Path: "/dev/video0", About: about, Offers: []string{"RG10 1920x1080 at 30", "UYVY"}},
			isGood,
			"/dev/video0: Double, driver double: RG10 1920x1080 at 30 | UYVY",
		},
		{
			videodev.Camera{Path: "/dev/video0", About: about, Offers: strings.Fields("A B C D E F G H I"), Holders: []videodev.Holder{{Process: 12, Name: "motion"}}},
			isNote, "F | G | H | and 1 more formats. Held by motion (process 12)",
		},
		{videodev.Camera{Path: "/dev/video0", About: about}, isWarning, "offers no format"},
		{videodev.Camera{Path: "/dev/video0", Err: &os.PathError{Op: "open", Path: "/dev/video0", Err: fs.ErrPermission}}, isWarning, "/dev/video0: this user may not open it"},
		{
			videodev.Camera{Path: "/dev/video0", Err: unix.EBUSY, Holders: []videodev.Holder{{Process: 12, Name: "motion"}, {Process: 13, Name: "ffmpeg"}}},
			isWarning, "/dev/video0: device or resource busy. Held by motion (process 12), ffmpeg (process 13)",
		},
		{videodev.Camera{Path: "/dev/video0", Err: unix.ENODEV}, isWarning, "/dev/video0: no such device"},
	} {
		p := patient{videos: func() []videodev.Camera { return []videodev.Camera{c.camera} }}
		if list := p.cameras(); len(list) != 1 || list[0].Grade != c.grade || !strings.Contains(list[0].Detail, c.says) {
			t.Errorf("%+v, want %s %q", list, c.grade, c.says)
		}
	}
	if list := (patient{}).cameras(); list != nil {
		t.Errorf("without cameras: %v", list)
	}
}
