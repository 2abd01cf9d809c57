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

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// reportStream is the duration of each stream in a report.
const reportStream = time.Minute

// A reporter makes a machine's report.
type reporter struct {
	e       terminal.Env
	p       patient // reads files through facts
	facts   *recorder
	private redactor
	stream  time.Duration // duration of each stream
	config  string        // path of the service's configuration, which may name a camera
	journal func(ctx context.Context) ([]byte, error)
	version func(io.Writer) error // prints the program's version
	found   []finding             // nil: not examined yet
	ready   bool
}

// A chapter is the text of a part.
type chapter struct {
	name, what, text string
	err              error
}

// Report writes a report on this machine to a file, which must not exist yet. version prints the program's version.
// After writing the report, it returns terminal.ErrChecked if something is missing for a real FPGA.
func Report(ctx context.Context, e terminal.Env, file string, version func(io.Writer) error) error {
	p := thisMachine(ctx)
	r := &reporter{
		e: e, version: version, facts: newRecorder(p.root), private: newRedactor(p.root), stream: reportStream,
		config: serviceConfig, journal: unitJournal,
	}
	p.root = r.facts
	r.p = p
	if err := r.write(ctx, file); err != nil {
		return err
	}
	if !r.ready {
		return terminal.ErrChecked
	}
	return nil
}

// unitJournal returns the last 2000 lines of the service's log from the journal.
func unitJournal(ctx context.Context) ([]byte, error) {
	b, err := exec.CommandContext(ctx, "journalctl", "--no-pager", "--quiet", "--no-hostname", "--output=short-monotonic", "--lines=2000", "--unit=tegracast").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("journalctl: %w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return b, err
}

// write makes the report in a file that must not exist yet. It writes the file completely or not at all.
func (r *reporter) write(ctx context.Context, file string) (err error) {
	if _, err := os.Lstat(file); err == nil {
		return terminal.UsageError{Err: fmt.Errorf("--report %s: the file exists: give another name", file)}
	}
	out, err := os.CreateTemp(filepath.Dir(file), ".tegracast-report-*")
	if err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--report %s: %w: name a folder that can be written to", file, err)}
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

// chapters runs all parts. A part that fails contains its error. The returned error is that of ctx.
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

Words in angle brackets stand for what the program has recognised as private: the
names of the machine and of its users, its serial numbers, UUIDs, addresses of
networks (MAC, IP; not those of a machine to itself), hosts, users and passwords
in URLs, tokens behind "Bearer", mail addresses and public keys. It does not
recognise everything: names of other machines outside of URLs, of files and of
outputs, and secrets in other forms stay. No pixels are in it. It is text: look
through it before you pass it on.

`

// pack writes the archive, with README.txt first.
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
