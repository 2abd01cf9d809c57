// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/fpga/model"
)

// cards holds the open FPGAs.
type cards struct {
	memory  *memory
	lines   *lines.Lines // among them those that reset FPGAs
	log     *slog.Logger
	logHeld func(what string, err error) error // filters the errors of closing
	clock   *config.Clock                      // that the cards' clocks follow; nil: none

	mu   sync.Mutex          // held while list is changed, and while other goroutines read it
	list map[string]openCard // by config.Card.Name
}

type openCard struct {
	card  *capture.Card
	model *modelCard // nil: a real FPGA
	close func() error
}

// modelCard is an FPGA model with its sensor.
type modelCard struct {
	*device.Model
	sensor *model.Sensor
}

func (cs *cards) add(name string, card openCard) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.list[name] = card
}

// all returns a copy of the list of cards.
func (cs *cards) all() map[string]openCard {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return maps.Clone(cs.list)
}

// open returns the card of a source. If it is not open, open first resets it, if the board has a line for that, and
// opens it.
func (cs *cards) open(c *config.Source) (*capture.Card, error) {
	if card, is := cs.list[c.Card.Name]; is {
		cs.follow(c)
		return card.card, nil
	}
	if _, err := cs.lines.Reset(context.Background(), c.Card.Name); err != nil {
		return nil, fmt.Errorf("gpio.reset: %w", err)
	}
	board, err := device.OpenBoard(cs.memory.beside(), c.Card.Name)
	if err != nil {
		return nil, err
	}
	if board.Poll = c.Card.Poll; board.Poll {
		cs.log.Info("completions of the FPGA are polled", "device", c.Card.Name)
	}
	card := capture.NewCard(board.Hardware)
	cs.add(c.Card.Name, openCard{card, nil, board.Close})
	cs.follow(c)
	return card, nil
}

// close closes the cards for which keep is not true. The cards that it closes must not be in use.
func (cs *cards) close(keep map[string]bool) error {
	var errs []error
	for name, card := range cs.all() {
		if !keep[name] {
			errs = append(errs, cs.logHeld("card "+name, card.close()))
			cs.mu.Lock()
			delete(cs.list, name)
			cs.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// print prints what the simulated cards received from the fpga outputs.
func (cs *cards) print(out io.Writer) {
	for name, card := range cs.all() {
		if card.model == nil {
			continue
		}
		if r := card.model.Device.Received(0); r.Good+r.Bad+r.OutOfOrder+r.Aborted > 0 {
			fmt.Fprintf(out, "%s's FPGA received: %d frames right, %d bad, %d out of order, %d aborted, %d sequence numbers missing\n",
				name, r.Good, r.Bad, r.OutOfOrder, r.Aborted, r.Missing)
		}
	}
}
