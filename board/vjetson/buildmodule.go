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

const buildTimeout = 5 * time.Minute

// BuildModule builds the out-of-tree kernel module whose sources and Kbuild lie in src for kernel k with the cross
// compiler, in a copy of src at dst: the tree stays clean. The .ko files are in dst then.
func BuildModule(ctx context.Context, k Kernel, src, dst string) error {
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
	c := exec.CommandContext(ctx, "make", append(a.makeArguments(), "-C",
		filepath.Join(k.Dir, "usr/src/linux-headers-"+k.Release), "M="+dst, "KCFLAGS=-Werror", "-j2", "modules")...)
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
