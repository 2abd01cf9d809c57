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

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/bus"
	"github.com/tegracast/tegracast/pipeline/printable"
)

const fleetUsage = `Usage: tegracast fleet [--server URL] [--user NAME --password-file FILE |
                       --token-file FILE | --credentials-file FILE]
                       [--authority-file FILE] [--deadline D] [--json]

Lists the boards that publish on a message bus, with their version, their health
and their streams. A board publishes its state if its configuration has a bus
(docs/bus.md). Without --server the bus of this machine's own configuration,
/etc/tegracast/tegracast.yaml, is asked, not one that the page has changed.

  tegracast fleet --server nats://bus.example:4222
  tegracast fleet --server mqtts://broker.example --user desk --password-file f

A board is streaming, starting (not every output is armed), stalled, ended (its
program was stopped), silent (for a while nothing has come from it), or ahead:
its time is in the future, so nobody knows whether it is silent. Boards that
publish under one name are listed with the id of each; only the one that
published last has its health listed. Anyone who may publish on the bus under a
board's name speaks for that board.

Status 0 when the server has answered; 1 when it cannot be reached, or nothing
has come within the deadline.
`

func fleetCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("fleet", fleetUsage)
	var c config.Bus
	f.StringVar(&c.Server, "server", "", "ask the bus at `URL`: nats, tls, mqtt or mqtts, with ://HOST or ://HOST:PORT")
	f.StringVar(&c.User, "user", "", "log in as the user `NAME`")
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
		return terminal.UsageError{Err: errors.New(strings.ReplaceAll(strings.Replace(err.Error(), "bus.", "--", 1), "_file", "-file"))}
	}
	ctx, cancel := context.WithTimeout(ctx, *deadline)
	defer cancel()
	list, foreign, err := bus.Boards(ctx, server)
	switch {
	case err == nil:
	case errors.Is(err, bus.ErrMore):
		fmt.Fprintln(e.Err, err)
	case len(list) > 0 && errors.Is(err, context.DeadlineExceeded):
		fmt.Fprintln(e.Err, "the deadline has passed: a longer --deadline may show more boards")
	default:
		return fmt.Errorf("%s: %w: correct --server, or start it", c.Server, err)
	}
	if foreign > 0 {
		fmt.Fprintf(e.Err, "%d messages are not a board's own, or of another version: correct the rights on the bus, or update this program\n",
			foreign)
	}
	fleet := fleetOf(list, time.Now())
	if *asJSON {
		return terminal.WriteJSON(e.Out, fleet)
	}
	return fleet.print(e.Out)
}

// checkFleet returns an error if the options are invalid or contradict each other. Without --server it sets c to the
// bus of the installed configuration, or returns an error if that cannot be loaded or has no bus.
func checkFleet(c *config.Bus, deadline time.Duration) error {
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
	case *c != config.Bus{}:
		err = errors.New("name the bus with --server, too")
	case !there(installedConfig):
		err = errors.New("name the bus with --server: try tegracast fleet --help")
	}
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	if c.Server != "" {
		return nil
	}
	own, err := config.Load(installedConfig)
	switch {
	case err != nil:
		return err
	case own.Bus == nil:
		return terminal.UsageError{Err: fmt.Errorf("%s has no bus: name one with --server", installedConfig)}
	}
	*c = *own.Bus
	return nil
}

// Fleet is the JSON that fleet prints (docs/json.md).
type Fleet struct {
	Boards []FleetBoard `json:"boards"` // sorted by name
}

// FleetBoard is a board of the fleet.
type FleetBoard struct {
	State   string        `json:"state"`      // `streaming`, `starting`, `stalled`, `ended`, `silent` or `ahead`
	Silence time.Duration `json:"silence_ns"` // time since its latest message; negative if its clock is ahead
	Health  bus.Health    `json:"health"`     // its latest health, which has its own version ([keys](#bus-health))
}

// silent is the number of missing health messages after which a board counts as silent.
const silent = 3

func fleetOf(list []bus.Health, now time.Time) Fleet {
	f := Fleet{Boards: []FleetBoard{}}
	for _, h := range list {
		b := FleetBoard{State: "streaming", Silence: now.Sub(h.At), Health: h}
		switch {
		case b.Silence < -bus.Early:
			b.State = "ahead"
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

// print prints a table. Text from other machines is made printable, so that it cannot move the cursor.
func (f Fleet) print(w io.Writer) error {
	if len(f.Boards) == 0 {
		_, err := fmt.Fprintln(w, "no board has reported: its configuration needs the section bus")
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
		name := h.Board
		if len(h.Others) > 0 {
			name += " " + printable.Text(h.ID)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t", name, printable.Text(state), printable.Text(h.Program), told(b.Silence))
		for i, o := range h.Outputs {
			if i > 0 {
				fmt.Fprint(t, "\t\t\t\t")
			}
			where := strings.Join(append([]string{o.Sends}, o.To...), " ")
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", printable.Text(o.Name), o.Delivered, o.Dropped,
				printable.Text(strings.TrimSpace(where+" "+o.RTSP)))
		}
		if len(h.Outputs) == 0 {
			fmt.Fprintln(t)
		}
		for _, id := range h.Others {
			fmt.Fprintf(t, "%s %s\tsame name: give it another (bus.board)\n", h.Board, printable.Text(id))
		}
	}
	return t.Flush()
}

// told returns in words how long ago a board sent its last health message, or how far ahead its clock is if that is
// more than bus.Early.
func told(silence time.Duration) string {
	if silence < -bus.Early {
		return fmt.Sprintf("in %v", -silence.Round(time.Second))
	}
	return fmt.Sprintf("%v ago", max(0, silence).Round(time.Second))
}
