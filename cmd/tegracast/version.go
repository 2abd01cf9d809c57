// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// commit is set by the linker (Makefile).
var commit string

// releaseVersion is set by the linker, too, where packages are made (systemd/deb).
var releaseVersion = "0.1.0"

func version(_ context.Context, e env, args []string) error {
	f := e.flags("version", "Usage: tegracast version\n\n"+
		"Prints the version, the commit it was built from, the Go release, the platform, and\nthe version of the kernel module's interface.\n")
	if err := parse(f, args); err != nil {
		return err
	}
	return printVersion(e.Out)
}

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "tegracast %s\ncommit %s\n%s %s/%s\nkernel ABI %d\n",
		releaseVersion, commitName(), runtime.Version(), runtime.GOOS, runtime.GOARCH, uapi.APIVersion)
	return err
}

// commitName is what the program was built from, as far as the linker or the Go tool knew.
func commitName() string {
	info, ok := debug.ReadBuildInfo()
	if commit != "" || !ok {
		return cmp.Or(commit, "unknown")
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}

// buildInfo says in metrics which program this is.
func buildInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tegracast_build_info", Help: "Always 1; the labels have the version, the commit and the Go release of this program.",
		ConstLabels: prometheus.Labels{"version": releaseVersion, "commit": commitName(), "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}
