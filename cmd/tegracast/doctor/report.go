// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
)

// reportStream is how long each stream of a report takes.
const reportStream = time.Minute

// A reporter makes the report of a machine.
type reporter struct {
	e       command.Env
	p       patient // reads through facts
	facts   *recorder
	private redactor
	stream  time.Duration // of each trial of streaming
	config  string        // the service's configuration, which may name a camera
	journal func(ctx context.Context) ([]byte, error)
	version func(io.Writer) error // prints which program this is
	ready   bool
}

// A chapter is a part that has been written.
type chapter struct {
	name, what, text string
	err              error
}

// Report writes the report of this machine to a file, which must not exist. version prints which program this is. It returns
// command.ErrChecked when something is missing for a real FPGA.
func Report(ctx context.Context, e command.Env, file string, version func(io.Writer) error) error {
	p := thisMachine()
	r := &reporter{
		e: e, version: version, facts: newRecorder(p.root), private: newRedactor(p.root), stream: reportStream,
		config: "/etc/tegracast/tegracast.yaml", journal: unitJournal,
	}
	p.root = r.facts
	r.p = p
	if err := r.write(ctx, file); err != nil {
		return err
	}
	if !r.ready {
		return command.ErrChecked
	}
	return nil
}

// unitJournal is what the service has written to the journal.
func unitJournal(ctx context.Context) ([]byte, error) {
	b, err := exec.CommandContext(ctx, "journalctl", "--no-pager", "--quiet", "--no-hostname", "--output=short-monotonic", "--lines=2000", "--unit=tegracast").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("journalctl: %w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return b, err
}

// write makes the report. The file comes into being complete, or not at all.
func (r *reporter) write(ctx context.Context, file string) (err error) {
	if _, err := os.Lstat(file); err == nil {
		return command.UsageError{Err: fmt.Errorf("--report %s: the file exists: give another name", file)}
	}
	out, err := os.CreateTemp(filepath.Dir(file), ".tegracast-report-*")
	if err != nil {
		return command.UsageError{Err: fmt.Errorf("--report %s: %w: name a folder that can be written to", file, err)}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(out.Close()), os.Remove(out.Name()))
		}
	}()
	chapters, err := r.chapters(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(r.pack(out, chapters), out.Chmod(0o644), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), file); err != nil {
		return err
	}
	fmt.Fprintf(r.e.Out, "%s is written; its README.txt lists the contents\n", file)
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// chapters writes all parts. One that fails says why, and the next one follows; an error is that of ctx.
func (r *reporter) chapters(ctx context.Context) ([]chapter, error) {
	var list []chapter
	for _, p := range r.parts() {
		if p.write == nil {
			for _, name := range r.facts.names() {
				list = append(list, chapter{name: "facts/" + name, text: r.facts.text(name)})
			}
			continue
		}
		fmt.Fprintf(r.e.Err, "%s: %s\n", p.name, p.what)
		var text bytes.Buffer
		err := p.write(ctx, &text)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted: nothing was written: %w", ctx.Err())
		}
		if err != nil {
			fmt.Fprintf(&text, "failed: %v\n", err)
		}
		list = append(list, chapter{p.name, p.what, text.String(), err})
	}
	return list, nil
}

const readmeHead = `A report of tegracast doctor --report.

Nothing private is in it: names of the machine and of its users, serial numbers,
UUIDs, addresses of networks (MAC, IP; not those of a machine to itself), mail
addresses and keys were replaced by words in angle brackets. No pixels are in it.
It is text; look through it before you pass it on.

`

// pack writes the archive: README.txt first.
func (r *reporter) pack(w io.Writer, list []chapter) error {
	readme := readmeHead
	for _, c := range list {
		if c.what != "" {
			readme += fmt.Sprintf("%-20s %s\n", c.name, c.what)
		}
		if c.err != nil {
			readme += fmt.Sprintf("%20s failed: %v\n", "", c.err)
		}
	}
	readme += fmt.Sprintf("%-20s %s\n", "facts/", "the files that doctor has read, as far as it may read them")
	archive := tar.NewWriter(w)
	for _, c := range append([]chapter{{name: "README.txt", text: readme}}, list...) {
		text := r.private.clean(c.text)
		h := &tar.Header{Name: "tegracast-report/" + r.private.cleanWords(c.name), Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.WriteString(archive, text); err != nil {
			return err
		}
	}
	return archive.Close()
}
