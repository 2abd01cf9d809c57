// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const buildTimeout = 15 * time.Minute

// BuildModule builds the out-of-tree kernel module whose sources and Kbuild are in src for kernel k, with this host's
// compiler for k's architecture. It builds in a copy of src at dst, so that src stays clean. The .ko files are then in
// dst. variables are further make variables, NAME=value.
func BuildModule(ctx context.Context, k Kernel, src, dst string, variables ...string) error {
	a, err := archOf(k.Arch)
	if err != nil {
		return err
	}
	compiler, pkg := a.compiler()
	if err := needTools(map[string]string{"make": "make", compiler: pkg}); err != nil {
		return err
	}
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		return fmt.Errorf("vjetson: module's sources: %w", err)
	}
	if dst, err = filepath.Abs(dst); err != nil {
		return fmt.Errorf("vjetson: module: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, buildTimeout, fmt.Errorf("not within %v", buildTimeout))
	defer cancel()
	args := append(a.makeArguments(), "-C", filepath.Join(k.Dir, "usr/src/linux-headers-"+k.Release), "M="+dst, "KCFLAGS=-Werror",
		"CONFIG_DEBUG_INFO_BTF_MODULES=", "-j2", "modules") // BTF would need pahole
	c := exec.CommandContext(ctx, "make", append(args, variables...)...)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("vjetson: building the module in %s: %w:\n%s", src, err, bytes.TrimSpace(out))
	}
	return nil
}

// SlotAddress is the PCI address of the device in the first hot-plug slot, on both architectures.
const SlotAddress = "0000:01:00.0"

// Bind waits for a function in the first slot, binds it to a driver regardless of its ids, and waits at most about 2 s
// for the character device file.
func (m *Machine) Bind(ctx context.Context, driver, file string) error {
	return m.BindAt(ctx, SlotAddress, driver, file)
}

// BindAt is like Bind for the function at a PCI address.
func (m *Machine) BindAt(ctx context.Context, address, driver, file string) error {
	const pci = "/sys/bus/pci"
	at := pci + "/devices/" + address
	_, err := m.Shell(ctx, "until [ -e "+at+" ]; do sleep 0.02; done; echo "+driver+" > "+at+"/driver_override && echo "+address+" > "+pci+"/drivers_probe && "+
		"for i in $(seq 100); do [ -c "+file+" ] && exit 0; sleep 0.02; done; exit 1")
	return err
}

// LoadModule copies a module's file into the machine and loads it with its parameters.
func (m *Machine) LoadModule(ctx context.Context, file string, parameters ...string) error {
	to := "/tmp/" + filepath.Base(file)
	if err := m.CopyIn(ctx, file, to); err != nil {
		return err
	}
	r, err := m.Run(ctx, append([]string{"insmod", to}, parameters...)...)
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("vjetson: insmod %s: %s; %s", to, bytes.TrimSpace(r.Stderr), m.log.tail())
	}
	return err
}
