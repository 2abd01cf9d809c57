// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/pipeline/bus"
)

const fleetUsage = `Usage: tegracast fleet [--server URL] [--user NAME --password-file FILE |
                       --token-file FILE | --credentials-file FILE]
                       [--authority-file FILE] [--deadline D] [--json]

Lists the boards that publish on a message bus, with their version, their health
and their streams. A board tells of itself when bus is in its configuration
(docs/bus.md). Without --server the bus of this machine's own configuration,
/etc/tegracast/tegracast.yaml, is asked, not one that the page has changed.

  tegracast fleet --server nats://bus.example:4222
  tegracast fleet --server mqtts://broker.example --user desk --password-file desk.password

A board is streaming, starting (not every output is armed), stalled, ended (its
program was stopped), or silent: for a while nothing has come from it.

Status 0 when the server has answered; 1 when it cannot be reached, or does not
answer within the deadline.
`

func fleetCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("fleet", fleetUsage)
	var c readers.Bus
	f.StringVar(&c.Server, "server", "", "ask the bus at `URL`: nats, tls, mqtt or mqtts, ://HOST or ://HOST:PORT")
	f.StringVar(&c.User, "user", "", "the `NAME` of who asks")
	f.StringVar(&c.PasswordFile, "password-file", "", "`FILE` with the user's password in its first line")
	f.StringVar(&c.TokenFile, "token-file", "", "`FILE` with a token of NATS in its first line")
	f.StringVar(&c.CredentialsFile, "credentials-file", "", "`FILE` with credentials of NATS, as nsc makes it")
	f.StringVar(&c.AuthorityFile, "authority-file", "", "PEM `FILE` with the certificates that sign the server's")
	deadline := f.Duration("deadline", 10*time.Second, "give up after the duration `D`, such as 30s")
	asJSON := f.Bool("json", false, "print the list as JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	if err := checkFleet(&c, *deadline); err != nil {
		return err
	}
	server, err := c.Remote()
	if err != nil {
		return command.UsageError{Err: errors.New(strings.ReplaceAll(strings.Replace(err.Error(), "bus.", "--", 1), "_file", "-file"))}
	}
	ctx, cancel := context.WithTimeout(ctx, *deadline)
	defer cancel()
	list, foreign, err := bus.Boards(ctx, server)
	if err != nil {
		return fmt.Errorf("%s: %w: correct --server, or start it", c.Server, err)
	}
	if foreign > 0 {
		fmt.Fprintf(e.Err, "%d boards, or others, have sent what this version cannot read: update it\n", foreign)
	}
	fleet := fleetOf(list, time.Now())
	if *asJSON {
		return command.WriteJSON(e.Out, fleet)
	}
	return fleet.print(e.Out)
}

// checkFleet refuses options that make no sense. Without --server those of the configuration are taken.
func checkFleet(c *readers.Bus, deadline time.Duration) error {
	given := 0
	for _, x := range []string{c.User, c.TokenFile, c.CredentialsFile} {
		if x != "" {
			given++
		}
	}
	var err error
	switch {
	case deadline <= 0:
		err = fmt.Errorf("--deadline %v: must be more than 0", deadline)
	case given > 1:
		err = errors.New("give one of --user, --token-file and --credentials-file")
	case (c.User == "") != (c.PasswordFile == ""):
		err = errors.New("--user and --password-file go together")
	case c.Server != "":
		if err = bus.CheckServer(c.Server); err != nil {
			err = fmt.Errorf("--server %w", err)
		}
	case *c != readers.Bus{}:
		err = errors.New("name the bus by --server, too")
	case !there(installedConfig):
		err = errors.New("name the bus by --server: try tegracast fleet --help")
	}
	if err != nil {
		return command.UsageError{Err: err}
	}
	if c.Server != "" {
		return nil
	}
	own, err := config.Load(installedConfig)
	switch {
	case err != nil:
		return err
	case own.Bus == nil:
		return command.UsageError{Err: fmt.Errorf("%s has no bus: name one by --server", installedConfig)}
	}
	*c = *own.Bus
	return nil
}

// Fleet is what fleet prints as JSON (docs/json.md).
type Fleet struct {
	Boards []FleetBoard `json:"boards"`
}

// FleetBoard is a board of the fleet.
type FleetBoard struct {
	State   string        `json:"state"`
	Silence time.Duration `json:"silence_ns"`
	Health  bus.Health    `json:"health"`
}

// silent is how many messages of health a board may owe before it counts as silent.
const silent = 3

func fleetOf(list []bus.Health, now time.Time) Fleet {
	f := Fleet{Boards: []FleetBoard{}}
	for _, h := range list {
		b := FleetBoard{State: "streaming", Silence: max(0, now.Sub(h.At)), Health: h}
		switch {
		case h.Ended:
			b.State = "ended"
		case b.Silence > silent*h.Every:
			b.State = "silent"
		case h.Stalled != "":
			b.State = "stalled"
		case !h.Ready:
			b.State = "starting"
		}
		f.Boards = append(f.Boards, b)
	}
	return f
}

// print prints a table. What others have sent cannot move the cursor of a terminal.
func (f Fleet) print(w io.Writer) error {
	if len(f.Boards) == 0 {
		_, err := fmt.Fprintln(w, "no board has told of itself: its configuration needs the section bus")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BOARD\tSTATE\tVERSION\tTOLD\tOUTPUT\tDELIVERED\tDROPPED\tWHERE")
	for _, b := range f.Boards {
		h := b.Health
		state := b.State
		if b.State == "stalled" {
			state += ": " + h.Stalled
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%v ago\t", h.Board, printable(state), printable(h.Program), b.Silence.Round(time.Second))
		for i, o := range h.Outputs {
			if i > 0 {
				fmt.Fprint(t, "\t\t\t\t")
			}
			where := strings.Join(append([]string{o.Sends}, o.To...), " ")
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", printable(o.Name), o.Delivered, o.Dropped, printable(where+" "+o.RTSP))
		}
		if len(h.Outputs) == 0 {
			fmt.Fprintln(t)
		}
	}
	return t.Flush()
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.TrimSpace(text))
}
