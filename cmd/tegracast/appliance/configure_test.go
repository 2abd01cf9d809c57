// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/lines/linestest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestConfigure: a good text is used and kept, and only what differs is opened again; one with mistakes is refused with their lines, and
// so is one that cannot be opened, or that would change the page: then all goes on as it was. Reset goes back to the file.
func TestConfigure(t *testing.T) {
	var to []string
	for _, p := range rtptest.EvenPorts(t, 3) {
		to = append(to, fmt.Sprint("127.0.0.1:", p))
	}
	text := reloadConfig(t, to, 31, 1.5, 1400)
	s := newReloads(t, text, linestest.New())
	s.store.Folder = t.TempDir()
	if err := s.web.Open(t.Context(), s.cfg.Web); err != nil {
		t.Fatal(err)
	}
	s.show(false)
	s.begin(t)
	configure := func(next string) string {
		t.Helper()
		c, err := s.Configure(t.Context(), []byte(next))
		if err != nil {
			return err.Error()
		}
		if again := s.Check([]byte(next)); again.Good != c.Good || !slices.Equal(again.Mistakes, c.Mistakes) {
			t.Errorf("the check says %+v, and the change %+v", again, c)
		}
		return fmt.Sprint(c.Good, c.Changed, c.Mistakes)
	}
	s.streaming(t, "raw1")
	untouched := s.a.flow("one").outputs[0]
	next := strings.Replace(text, "mtu: 1400", "mtu: 1300", 1)
	for _, c := range []struct {
		text, want string
		kept       bool
	}{
		{strings.NewReplacer("rate: 10", "rate: ten", "mtu: 1400", "mtu: 1").Replace(text), "{5 ", false},
		{strings.NewReplacer("rate: 10", "rate: ten", "mtu: 1400", "mtu: 1").Replace(text), "{22 65 ", false},
		{strings.Replace(text, "listen: none", "listen: 0.0.0.0:8080", 1), "[{2 1 web configuration:2:1: web: the page cannot", false},
		{next, "true [outputs[raw3].rtp.mtu]", true},
		{strings.Replace(next, to[2], "nowhere.invalid:5004", 1), "nowhere.invalid", true},
		{next + "# a comment\n", "true [] []", true},
	} {
		got := configure(c.text)
		now, err := os.ReadFile(s.store.File())
		if !strings.Contains(got, c.want) || (err == nil) != c.kept || s.Configuration().Kept != c.kept {
			t.Errorf("%s, and kept: %v %v, want %s", got, err == nil, s.Configuration().Kept, c.want)
		}
		if c.kept && s.Configuration().Text != string(now) {
			t.Error("another text is kept than that of now")
		}
	}
	if s.a.flow("one").outputs[0] != untouched || s.Configuration().Text != next+"# a comment\n" {
		t.Error("what has not changed was opened again, or the comment is lost")
	}
	s.put(t, strings.Replace(text, "listen: none", "listen: none, profile: true", 1)) // the kept text says another web from now on
	if got := configure(next + "# another\n"); got != "true [] []" || !s.web.Now().Profile || !s.Configuration().Kept {
		t.Errorf("%s, and the page is reached by %+v", got, s.web.Now())
	}
	folder := s.store.Folder
	s.store.Folder = filepath.Join(folder, "gone")
	if c, err := s.Configure(t.Context(), []byte(next)); err != nil || !c.Good || !strings.Contains(c.Warning, "cannot be kept") {
		t.Errorf("it cannot be kept: %+v %v", c, err)
	}
	if c := s.Configuration(); c.Text != next || c.Kept {
		t.Errorf("it is used, and not kept: %+v", c)
	}
	s.store.Folder = folder
	s.hangup <- nil
	if c, err := s.Reset(t.Context()); err != nil || !slices.Equal(c.Changed, []string{"outputs[raw3].rtp.mtu"}) || s.Configuration().Kept {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := os.Stat(s.store.File()); err == nil {
		t.Error("it is still kept")
	}
	s.streaming(t, "raw3")
	s.end(t)
}
