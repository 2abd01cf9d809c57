// SPDX-License-Identifier: Apache-2.0

// Command deb makes tegracast's Debian packages: tegracast for arm64 and amd64, and tegracast-dkms. The same sources give
// the same bytes. It is a module of its own, so that the program's does not depend on what packs it.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
)

func main() {
	root := flag.String("root", ".", "the repository's `folder`")
	out := flag.String("out", "bin", "`folder` for the packages")
	version := flag.String("version", "", "of the packages; default: the program's own")
	archs := flag.String("arch", "arm64,amd64", "architectures, with commas")
	flag.Parse()
	if err := run(*root, *out, *version, strings.Split(*archs, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
}

func run(root, out, version string, archs []string) (err error) {
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	build, err := os.MkdirTemp("", "tegracast-deb-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(build)) }()
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	p := packer{build: build, out: out, version: version}
	return p.all(archs)
}

// packer makes packages in the repository's root, its working folder.
type packer struct {
	build, out, version, module string
	made                        time.Time // of every file in the packages: the commit's
}

func (p *packer) all(archs []string) error {
	stamp, err := output("git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(stamp), 10, 64)
	if err != nil {
		return err
	}
	p.made = time.Unix(seconds, 0).UTC()
	if err := p.texts(); err != nil {
		return err
	}
	for _, arch := range archs {
		if err := p.program(filepath.Join(p.build, "tegracast"), arch); err != nil {
			return err
		}
		if err := p.pack("tegracast", arch); err != nil {
			return err
		}
	}
	return p.pack("tegracast-dkms", "all")
}

// program builds tegracast; "" is for this machine.
func (p *packer) program(file, arch string) error {
	commit, err := output("git", "describe", "--always", "--dirty")
	if err != nil {
		return err
	}
	ldflags := "-s -w -X main.commit=" + strings.TrimSpace(commit)
	if p.version != "" {
		ldflags += " -X main.releaseVersion=" + p.version
	}
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", file, "./cmd/tegracast")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if b, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building for %s: %w: %s", arch, err, b)
	}
	return nil
}

// texts has the program write what it says of its options, and fills in the scripts.
func (p *packer) texts() error {
	here := filepath.Join(p.build, "here")
	if err := p.program(here, ""); err != nil {
		return err
	}
	manual, err := output(here, "man")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if _, err := z.Write([]byte(manual)); err != nil {
		return err
	}
	if err := errors.Join(z.Close(), p.write("tegracast.1.gz", b.String())); err != nil {
		return err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := output(here, "completion", shell)
		if err != nil {
			return err
		}
		if err := p.write(shell, text); err != nil {
			return err
		}
	}
	if p.version == "" {
		text, err := output(here, "version")
		if err != nil {
			return err
		}
		p.version = strings.Fields(text)[1]
	}
	conf, err := os.ReadFile("tegra/kmod/dkms.conf")
	if err != nil {
		return err
	}
	m := regexp.MustCompile(`(?m)^PACKAGE_VERSION="(.+)"$`).FindSubmatch(conf)
	if m == nil {
		return errors.New("tegra/kmod/dkms.conf has no PACKAGE_VERSION")
	}
	p.module = string(m[1])
	for _, script := range []string{"dkms.postinst", "dkms.prerm"} {
		text, err := os.ReadFile(filepath.Join("systemd/deb/scripts", script))
		if err != nil {
			return err
		}
		if err := p.write(script, strings.ReplaceAll(string(text), "@MODULE@", p.module)); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) write(name, text string) error {
	return os.WriteFile(filepath.Join(p.build, name), []byte(text), 0o644)
}

// pack writes NAME_VERSION_ARCH.deb by systemd/deb/NAME.yaml.
func (p *packer) pack(name, arch string) error {
	values := map[string]string{"ARCH": arch, "VERSION": p.version, "BUILD": p.build, "MODULE": p.module}
	config, err := nfpm.ParseFileWithEnvMapping(filepath.Join("systemd/deb", name+".yaml"), func(key string) string { return values[key] })
	if err != nil {
		return err
	}
	// The description's and the paths' variables are nfpm's own business; the contents' are not.
	for _, c := range config.Contents {
		value := func(key string) string { return values[key] }
		c.Source, c.Destination = os.Expand(c.Source, value), os.Expand(c.Destination, value)
		c.FileInfo.MTime, c.FileInfo.Owner, c.FileInfo.Group = p.made, "root", "root"
	}
	config.MTime = p.made
	info, err := config.Get("deb")
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		*script = os.Expand(*script, func(k string) string { return values[k] })
	}
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(p.out, fmt.Sprintf("%s_%s_%s.deb", name, p.version, arch)))
	if err != nil {
		return err
	}
	err = errors.Join(packager.Package(info, file), file.Close())
	if err == nil {
		fmt.Println(file.Name())
	}
	return err
}

// output runs a program.
func output(name string, args ...string) (string, error) {
	b, err := exec.Command(name, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return string(b), nil
}
