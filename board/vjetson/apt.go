// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suites are the suites of Debian that provide the full root and the kernels that are not in olderSuites.
var suites = []string{"bookworm", "bookworm-security"}

// olderSuites maps the series of kernels that suites lacks to the suites that have them.
var olderSuites = map[string]string{"5.10": "bullseye"}

// apt is the configuration of an apt client that needs no privileges and keeps its state in its own folder.
type apt struct {
	state, arch string // folder of the state; Debian's name of the architecture
	suites      []string
	prefer      string // suite preferred to the others, which apt may rank higher; "": none
	log         *slog.Logger
}

// newApt returns an apt for an architecture and a kernel series, with its state in the folder cache, and fetches its
// package lists.
func newApt(ctx context.Context, cache, arch, series string, log *slog.Logger) (apt, error) {
	a := apt{state: filepath.Join(cache, "apt-"+arch), arch: arch, suites: suites, log: log}
	if older, ok := olderSuites[series]; ok {
		a.state = filepath.Join(cache, "apt-"+older+"-"+arch)
		a.suites = slices.Concat(suites, []string{older, older + "-security"})
	}
	return a, a.update(ctx)
}

// update creates the client's state and fetches the lists. The error wraps ErrUnreachable if they cannot be fetched.
func (a apt) update(ctx context.Context) error {
	if err := a.prepare(); err != nil {
		return err
	}
	err := a.get(ctx, a.state, "update", "-o", "APT::Update::Error-Mode=any")
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

func (a apt) prepare() error {
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.state, d), 0o755); err != nil {
			return fmt.Errorf("vjetson: cache: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(a.state, "sources.list"), []byte(a.sources()), 0o644); err != nil {
		return fmt.Errorf("vjetson: cache: %w", err)
	}
	return nil
}

// sources returns the content of sources.list: Debian's archives, which apt verifies with the keyring.
func (a apt) sources() string {
	var list strings.Builder
	for _, s := range a.suites {
		archive := "debian"
		if strings.HasSuffix(s, "-security") {
			archive = "debian-security"
		}
		fmt.Fprintf(&list, "deb [signed-by=%s] http://deb.debian.org/%s %s main\n", keyring, archive, s)
	}
	return list.String()
}

func (a apt) options() []string {
	o := []string{
		"-q", "-oAPT::Architecture=" + a.arch, "-oAPT::Architectures=" + a.arch + "," + runtime.GOARCH,
		"-oDir::State::Lists=" + a.state + "/lists", "-oDir::State::status=/dev/null", "-oDir::Cache=" + a.state + "/cache",
		"-oDir::Etc::sourcelist=" + a.state + "/sources.list", "-oDir::Etc::sourceparts=/dev/null",
		"-oAcquire::Languages=none", "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-oAcquire::http::Timeout=20", "-oAcquire::Retries=2",
	}
	if a.prefer != "" {
		o = append(o, "-oAPT::Default-Release="+a.prefer)
	}
	if os.Getuid() == 0 { // the sandbox's user cannot write to this user's cache
		o = append(o, "-oAPT::Sandbox::User=root")
	}
	return o
}

// progress matches the lines that show apt-get's progress and errors.
var progress = regexp.MustCompile(`^(Get|Err|Fetched|[WE]:)`)

// get runs apt-get in dir and logs its output.
func (a apt) get(ctx context.Context, dir string, args ...string) error {
	c := exec.CommandContext(ctx, "apt-get", append(a.options(), args...)...)
	c.Dir, c.WaitDelay = dir, time.Second
	r, w := io.Pipe()
	c.Stdout, c.Stderr = w, w
	var tail []string
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(r); s.Scan(); {
			level := slog.LevelDebug
			if progress.MatchString(s.Text()) {
				level = slog.LevelInfo
			}
			a.log.Log(ctx, level, "apt-get", "line", s.Text())
			tail = append(tail[max(0, len(tail)-4):], s.Text())
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	err := c.Run()
	w.Close()
	<-read
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("vjetson: apt-get %s: %w", args[0], context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("vjetson: apt-get %s: %w (is deb.debian.org within reach?): %s", args[0], err, strings.Join(tail, "; "))
	}
	return nil
}

// A release is a kernel in apt's lists.
type release struct{ name, version string } // 6.1.0-56-arm64, 6.1.192-2

// releases returns the releases of a series that linux-image-ARCH or linux-image-SERIES-ARCH depends on in any of the
// suites, newest first.
func (a apt) releases(ctx context.Context, series string) ([]release, error) {
	out, err := a.show(ctx, "linux-image-"+a.arch, "linux-image-"+series+"-"+a.arch)
	if err != nil {
		return nil, err
	}
	return parseReleases(out, series)
}

// show returns apt's records of the packages, in all versions. It omits packages that do not exist.
func (a apt) show(ctx context.Context, names ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", slices.Concat(a.options(), []string{"show"}, names)...).Output()
	if err != nil {
		return "", fmt.Errorf("vjetson: apt-cache show %s: %w", strings.Join(names, " "), err)
	}
	return string(out), nil
}

var dependsOnImage = regexp.MustCompile(`(?m)^Depends: linux-image-((\d+\.\d+)\.[0-9A-Za-z.+-]*) \(= ([^)]+)\)`)

// parseReleases parses the records of linux-image packages that depend on the real ones. It returns the releases of a
// series, newest first, or an error if there are none.
func parseReleases(records, series string) ([]release, error) {
	var found []release
	for _, m := range dependsOnImage.FindAllStringSubmatch(records, -1) {
		if r := (release{m[1], m[3]}); m[2] == series && !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("vjetson: no kernel %s in apt's records %.200q", series, records)
	}
	slices.SortStableFunc(found, func(a, b release) int { return compareReleases(b.name, a.name) })
	return found, nil
}

var digits = regexp.MustCompile(`\d+`)

// compareReleases compares the lists of the numbers in two names, as slices.Compare does.
func compareReleases(a, b string) int {
	numbers := func(s string) (list []int) {
		for _, d := range digits.FindAllString(s, -1) {
			n, _ := strconv.Atoi(d)
			list = append(list, n)
		}
		return list
	}
	return slices.Compare(numbers(a), numbers(b))
}

// kbuildPackage matches a dependency of a kernel's headers: linux-kbuild-6.1, linux-kbuild-6.12.117+deb12.
var kbuildPackage = regexp.MustCompile(`\blinux-kbuild-[0-9A-Za-z.+-]+`)

// download fetches the packages of the newest available release into work, and returns the release's name. The archive
// may list releases that it no longer has.
func (a apt) download(ctx context.Context, work string, releases []release) (string, error) {
	var failed error
	for _, r := range releases {
		headers, err := a.show(ctx, "linux-headers-"+r.name)
		if err != nil {
			return "", err
		}
		kbuild := kbuildPackage.FindString(headers)
		if kbuild == "" {
			return "", fmt.Errorf("vjetson: no linux-kbuild in apt's record %.200q", headers)
		}
		err = a.get(ctx, work, "download", "linux-image-"+r.name, "linux-headers-"+r.name,
			"linux-headers-"+strings.TrimSuffix(r.name, a.arch)+"common", kbuild+":"+runtime.GOARCH+"="+r.version,
			"busybox-static", "libc6")
		if err == nil {
			return r.name, nil
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
		a.log.Warn("the archive lists a kernel that cannot be had", "release", r.name)
		if err := removeDebs(work); err != nil {
			return "", err
		}
	}
	return "", failed
}

// downloadWithDependencies fetches packages and their dependencies into the folder debs.
func (a apt) downloadWithDependencies(ctx context.Context, debs string, packages ...string) error {
	if err := os.MkdirAll(filepath.Join(debs, "partial"), 0o755); err != nil {
		return fmt.Errorf("vjetson: cache: %w", err)
	}
	install := []string{"install", "--download-only", "-y", "--no-install-recommends", "-oDir::Cache::archives=" + debs, "-oDebug::NoLocking=1"}
	return a.get(ctx, debs, append(install, packages...)...)
}

func removeDebs(dir string) error {
	debs, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	for _, deb := range debs {
		if err := os.Remove(deb); err != nil {
			return fmt.Errorf("vjetson: cache: %w", err)
		}
	}
	return nil
}
