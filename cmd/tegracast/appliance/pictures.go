// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/tegracast/tegracast/cmd/tegracast/preview"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/pipeline"
)

const (
	viewRate    = 15 // maximum number of pictures per second
	viewQuality = 80 // quality of the JPEG files, from 1 to 100
)

// pictures shows the frames of outputs to clients.
type pictures struct {
	changing sync.RWMutex // locked for writing while parts are closed or a reload opens them
	flows    *flows
	memory   *memory
	views    preview.Views
	log      *slog.Logger
}

// openView opens a view of an output. While there are viewers, the stage that the output reads from also makes small
// pictures of frames.
func (p *pictures) openView(name string) (*preview.Watcher, error) {
	p.changing.RLock()
	defer p.changing.RUnlock()
	return p.views.AddViewer(name, func() (preview.Source, error) { return p.attachView(name) })
}

// attachView attaches another output, for viewing, in addition to the open output called name. It returns errNoOutput
// if none of that name is open.
func (p *pictures) attachView(name string) (preview.Source, error) {
	f, o := p.flows.output(name)
	switch {
	case o == nil:
		return preview.Source{}, errNoOutput
	case o.view.Pixel == 0:
		return preview.Source{}, errors.New("only outputs behind an isp can be looked at")
	}
	encoder, err := streams.NewJPEG(p.memory.allocator, viewQuality, p.log.With("output", name))
	if err != nil {
		return preview.Source{}, err
	}
	sink, want := preview.New(o.view, encoder), o.view
	if o.viewFrom != 0 {
		want = pipeline.Format{}
	}
	attached, err := f.graph.Attach(pipeline.OutputConfig{
		Name: name + " view", Sink: sink, From: o.from, Format: want, Rate: pipeline.Rate{Num: viewRate, Den: 1}, Depth: 1,
	})
	if err != nil {
		return preview.Source{}, errors.Join(fmt.Errorf("%w", oneLine{err}), encoder.Close())
	}
	return preview.Source{Sink: sink, Of: f, Stop: func() {
		ctx, cancel := context.WithTimeout(context.Background(), detachTime)
		defer cancel()
		attached.Detach(ctx)
		if err := encoder.Close(); err != nil {
			p.log.Warn("a view was closed with errors", "output", name, "error", err)
		}
	}}, nil
}
