// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tegracast/tegracast/cmd/tegracast/appliance"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/cmd/tegracast/folders"
	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/printable"
)

// configWords are the subcommands of config.
var configWords = []word{
	{name: "default", about: "print the default configuration, with comments", run: configDefault},
	{name: "check", about: "look for mistakes in a configuration", run: configCheck},
	{name: "diff", about: "print how the page's configuration differs from the installed one", run: configDiff},
	{name: "schema", about: "print the JSON Schema of the configuration, for editors", run: configSchema},
	{name: "tls", about: "make a certificate, its key and a password for the page", run: configTLS},
}

const defaultUsage = `Usage: tegracast config default

Prints the default configuration, with comments: a model of the camera, and two
streams to this machine. If the package is installed, the first line tells
editors where the schema is.
`

func configDefault(_ context.Context, e env, args []string) error {
	if err := parse(e.flags("config default", defaultUsage), args); err != nil {
		return err
	}
	_, err := e.Out.Write(append(modeline(installedSchema), config.Default()...))
	return err
}

// installedSchema is the path of the schema in the package.
const installedSchema = "/usr/share/tegracast/schema.json"

// modeline returns a first line for the configuration, by which editors find the schema, or nothing if it is not there.
func modeline(schema string) []byte {
	if _, err := os.Stat(schema); err != nil {
		return nil
	}
	return []byte("# yaml-language-server: $schema=" + schema + "\n")
}

const schemaUsage = `Usage: tegracast config schema

Prints the JSON Schema of the configuration, with which editors complete and
check it.
`

func configSchema(_ context.Context, e env, args []string) error {
	if err := parse(e.flags("config schema", schemaUsage), args); err != nil {
		return err
	}
	return config.WriteSchema(e.Out)
}

// stateFolder is the service's state folder, for processes to which systemd passes none.
const stateFolder = "/var/lib/tegracast"

const diffUsage = `Usage: tegracast config diff [FILE]

Prints how the configuration that was changed on the page differs from the
installed FILE (default /etc/tegracast/tegracast.yaml), instead of which it is
used. It is in $STATE_DIRECTORY, or else in /var/lib/tegracast. Status 1 when
they differ.
`

// configDiff prints how the configuration stored by the page differs from the installed file. It returns
// terminal.ErrChecked if they differ.
func configDiff(ctx context.Context, e env, args []string) error {
	files, err := parseFiles(e.flags("config diff", diffUsage), args, 0, 1)
	if err != nil {
		return err
	}
	installed := append(files, installedConfig)[0]
	var text bytes.Buffer
	differs, err := appliance.ConfigStore{Installed: installed, Folder: cmp.Or(folders.State(), stateFolder)}.Diff(ctx, &text)
	if _, werr := io.WriteString(e.Out, printable.Lines(text.String())); err == nil {
		err = werr
	}
	if err == nil && differs {
		err = terminal.ErrChecked
	}
	return err
}

// Check is the JSON that config check --json prints.
type Check struct {
	File     string             `json:"file"`     // as given; `-` is standard input
	Good     bool               `json:"good"`     // there are no mistakes
	Mistakes []yamlfile.Mistake `json:"mistakes"` // in the file's order
}

const checkUsage = `Usage: tegracast config check [--json] FILE

Looks for mistakes in a configuration; - is the standard input. Each mistake is
a line with its file, line and column, and the status is 2. When all keys and
values are right, it is checked that they fit, and that the installed service
may lock the memory that they need.
`

// configCheck prints all mistakes in a configuration to the standard error, as FILE:LINE:COLUMN: message, a format that
// editors understand, and returns an error if there are any, or if the file cannot be read. With --json it also prints a
// Check.
func configCheck(_ context.Context, e env, args []string) error {
	f := e.flags("config check", checkUsage)
	asJSON := f.Bool("json", false, "print the mistakes as JSON (docs/json.md)")
	files, err := parseFiles(f, args, 1, 1)
	if err != nil {
		return err
	}
	path := files[0]
	limit, err := memlock.OfService(os.DirFS("/"))
	if err != nil {
		return err
	}
	c, err := checked(path)
	if err == nil {
		err = limit.Check(c)
	}
	var wrong *yamlfile.Error
	if err != nil && !errors.As(err, &wrong) {
		return err
	}
	check := Check{File: path, Good: err == nil, Mistakes: []yamlfile.Mistake{}}
	if wrong != nil {
		for _, m := range wrong.All() {
			mistake := m.Mistake()
			check.Mistakes = append(check.Mistakes, mistake)
			if mistake.Line == 0 { // it concerns the whole file
				fmt.Fprint(e.Err, "tegracast config: ")
			}
			fmt.Fprintln(e.Err, printable.Lines(m.Error()))
		}
		err = terminal.UsageError{Err: terminal.ErrChecked}
	}
	if *asJSON {
		return errors.Join(terminal.WriteJSON(e.Out, check), err)
	}
	if err == nil {
		if path == "-" {
			path = "standard input"
		}
		fmt.Fprintf(e.Out, "%s: OK (sources %d, stages %d, outputs %d)\n", printable.Text(path), len(c.Sources), len(c.Stages), len(c.Outputs))
	}
	return err
}

// checked returns the configuration in a file, or on the standard input if path is "-".
func checked(path string) (*config.Appliance, error) {
	if path != "-" {
		return config.Load(path)
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, config.MaxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("standard input: %w", err)
	case len(text) > config.MaxFile:
		return nil, terminal.UsageError{Err: fmt.Errorf("standard input: a configuration has at most %d bytes", config.MaxFile)}
	}
	return config.Parse("standard input", text)
}
