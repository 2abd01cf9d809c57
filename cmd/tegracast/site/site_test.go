// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/web"
)

// editor is a configurator of an empty text.
type editor struct{}

func (editor) Configuration() web.Configuration { return web.Configuration{} }

func (editor) Check([]byte) web.Check { return web.Check{Good: true} }

func (editor) Configure(context.Context, []byte) (web.Check, error) {
	return web.Check{Good: true}, nil
}

func (editor) Reset(context.Context) (web.Check, error) { return web.Check{Good: true}, nil }

// TestLock: the configuration is on the page, unless it is locked. Where everybody could change it for root, the log warns.
func TestLock(t *testing.T) {
	for lock, want := range map[bool]int{false: http.StatusOK, true: http.StatusNotFound} {
		var log bytes.Buffer
		w := &Server{Out: io.Discard, Config: web.Config{
			Stats: func() pipeline.Stats { return pipeline.Stats{} }, Health: func() (bool, error) { return true, nil },
			Outputs: func() []web.Output { return nil }, Configurator: editor{}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}}
		if err := w.Open(t.Context(), readers.Web{Listen: "127.0.0.1:0", Lock: lock}); err != nil {
			t.Fatal(err)
		}
		answer, err := http.Get(*w.Page.Load() + "/api/v1/config")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		w.Close()
		if warned := strings.Contains(log.String(), "web.lock_configuration"); answer.StatusCode != want || warned != (!lock && os.Geteuid() == 0) {
			t.Errorf("locked: %v: status %d, want %d, and the log has %s", lock, answer.StatusCode, want, &log)
		}
	}
}
