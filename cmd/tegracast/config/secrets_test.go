// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestExposed: files with secrets that every user can read or write are named by their key. A group may read them.
func TestExposed(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("a secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // regardless of the umask
			t.Fatal(err)
		}
		return path
	}
	c, err := Parse("test.yaml", fmt.Appendf(nil, `
memory: host
sources: [{name: camera, model: {width: 320, height: 240}}]
isp: [{name: colors}]
outputs:
  - {name: raw, rtp: {payload: jpeg, publish: {url: "rtsp://192.0.2.1:8554/raw", user: me, password_file: %q}}}
rtsp: {user: me, password_file: %q}
bus: {server: "nats://192.0.2.1", token_file: %q}
web: {password_file: %q}
`, write("publish", 0o644), write("rtsp", 0o640), write("bus", 0o602), filepath.Join(dir, "missing")))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range c.Exposed() {
		got = append(got, s.Key)
	}
	if want := []string{"bus.token_file", "outputs[raw].rtp.publish.password_file"}; !slices.Equal(got, want) {
		t.Errorf("%v instead of %v", got, want)
	}
}
