package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"tegracast/tegra/uapi"
)

// commit is set by the linker (Makefile).
var commit string

const releaseVersion = "0.1.0"

func version(_ context.Context, e env, args []string) error {
	f := e.flags("version", "Usage: tegracast version\n\nPrints the version, the commit it was built from, the Go release, the platform, and the\nversion of the kernel module's interface.\n")
	if err := parse(f, args); err != nil {
		return err
	}
	c := commit
	if info, ok := debug.ReadBuildInfo(); ok && c == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				c = s.Value
			}
		}
	}
	if c == "" {
		c = "unknown"
	}
	fmt.Fprintf(e.out, "tegracast %s\ncommit %s\n%s %s/%s\nkernel ABI %d\n",
		releaseVersion, c, runtime.Version(), runtime.GOOS, runtime.GOARCH, uapi.APIVersion)
	return nil
}
