// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/export"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

// saver returns a taker that writes frames to a new file, or discards them if path is empty. It returns an error if the
// file exists, its folder is not writable, or its name does not end in .mcap or .y4m.
func saver(path string, e env) (taker, error) {
	if path == "" {
		return discard, nil
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("--save %s: %w: remove it, or name another one", path, export.ErrExists)
	}
	if err := unix.Access(filepath.Dir(path), unix.W_OK); err != nil {
		return nil, fmt.Errorf("--save %s: %w: name a file in a folder that can be written to", path, err)
	}
	switch filepath.Ext(path) {
	case record.Extension:
		return func(ctx context.Context, r *frames.Receiver) error { return saveRecording(ctx, e, r, path) }, nil
	case ".y4m":
		return func(ctx context.Context, r *frames.Receiver) error { return savePictures(ctx, r, path) }, nil
	}
	return nil, fmt.Errorf("--save %s: the name must end in .mcap or .y4m", path)
}

// savePictures writes frames as Y4M until ctx ends or an error occurs.
func savePictures(ctx context.Context, r *frames.Receiver, path string) error {
	w, err := export.NewY4M(r.Format(), path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	err = r.Run(ctx, func(f *pipeline.Frame) {
		if failed == nil {
			if failed = w.Add(f.Bytes); failed != nil {
				cancel()
			}
		}
		f.Release()
	})
	return errors.Join(err, failed, w.End())
}

// saveRecording writes a recording. It is written in a temporary folder next to path, and renamed to path at the end,
// also after an error.
func saveRecording(ctx context.Context, e env, r *frames.Receiver, path string) error {
	folder, err := os.MkdirTemp(filepath.Dir(path), ".tegracast-receive-")
	if err != nil {
		return err
	}
	err = recordFrames(ctx, e, r, folder)
	if files, _ := record.Files(folder, recordName); len(files) > 0 {
		if renamed := os.Rename(files[0], path); renamed != nil {
			return errors.Join(err, fmt.Errorf("the recording stays in %s: %w", folder, renamed))
		}
	}
	return errors.Join(err, os.RemoveAll(folder))
}

const recordName = "frames"

// recordFrames records into a folder until ctx ends or an error occurs.
func recordFrames(ctx context.Context, e env, r *frames.Receiver, folder string) error {
	driver, err := cufile.Open(cufile.Config{Logger: e.Log})
	if err != nil {
		return err
	}
	sink, err := record.New(record.Config{
		Directory: folder, Name: recordName, Source: r.Stats().Stream, Library: "tegracast", Driver: driver, Logger: e.Log,
	}, r.Format())
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: e.Log})
	err = g.AddSource("sender", r)
	var o *pipeline.Output
	if err == nil {
		o, err = g.Attach(pipeline.OutputConfig{Name: recordName, Sink: sink, Policy: pipeline.Block})
	}
	if err != nil {
		return errors.Join(err, sink.Close(), driver.Close())
	}
	return errors.Join(g.Run(ctx), o.Err(), g.Close(), driver.Close())
}
