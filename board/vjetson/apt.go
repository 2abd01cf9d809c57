package vjetson

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// apt is the ordinary client with a state of its own.
type apt struct {
	state, arch string
	log         *slog.Logger
}

// newApt makes the client for an architecture, with its state in the cache and fresh lists.
func newApt(ctx context.Context, cache, arch string, log *slog.Logger) (apt, error) {
	a := apt{state: filepath.Join(cache, "apt-"+arch), arch: arch, log: log}
	if err := a.prepare(); err != nil {
		return a, err
	}
	return a, a.get(ctx, a.state, "update", "-o", "APT::Update::Error-Mode=any")
}

func (a apt) prepare() error {
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.state, d), 0o755); err != nil {
			return fmt.Errorf("vjetson: cache: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(a.state, "sources.list"), []byte(sources), 0o644); err != nil {
		return fmt.Errorf("vjetson: cache: %w", err)
	}
	return nil
}

func (a apt) options() []string {
	o := []string{
		"-q", "-oAPT::Architecture=" + a.arch, "-oAPT::Architectures=" + a.arch + "," + runtime.GOARCH,
		"-oDir::State::Lists=" + a.state + "/lists", "-oDir::State::status=/dev/null", "-oDir::Cache=" + a.state + "/cache",
		"-oDir::Etc::sourcelist=" + a.state + "/sources.list", "-oDir::Etc::sourceparts=/dev/null",
		"-oAcquire::Languages=none", "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-oAcquire::http::Timeout=20", "-oAcquire::Retries=2",
	}
	if os.Getuid() == 0 { // the sandbox's user may not write to this user's cache
		o = append(o, "-oAPT::Sandbox::User=root")
	}
	return o
}

// progress are the lines that tell how far apt-get is, and its errors.
var progress = regexp.MustCompile(`^(Get|Err|Fetched|[WE]:)`)

// get runs apt-get in dir, its lines go to the log.
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

// release finds what linux-image-ARCH stands for now.
func (a apt) release(ctx context.Context) (release, series string, err error) {
	name := "linux-image-" + a.arch
	out, err := exec.CommandContext(ctx, "apt-cache", append(a.options(), "show", "--no-all-versions", name)...).Output()
	if err != nil {
		return "", "", fmt.Errorf("vjetson: apt-cache show %s: %w", name, err)
	}
	return parseRelease(string(out))
}

var dependsOnImage = regexp.MustCompile(`(?m)^Depends: linux-image-((\d+\.\d+)\.[0-9A-Za-z.+-]*)\b`)

// parseRelease reads the release and its series from the record of a linux-image package that depends on the real one.
func parseRelease(record string) (release, series string, err error) {
	m := dependsOnImage.FindStringSubmatch(record)
	if m == nil {
		return "", "", fmt.Errorf("vjetson: no kernel release in apt's record %.200q", record)
	}
	return m[1], m[2], nil
}
