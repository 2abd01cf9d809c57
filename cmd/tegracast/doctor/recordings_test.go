// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// recordingsYAML has recordings with each value of storage.
const recordingsYAML = `
memory: MEMORY
sources: [{name: camera, model: {width: 640, height: 480}}]
outputs:
  - {name: a, from: camera, record: {directory: /accepted}}
  - {name: b, from: camera, record: {directory: /refused, storage: auto}}
  - {name: c, from: camera, record: {directory: /plain, storage: compatibility}}
  - {name: d, from: camera, record: {directory: /refused, storage: library}}
`

// TestDoctorRecordings checks that doctor tells of each folder of recordings whether libcufile writes there, and that it
// asks the library only where it is installed and would be used.
func TestDoctorRecordings(t *testing.T) {
	const without = "note libcufile /refused is written without libcufile: "
	for name, tt := range map[string]struct {
		library, memory string
		asked, want     []string
	}{
		"installed": {"usr/local/cuda/lib64/libcufile.so.0", "auto", []string{"libcufile:/accepted", "libcufile:/refused", "libcufile:/refused"}, []string{
			"good libcufile /usr/local/cuda/lib64/libcufile.so.0", "good libcufile /accepted is written by libcufile", without + "it refuses",
			"good libcufile /plain is written without libcufile: storage: compatibility",
			"warning libcufile /refused cannot be written by libcufile: it refuses: correct that, or use storage: auto",
		}},
		"in host memory": {"usr/lib/libcufile.so.0", "host", []string{"libcufile:/refused"}, []string{
			"good libcufile /usr/lib/libcufile.so.0", "note libcufile /accepted is written without libcufile: memory: host", without + "memory: host",
			"good libcufile /plain is written without libcufile: storage: compatibility",
			"warning libcufile /refused cannot be written by libcufile: it refuses: correct that, or use storage: auto",
		}},
		"not installed": {"none", "auto", nil, []string{"note libcufile not installed: recordings are written and read without it (storage: compatibility)"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := ofPatient(fstest.MapFS{tt.library: {}}, 0)
			p.config = func() (*config.Appliance, error) {
				return config.Parse("a test", []byte(strings.Replace(recordingsYAML, "MEMORY", tt.memory, 1)))
			}
			var asked, got []string
			p.attempt = func(library string) (string, error) {
				if asked = append(asked, library); strings.HasSuffix(library, "refused") {
					return "", errors.New("it refuses")
				}
				return "", nil
			}
			for _, x := range p.recordings() {
				got = append(got, string(x.Grade)+" "+x.What+" "+x.Detail)
				helps(t, x)
			}
			if !slices.Equal(got, tt.want) || !slices.Equal(asked, tt.asked) {
				t.Errorf("asks %q and says\n%s\nwant %q and\n%s", asked, strings.Join(got, "\n"), tt.asked, strings.Join(tt.want, "\n"))
			}
		})
	}
	p := ofPatient(fstest.MapFS{"usr/lib/libcufile.so.0": {}}, 0)
	p.config = func() (*config.Appliance, error) { return nil, errors.New("permission denied") }
	expect(t, p.recordings(), "libcufile", isNote, "folders are not checked: permission denied")
}
