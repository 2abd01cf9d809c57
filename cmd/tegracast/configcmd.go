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

const configUsage = `Usage: tegracast config default | check [--json] FILE | schema
       tegracast config diff [FILE]
       tegracast config tls [--dir DIR] [--name NAME]

  default      print the default configuration, with comments
  check FILE   validate a configuration, - for standard input. Each mistake is a
               line with its file, line and column, and the status is 2. When
               all keys and values are right, it is checked that they fit,
               and that the installed service may lock the memory that they need
  diff FILE    print how the configuration that was changed on the page differs from
               the installed FILE (default /etc/tegracast/tegracast.yaml): it is
               used instead of it. It is in $STATE_DIRECTORY, or else in
               /var/lib/tegracast. Status 1 when they differ
  schema       print the JSON Schema of the configuration, for editors
  tls          make a certificate, its key and a password, with which other
               machines may see the page, and print what to write into the
               configuration. Existing files stay as they are
`

func configCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("config", configUsage)
	dir := f.String("dir", ".", "tls: write web.crt, web.key and web.password to `DIR`")
	also := f.StringArray("name", nil, "tls: other machines call this one `NAME`, a host's name or an address; repeatable (this machine's own are known)")
	asJSON := f.Bool("json", false, "check: print the mistakes as JSON (docs/json.md)")
	if err := parseOptions(f, args); err != nil {
		return err
	}
	a := f.Args()
	isTLS := len(a) == 1 && a[0] == "tls"
	for name, word := range map[string]string{"dir": "tls", "name": "tls", "json": "check"} {
		if f.Changed(name) && (len(a) == 0 || a[0] != word) {
			return terminal.UsageError{Err: fmt.Errorf("--%s is for %s alone: try tegracast config --help", name, word)}
		}
	}
	switch {
	case isTLS:
		return configTLS(e, *dir, *also)
	case len(a) == 1 && a[0] == "default":
		_, err := e.Out.Write(config.Default())
		return err
	case len(a) == 2 && a[0] == "check":
		return configCheck(e, a[1], *asJSON)
	case len(a) > 0 && len(a) < 3 && a[0] == "diff":
		return configDiff(ctx, e, append(a[1:], installedConfig)[0])
	case len(a) == 1 && a[0] == "schema":
		return config.WriteSchema(e.Out)
	}
	return misused(f, map[string]int{"default": 0, "check": 1, "diff": 1, "schema": 0, "tls": 0}, "default, check FILE, diff, schema or tls")
}

// stateFolder is the service's state folder, for processes to which systemd passes none.
const stateFolder = "/var/lib/tegracast"

// configDiff prints how the configuration stored by the page differs from the installed file. It returns
// terminal.ErrChecked if they differ.
func configDiff(ctx context.Context, e env, installed string) error {
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

// configCheck prints all mistakes in a configuration to the standard error, as FILE:LINE:COLUMN: message, a format that
// editors understand, and returns an error if there are any, or if the file cannot be read. With asJSON it also prints
// a Check.
func configCheck(e env, path string, asJSON bool) error {
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
	if asJSON {
		return errors.Join(terminal.WriteJSON(e.Out, check), err)
	}
	if err == nil {
		if path == "-" {
			path = "standard input"
		}
		fmt.Fprintf(e.Out, "%s: OK (sources %d, isp %d, outputs %d)\n", printable.Text(path), len(c.Sources), c.ISPs(), len(c.Outputs))
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
