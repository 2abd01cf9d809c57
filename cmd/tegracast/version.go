// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// releaseVersion, commit and commitTime (in seconds since 1970) are from systemd/version, and set by the linker
// (Makefile, systemd/deb). They are empty if the go command built the program directly.
var releaseVersion, commit, commitTime string

const versionUsage = `Usage: tegracast version [--json]

Prints the version, the commit it was built from, the Go release, the platform,
and the version of the kernel module's interface.
`

// Version is the JSON that version --json prints.
type Version struct {
	Program   string `json:"program"`    // version of tegracast
	Commit    string `json:"commit"`     // that it was built from
	Go        string `json:"go"`         // release of Go, such as go1.26.8
	OS        string `json:"os"`         // as Go names it, such as linux
	Arch      string `json:"arch"`       // as Go names it, such as arm64
	KernelABI int    `json:"kernel_abi"` // version of the kernel module's interface
}

func version(_ context.Context, e env, args []string) error {
	f := e.flags("version", versionUsage)
	asJSON := f.Bool("json", false, "print the same as JSON (docs/json.md)")
	if err := parse(f, args); err != nil {
		return err
	}
	if *asJSON {
		return terminal.WriteJSON(e.Out, thisVersion())
	}
	return printVersion(e.Out)
}

func thisVersion() Version {
	return Version{versionName(), commitName(), runtime.Version(), runtime.GOOS, runtime.GOARCH, uapi.APIVersion}
}

func printVersion(w io.Writer) error {
	v := thisVersion()
	_, err := fmt.Fprintf(w, "tegracast %s\ncommit %s\n%s %s/%s\nkernel ABI %d\n", v.Program, v.Commit, v.Go, v.OS, v.Arch, v.KernelABI)
	return err
}

// versionName returns the version that the linker set or the go command recorded, or "unknown".
func versionName() string {
	info, ok := debug.ReadBuildInfo()
	if releaseVersion != "" || !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return cmp.Or(releaseVersion, "unknown")
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}

// commitDay returns the day of the commit in UTC, such as 2026-11-23, or "" if it is unknown.
func commitDay() string {
	seconds, err := strconv.ParseInt(commitTime, 10, 64)
	if err != nil {
		return ""
	}
	return time.Unix(seconds, 0).UTC().Format(time.DateOnly)
}

// commitName returns the commit that the linker set or the go command recorded, or "unknown".
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

// buildInfo returns a metric that identifies the program.
func buildInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tegracast_build_info", Help: "Always 1; the labels have the version, the commit and the Go release of this program.",
		ConstLabels: prometheus.Labels{"version": versionName(), "commit": commitName(), "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}
