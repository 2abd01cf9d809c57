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

// TestConfigure checks that a valid text is used and stored, and only the differences are reopened. A text with mistakes
// is refused with their lines. A text that cannot be opened, or that would change the page, is refused too, and
// everything goes on as before. Reset restores the file's configuration.
func TestConfigure(t *testing.T) {
	var to []string
	for _, p := range rtptest.EvenPorts(t, 3) {
		to = append(to, fmt.Sprint("127.0.0.1:", p))
	}
	text := reloadConfig(t, to, 31, 1.5, 1400)
	s := newReloads(t, text, linestest.New())
	s.editor.store.Folder = t.TempDir()
	if err := s.site.Open(t.Context(), s.reloader.cfg.Web); err != nil {
		t.Fatal(err)
	}
	s.editor.showConfiguration(false)
	s.begin(t)
	configure := func(next string) string {
		t.Helper()
		c, err := s.editor.Configure(t.Context(), []byte(next))
		if err != nil {
			return err.Error()
		}
		if again := s.editor.Check([]byte(next)); again.Good != c.Good || !slices.Equal(again.Mistakes, c.Mistakes) {
			t.Errorf("the check says %+v, and the change %+v", again, c)
		}
		return fmt.Sprint(c.Good, c.Changed, c.Mistakes)
	}
	s.streaming(t, "raw1")
	untouched := s.flows.find("one").outputs[0]
	next := strings.Replace(text, "mtu: 1400", "mtu: 1300", 1)
	for _, c := range []struct {
		text, want string
		kept       bool
	}{
		{strings.NewReplacer("rate: 10", "rate: ten", "mtu: 1400", "mtu: 1").Replace(text), "{5 ", false},
		{strings.NewReplacer("rate: 10", "rate: ten", "mtu: 1400", "mtu: 1").Replace(text), "{22 65 ", false},
		{strings.Replace(text, "listen: none", "listen: 127.0.0.2:8080", 1), "[{2 1 web configuration:2:1: web: the page cannot", false},
		{next, "true [outputs[raw3].rtp.mtu]", true},
		{strings.Replace(next, to[2], "nowhere.invalid:5004", 1), "nowhere.invalid", true},
		{next + "# a comment\n", "true [] []", true},
	} {
		got := configure(c.text)
		now, err := os.ReadFile(s.editor.store.File())
		if !strings.Contains(got, c.want) || (err == nil) != c.kept || s.editor.Configuration().Kept != c.kept {
			t.Errorf("%s, and kept: %v %v, want %s", got, err == nil, s.editor.Configuration().Kept, c.want)
		}
		if c.kept && s.editor.Configuration().Text != string(now) {
			t.Error("another text is kept than that of now")
		}
	}
	if s.flows.find("one").outputs[0] != untouched || s.editor.Configuration().Text != next+"# a comment\n" {
		t.Error("what has not changed was opened again, or the comment is lost")
	}
	s.put(t, strings.Replace(text, "listen: none", "listen: none, profile: true", 1)) // the stored text now has a different section web
	if got := configure(next + "# another\n"); got != "true [] []" || !s.site.Now().Profile || !s.editor.Configuration().Kept {
		t.Errorf("%s, and the page is reached by %+v", got, s.site.Now())
	}
	folder := s.editor.store.Folder
	s.editor.store.Folder = filepath.Join(folder, "gone")
	if c, err := s.editor.Configure(t.Context(), []byte(next)); err != nil || !c.Good || !strings.Contains(c.Warning, "cannot be kept") {
		t.Errorf("it cannot be kept: %+v %v", c, err)
	}
	if c := s.editor.Configuration(); c.Text != next || c.Kept {
		t.Errorf("it is used, and not kept: %+v", c)
	}
	s.editor.store.Folder = folder
	s.hangup <- nil
	if c, err := s.editor.Reset(t.Context()); err != nil || !slices.Equal(c.Changed, []string{"outputs[raw3].rtp.mtu"}) || s.editor.Configuration().Kept {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := os.Stat(s.editor.store.File()); err == nil {
		t.Error("it is still kept")
	}
	s.streaming(t, "raw3")
	s.end(t)
}
