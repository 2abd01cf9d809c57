package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// commit is set by the linker (Makefile).
var commit string

// releaseVersion is set by the linker, too, where packages are made (systemd/deb).
var releaseVersion = "0.1.0"

func version(_ context.Context, e env, args []string) error {
	f := e.flags("version", "Usage: tegracast version\n\nPrints the version, the commit it was built from, the Go release, the platform, and the\nversion of the kernel module's interface.\n")
	if err := parse(f, args); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "tegracast %s\ncommit %s\n%s %s/%s\nkernel ABI %d\n",
		releaseVersion, commitName(), runtime.Version(), runtime.GOOS, runtime.GOARCH, uapi.APIVersion)
	return nil
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
