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

	"github.com/tegracast/tegracast/tegra/uapi"
)

// releaseVersion, commit and commitTime (in seconds since 1970) are from systemd/version, and set by the linker
// (Makefile, systemd/deb). They are empty if the go command built the program directly.
var releaseVersion, commit, commitTime string

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
		versionName(), commitName(), runtime.Version(), runtime.GOOS, runtime.GOARCH, uapi.APIVersion)
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
