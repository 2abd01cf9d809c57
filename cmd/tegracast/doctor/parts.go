// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/tegra"
)

// A part is a file of the report, or its folder of facts, for which write is nil.
type part struct {
	name, what string
	write      func(ctx context.Context, w io.Writer) error
}

// parts returns the parts in the order of the report. The facts come last, because they contain what the other parts have
// read.
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

func (r *reporter) doctor(asJSON bool) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		if r.found == nil {
			r.found = r.p.examine()
			r.ready = isReady(r.found)
		}
		return tellFindings(terminal.Env{Out: w}, r.found, r.ready, asJSON)
	}
}

// moreFacts are files that doctor does not check but that may help readers of the report.
var moreFacts = []string{"proc/cmdline", "proc/devices", "proc/interrupts", "proc/modules", "proc/version", "etc/os-release", "sys/module/pcie_aspm/parameters/policy"}

func (r *reporter) versions(_ context.Context, w io.Writer) error {
	for _, name := range moreFacts {
		_, _ = fs.ReadFile(r.facts, name) // an unreadable file is not among the facts
	}
	fmt.Fprintf(w, "kernel %s\nJetson Linux: %s\n", r.p.release(), r.p.text("etc/nv_tegra_release"))
	return r.version(w)
}

// kernelLines matches the relevant lines of the kernel's log.
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
