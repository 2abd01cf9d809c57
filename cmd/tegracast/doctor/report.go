// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/tegra"
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

// A part is a file of the report.
type part struct {
	name, what string
	write      func(ctx context.Context, w io.Writer) error
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

// parts are in the order of the report. The facts come last: they are what the others have read.
func (r *reporter) parts() []part {
	list := []part{
		{"doctor.txt", "what doctor says", r.doctor(false)},
		{"doctor.json", "the same for machines", r.doctor(true)},
		{"versions.txt", "the program, the kernel, Jetson Linux", r.versions},
		{"module.txt", "what the kernel module says of each device (GET_INFO, GET_REGION, debugfs)", r.moduleText},
		{"pins.txt", "memory pinned for the FPGA, by the way that the module uses", r.pins},
		{"loopback-model.json", "the validation run on the FPGA model", r.loopback(loopback.ModelName, "host")},
		{"loopback-host.json", "the validation run on the FPGA, in ordinary memory", r.loopback(tegra.DefaultDevice, "host")},
		{"loopback-cuda.json", "the validation run on the FPGA, in CUDA's memory", r.loopback(tegra.DefaultDevice, "cuda")},
		{"stream-camera.txt", fmt.Sprintf("%v s of the service's configuration, sent to this machine: numbers only", r.stream.Seconds()), r.streamCamera},
		{"stream-model.txt", fmt.Sprintf("%v s of the FPGA model's camera, sent to this machine: numbers only", r.stream.Seconds()), r.streamModel},
		{"kernel.txt", "the kernel's log: lines about PCI Express, IOMMU, GPU and tegra_p2p", r.kernelText},
		{"journal.txt", "what the service has logged", r.journalText},
	}
	return append(list, part{"facts", "the files that doctor has read", nil})
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

func (r *reporter) doctor(asJSON bool) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		list := r.p.examine()
		r.ready = isReady(list)
		return tellFindings(command.Env{Out: w}, list, r.ready, asJSON)
	}
}

// moreFacts are files that doctor has no question to, and whoever reads a report may have.
var moreFacts = []string{"proc/cmdline", "proc/devices", "proc/interrupts", "proc/modules", "proc/version", "etc/os-release", "sys/module/pcie_aspm/parameters/policy"}

func (r *reporter) versions(_ context.Context, w io.Writer) error {
	for _, name := range moreFacts {
		_, _ = fs.ReadFile(r.facts, name) // what cannot be read is not among the facts
	}
	fmt.Fprintf(w, "kernel %s\nJetson Linux: %s\n", r.p.release(), r.p.text("etc/nv_tegra_release"))
	return r.version(w)
}

// kernelLines are about what a report is about.
var kernelLines = regexp.MustCompile(`(?i)tegra_p2p|nv-?p2p|nvidia|nvgpu|pci|iommu|smmu|xdma|dkms|module verification|signature`)

func (r *reporter) kernelText(_ context.Context, w io.Writer) error {
	log := r.p.kernelLog()
	if log == "" {
		return errors.New("the kernel's log cannot be read: run doctor as root")
	}
	for line := range strings.Lines(log) {
		if kernelLines.MatchString(line) {
			fmt.Fprint(w, line)
		}
	}
	return nil
}

func (r *reporter) journalText(ctx context.Context, w io.Writer) error {
	b, err := r.journal(ctx)
	if err == nil && len(b) == 0 {
		err = errors.New("the journal has no entries of tegracast that this user may read: run doctor as root")
	}
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
