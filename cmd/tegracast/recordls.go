// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/record"
)

const lsUsage = `Usage: tegracast record ls [--json] [DIRECTORY | FILE]...

Lists recordings by the time of their first frame: the files, and those in the
directories, without exported MP4. Without any, it lists those of the service,
in ` + stateFolder + `.

A recording is finished, being written by this machine, or not finished because
of a power cut or a crash: record repair ends it. Status 1 when a file is
damaged or cannot be read, which its line says.
`

// recordLs lists recordings. It returns terminal.ErrChecked if one is damaged or cannot be read.
func recordLs(ctx context.Context, e env, args []string) error {
	f := e.flags("record ls", lsUsage)
	asJSON := f.Bool("json", false, "print the list as JSON, an object for each file (docs/json.md)")
	given, err := parseFiles(f, args, 0, math.MaxInt)
	if err != nil {
		return err
	}
	if len(given) == 0 {
		given = []string{stateFolder}
	}
	paths, err := recordingsOf(given)
	if err != nil {
		return err
	}
	var list []record.Entry
	good := true
	for i, path := range paths {
		x, err := record.List(ctx, path)
		if err != nil {
			return fmt.Errorf("interrupted in %s, after %d of %d files", path, i, len(paths))
		}
		if x.Foreign && !slices.Contains(given, path) {
			continue
		}
		list, good = append(list, x), good && x.Error == ""
	}
	slices.SortStableFunc(list, func(a, b record.Entry) int {
		if a.First.IsZero() != b.First.IsZero() { // without frames: last
			return b.First.Compare(a.First)
		}
		return a.First.Compare(b.First)
	})
	if *asJSON {
		for _, x := range list {
			if err := terminal.WriteJSON(e.Out, x); err != nil {
				return err
			}
		}
	} else if err := printRecordings(e.Out, list); err != nil {
		return err
	}
	if !good {
		return terminal.ErrChecked
	}
	return nil
}

// recordingsOf returns the given files, and the recordings in the given directories.
func recordingsOf(given []string) ([]string, error) {
	var list []string
	for _, path := range given {
		if info, err := os.Stat(path); err == nil && !info.IsDir() || err != nil && path != stateFolder {
			list = append(list, path) // if it cannot be read, its line says so
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("%w: name a directory with recordings that you may read", err)
		}
		for _, x := range entries {
			if ext := filepath.Ext(x.Name()); !x.IsDir() && (ext == record.Extension || ext == record.VideoExtension) {
				list = append(list, filepath.Join(path, x.Name()))
			}
		}
	}
	return list, nil
}

// printRecordings prints a table. The files' texts are made printable, so that they cannot move the cursor.
func printRecordings(w io.Writer, list []record.Entry) error {
	plain := printable.Text
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "OUTPUT\tFIRST FRAME\tLENGTH\tFRAMES\tSIZE\tPICTURES\tFILE\tSTATE")
	for _, x := range list {
		first, length, pictures := "-", "-", "-"
		if !x.First.IsZero() {
			first, length = x.First.UTC().Format("2006-01-02T15:04:05.000Z"), x.Last.Sub(x.First).Round(time.Millisecond).String()
			pictures = fmt.Sprintf("%dx%d %s", x.Width, x.Height, x.Encoding)
		}
		state := string(x.State)
		if x.Error != "" {
			state = "error: " + strings.TrimPrefix(x.Error, x.Path+": ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.1f MB\t%s\t%s\t%s\n", plain(x.Output), first, length, x.Frames, float64(x.Bytes)/1e6,
			plain(pictures), plain(x.Path), plain(state))
	}
	return t.Flush()
}
