// SPDX-License-Identifier: Apache-2.0

// Package config reads the configuration of an appliance from YAML.
//
// Load reads the file, refuses unknown keys, fills in the defaults, and resolves every reference, so that its callers
// need not look anything up. A mistake is an *yamlfile.Error with file, line, column and a remedy.
//
// A kind of source, stage or output is a field of SourceKinds, StageKinds or OutputKinds. Its type, in its own file,
// defines the keys of its section (the JSON Schema is made from the same tags), checks them and resolves them.
package config

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/files"
)

//go:embed default.yaml
var defaultYAML []byte

// Default returns the text of the default configuration, with comments. The text must not be changed.
func Default() []byte { return defaultYAML }

// Load reads, checks and resolves a configuration file. With an empty path it uses the default one. Every error is an
// *yamlfile.Error.
func Load(path string) (*Appliance, error) {
	if path == "" {
		return Parse("default configuration", defaultYAML)
	}
	text, err := readText(path)
	if err != nil {
		return nil, &yamlfile.Error{Err: err}
	}
	return Parse(path, text)
}

// MaxFile is the maximum size of a configuration file in bytes. A long configuration has a few thousand bytes.
const MaxFile = 1 << 20

func readText(path string) ([]byte, error) {
	b, err := files.ReadRegular(path, MaxFile, "a configuration")
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w, or write one with `tegracast config default`", err)
	}
	return b, err
}

// Parse checks and resolves the text of a configuration file. path is the file's name in errors. Every error is an
// *yamlfile.Error.
func Parse(path string, text []byte) (*Appliance, error) { return parseText(path, text, nil) }

// ParseFromPage is Parse for a text that comes from the page: its models must be in the folder that the installed
// configuration has for them.
func ParseFromPage(path string, text []byte, installed *Appliance) (*Appliance, error) {
	return parseText(path, text, installed)
}

func parseText(path string, text []byte, installed *Appliance) (a *Appliance, err error) {
	defer func() { // a file must not end the program, whatever it makes the library do
		if r := recover(); r != nil {
			a, err = nil, yamlfile.Whole(path).Errorf("the YAML library cannot read this file: %v", r)
		}
	}()
	f := &File{}
	root, err := yamlfile.Parse(path, text, f)
	if err != nil {
		return nil, err
	}
	r := &resolver{file: f, out: &Appliance{file: f, Text: text}, names: register{}, taken: register{}, installed: installed}
	if err := r.resolve(root); err != nil {
		return nil, err
	}
	return r.out, nil
}
