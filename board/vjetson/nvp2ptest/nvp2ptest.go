// SPDX-License-Identifier: Apache-2.0

package nvp2ptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// Variable is the environment variable that names the folder with NVIDIA's nvidia-p2p.c and nv-p2p.h, which are not
// part of this tree.
const Variable = "TEGRACAST_NVP2P"

// Absent is the reason, after NEEDS, why a test cannot use NVIDIA's provider.
const Absent = "NVIDIA's provider of nv-p2p, which is not here: " + Variable + " names the folder of its nvidia-p2p.c and nv-p2p.h"

// Provider is a kernel module with the symbols of nv-p2p, for one kernel.
type Provider struct {
	Module string // path of its file
	NVP2P  string // folder for NVP2P= in a build of tegra_p2p that uses this provider: Debian's kernels need the symbols' versions
	NVIDIA bool   // it is NVIDIA's own
}

// nvidiaKbuild is the Kbuild for NVIDIA's source, which includes <linux/nv-p2p.h>, in the layout of Jetson Linux's
// modules.
const nvidiaKbuild = "obj-m := nvidia-p2p.o\nccflags-y += -I$(src)/include\n"

// Here reports whether NVIDIA's provider is available.
func Here() bool { return os.Getenv(Variable) != "" }

// NVIDIA builds NVIDIA's provider from its unmodified source (see Variable), in the new folder dir.
func NVIDIA(ctx context.Context, k vjetson.Kernel, dir string) (Provider, error) {
	src, err := os.MkdirTemp("", "nvidia-p2p-")
	if err != nil {
		return Provider{}, err
	}
	defer func() { _ = os.RemoveAll(src) }()
	include := filepath.Join(src, "include/linux")
	if err := os.MkdirAll(include, 0o755); err != nil {
		return Provider{}, err
	}
	for from, to := range map[string]string{"nvidia-p2p.c": src, "nv-p2p.h": include} {
		text, err := os.ReadFile(filepath.Join(os.Getenv(Variable), from))
		if err != nil {
			return Provider{}, fmt.Errorf("%s: %w", Variable, err)
		}
		if err := os.WriteFile(filepath.Join(to, from), text, 0o644); err != nil {
			return Provider{}, err
		}
	}
	if err := os.WriteFile(filepath.Join(src, "Kbuild"), []byte(nvidiaKbuild), 0o644); err != nil {
		return Provider{}, err
	}
	if err := vjetson.BuildModule(ctx, k, src, dir); err != nil {
		return Provider{}, err
	}
	return Provider{filepath.Join(dir, "nvidia-p2p.ko"), filepath.Join(dir, "include/linux"), true}, nil
}

// StandIn builds the stand-in in dir. tegra is the path of the tree's folder of that name.
func StandIn(ctx context.Context, k vjetson.Kernel, tegra, dir string) (Provider, error) {
	names := filepath.Join(dir, "kmod/nvp2p")
	if err := os.MkdirAll(names, 0o755); err != nil {
		return Provider{}, err
	}
	for _, name := range []string{"nvp2p_interface.h", "nvp2p/nv-p2p.h"} {
		text, err := os.ReadFile(filepath.Join(tegra, "kmod", name))
		if err != nil {
			return Provider{}, err
		}
		if err := os.WriteFile(filepath.Join(dir, "kmod", name), text, 0o644); err != nil {
			return Provider{}, err
		}
	}
	module := filepath.Join(dir, "nvp2p")
	if err := vjetson.BuildModule(ctx, k, filepath.Join(tegra, "nvp2p"), module); err != nil {
		return Provider{}, err
	}
	if err := os.Rename(filepath.Join(module, "Module.symvers"), filepath.Join(names, "Module.symvers")); err != nil {
		return Provider{}, err
	}
	return Provider{Module: filepath.Join(module, "nvp2p.ko"), NVP2P: names}, nil
}

// Best builds NVIDIA's provider if it is available, and otherwise the stand-in, which it logs. tegra and dir are as for
// StandIn and NVIDIA.
func Best(t testing.TB, k vjetson.Kernel, tegra, dir string) Provider {
	t.Helper()
	var p Provider
	var err error
	if Here() {
		p, err = NVIDIA(t.Context(), k, dir)
	} else {
		t.Log("NEEDS " + Absent + "; the stand-in runs in its place")
		p, err = StandIn(t.Context(), k, tegra, dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}
