// SPDX-License-Identifier: Apache-2.0

// Package fanout has the outputs that others take: servers by UCX, with those that share an address, and other processes of the
// machine. It has their books for people and for a metrics server.
package fanout

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

// Outputs are those by UCX that are open. The zero Outputs has none.
type Outputs struct{ list[stream] }

type stream struct {
	listen string
	server *frames.Server // that of all outputs with the same listen
	sink   *frames.Sink
}

// Open opens an output. Errors are those of frames.Listen and of frames.Server.Stream.
func (o *Outputs) Open(listen string, c frames.StreamConfig, f pipeline.Format, log *slog.Logger) (*frames.Sink, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var server *frames.Server
	i := slices.IndexFunc(o.all, func(x named[stream]) bool { return x.is.listen == listen })
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
	o.all = append(o.all, named[stream]{c.Name, stream{listen, server, sink}})
	return sink, nil
}

// Close closes an output, which does not run any more. The last one of an address ends its server.
func (o *Outputs) Close(name string) error {
	o.mu.Lock()
	gone := o.take(name)
	last := !slices.ContainsFunc(o.all, func(x named[stream]) bool { return x.is.server == gone.server })
	o.mu.Unlock()
	err := gone.sink.Close()
	if last {
		err = errors.Join(err, gone.server.Close())
	}
	return err
}

// Takers are those who take the outputs.
func (o *Outputs) Takers() (all []Takers) {
	for _, x := range o.open() {
		st := x.is.sink.Stats()
		all = append(all, Takers{x.name, len(st.Receivers), "receivers", st.Lost})
	}
	return all
}

// Print prints what receivers have got of each output.
func (o *Outputs) Print(w io.Writer) {
	for _, x := range o.open() {
		st := x.is.sink.Stats()
		fmt.Fprintf(w, "%s by UCX: %d receivers now, %d before; %d frames, %d bytes, lost %d\n",
			x.name, len(st.Receivers), st.Gone, st.Frames, st.Bytes, st.Lost)
		for _, r := range st.Receivers {
			fmt.Fprintf(w, "%s to %v\n", x.name, r)
		}
	}
}
