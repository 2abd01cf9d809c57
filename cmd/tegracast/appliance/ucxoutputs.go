// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/totals"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

// ucxOutputs are the open outputs by UCX. The zero value has none.
type ucxOutputs struct{ list[ucxOutput] }

type ucxOutput struct {
	listen string
	server *frames.Server // shared by all outputs with the same listen
	sink   *frames.Sink
	totals *totals.Totals // totals of its receivers
}

// Open opens an output. Errors are those of frames.Listen and of frames.Server.Stream.
func (o *ucxOutputs) Open(listen string, c frames.StreamConfig, f pipeline.Format, log *slog.Logger) (*frames.Sink, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var server *frames.Server
	i := slices.IndexFunc(o.all, func(x named[ucxOutput]) bool { return x.is.listen == listen })
	if i >= 0 {
		server = o.all[i].is.server
	} else {
		var err error
		if server, err = frames.Listen(frames.ServerConfig{Listen: listen, Logger: log}); err != nil {
			return nil, err
		}
	}
	sink, err := server.Stream(c, f)
	if err != nil {
		if i < 0 {
			err = errors.Join(err, server.Close())
		}
		return nil, err
	}
	o.all = append(o.all, named[ucxOutput]{c.Name, ucxOutput{listen, server, sink, &totals.Totals{}}})
	return sink, nil
}

// Close closes an output, which must not be running. The server at an address is closed together with its last output.
func (o *ucxOutputs) Close(name string) error {
	o.mu.Lock()
	gone := o.takeOutput(name)
	last := !slices.ContainsFunc(o.all, func(x named[ucxOutput]) bool { return x.is.server == gone.server })
	o.mu.Unlock()
	err := gone.sink.Close()
	if last {
		err = errors.Join(err, gone.server.Close())
	}
	return err
}

// consumers returns the number of consumers of each output, and the frames that they lost.
func (o *ucxOutputs) consumers() (all []consumerCount) {
	for _, x := range o.open() {
		st := x.is.sink.Stats()
		all = append(all, consumerCount{x.name, len(st.Receivers), "receivers", st.Lost})
	}
	return all
}

// Print prints what the receivers of each output have received.
func (o *ucxOutputs) Print(w io.Writer) {
	for _, x := range o.open() {
		st := x.is.sink.Stats()
		fmt.Fprintf(w, "%s by UCX: %d receivers now, %d before; %d frames, %d bytes, lost %d\n",
			x.name, len(st.Receivers), st.Gone, st.Frames, st.Bytes, st.Lost)
		for _, r := range st.Receivers {
			fmt.Fprintf(w, "%s to %s\n", x.name, printable.Text(r.String()))
		}
	}
}
