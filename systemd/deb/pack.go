// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
)

// packages makes all packages.
func (p *packer) packages() error {
	if err := errors.Join(os.MkdirAll(p.out, 0o755), p.texts()); err != nil {
		return err
	}
	for _, arch := range p.archs {
		if err := p.program(arch); err != nil {
			return err
		}
		if err := p.pack("tegracast", arch); err != nil {
			return err
		}
	}
	return p.pack("tegracast-dkms", "all")
}

// pack writes NAME_VERSION_ARCH.deb from systemd/deb/NAME.yaml.
func (p *packer) pack(name, arch string) error {
	values := map[string]string{"ARCH": arch, "VERSION": p.id.version, "BUILD": p.build, "ROOT": p.root}
	value := func(key string) string { return values[key] }
	config, err := nfpm.ParseFileWithEnvMapping(filepath.Join(p.root, "systemd/deb", name+".yaml"), value)
	if err != nil {
		return err
	}
	for _, c := range config.Contents { // nfpm does not expand their variables
		c.Source, c.Destination = os.Expand(c.Source, value), os.Expand(c.Destination, value)
		c.FileInfo.MTime, c.FileInfo.Owner, c.FileInfo.Group = p.id.made, "root", "root"
	}
	config.MTime = p.id.made
	info, err := config.Get("deb")
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		*script = os.Expand(*script, value)
	}
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(p.out, fmt.Sprintf("%s_%s_%s.deb", name, p.id.version, arch)))
	if err != nil {
		return err
	}
	err = errors.Join(packager.Package(info, file), file.Close())
	if err == nil {
		fmt.Println(file.Name())
	}
	return err
}
