// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"strings"
	"time"
)

// document lists what a program and its image were built from, in the JSON format of SPDX 2.3. Unused fields are
// omitted.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []software     `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// software is a package in SPDX's sense: the program, its image, a Go module, Go itself, or a package of Debian.
type software struct {
	Name      string      `json:"name"`
	ID        string      `json:"SPDXID"`
	Version   string      `json:"versionInfo,omitempty"`
	Download  string      `json:"downloadLocation"`
	File      string      `json:"packageFileName,omitempty"`
	Analyzed  bool        `json:"filesAnalyzed"`
	Sums      []sum       `json:"checksums,omitempty"`
	Concluded string      `json:"licenseConcluded"`
	Declared  string      `json:"licenseDeclared"`
	Copyright string      `json:"copyrightText"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type sum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const unsaid = "NOASSERTION" // SPDX's word for an unknown value

// bill writes an SPDX list of what the program for an architecture was built from, according to the build information
// in the program, and of the image's packages.
func (p *packer) bill(arch string) error {
	program, err := os.ReadFile(p.programFor(arch))
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(p.programFor(arch))
	if err != nil {
		return err
	}
	d := billOf(info, p.title(arch), p.id, fmt.Sprintf("%x", sha256.Sum256(program)))
	d.addImage(p.title(arch)+".oci.tar", arch, p.id.version)
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return p.publish(p.title(arch)+".spdx.json", append(text, '\n'))
}

func billOf(info *debug.BuildInfo, title string, id identity, hash string) document {
	const self = "SPDXRef-Package-tegracast"
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: title,
		Namespace: "https://github.com/tegracast/tegracast/spdx/" + url.PathEscape(title) + "-" + hash,
		Creation:  creation{id.made.Format(time.RFC3339), []string{"Organization: tegracast", "Tool: tegracast-deb-" + id.version}},
		Packages: []software{{
			Name: "tegracast", ID: self, Version: id.version, Download: "https://" + info.Main.Path, File: title + "/tegracast",
			Sums: []sum{{"SHA256", hash}}, Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: unsaid,
			Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + info.Main.Path + "@" + url.QueryEscape(id.version)}},
		}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", self}},
	}
	language := strings.TrimPrefix(info.GoVersion, "go")
	modules := []*debug.Module{{Path: "stdlib", Version: language}}
	for _, m := range info.Deps {
		modules = append(modules, cmp.Or(m.Replace, m))
	}
	for i, m := range modules {
		s := software{
			Name: m.Path, ID: fmt.Sprintf("SPDXRef-Module-%d", i), Version: m.Version,
			Download: unsaid, Concluded: unsaid, Declared: unsaid, Copyright: unsaid,
			Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + url.QueryEscape(m.Version)}},
		}
		if i == 0 {
			s.Download, s.Declared = "https://go.dev/dl/"+path.Base(info.GoVersion)+".src.tar.gz", "BSD-3-Clause"
		}
		d.Packages = append(d.Packages, s)
		d.Relationships = append(d.Relationships, relationship{self, "DEPENDS_ON", s.ID})
	}
	return d
}

// addImage adds the image for an architecture, which contains the program and the pinned packages.
func (d *document) addImage(file, arch, version string) {
	const image = "SPDXRef-Package-image"
	program := d.Packages[0].ID
	d.Packages = append(d.Packages, software{
		Name: "tegracast-image", ID: image, Version: version, Download: unsaid, File: file, Concluded: unsaid, Declared: unsaid, Copyright: unsaid,
	})
	d.Relationships = append(d.Relationships, relationship{d.ID, "DESCRIBES", image}, relationship{image, "CONTAINS", program})
	for _, pin := range pins {
		name, hash := pin.file(arch)
		s := software{
			Name: pin.name, ID: "SPDXRef-Debian-" + strings.ReplaceAll(pin.name, "+", "."), Version: pin.version, Download: mirrors[1] + "/" + name,
			File: path.Base(name), Sums: []sum{{"SHA256", hash}}, Concluded: unsaid, Declared: pin.licence, Copyright: unsaid,
			Refs: []reference{{"PACKAGE-MANAGER", "purl", fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-13",
				url.QueryEscape(pin.name), url.QueryEscape(pin.version), architecture(name))}},
		}
		d.Packages = append(d.Packages, s)
		d.Relationships = append(d.Relationships, relationship{image, "CONTAINS", s.ID})
	}
}
