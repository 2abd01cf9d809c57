// SPDX-License-Identifier: Apache-2.0

package gpio

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/warthog618/gpiod"
	"golang.org/x/sys/unix"
)

// Errors that callers distinguish. They are wrapped with the line and a remedy.
var (
	ErrNoLine = errors.New("gpio: there is no such line")
	ErrBusy   = errors.New("gpio: the line is in use")
	ErrDenied = errors.New("gpio: the chip may not be opened")
)

// find returns the chip that has the line and the line's offset on it. A line without a name is not looked for.
func (l Line) find() (chip string, offset int, err error) {
	if l.Name == "" {
		return l.Chip, l.Offset, nil
	}
	chips := []string{l.Chip}
	if l.Chip == "" {
		chips = gpiod.Chips()
	}
	for _, chip := range chips {
		c, err := gpiod.NewChip(chip)
		if err != nil {
			return "", 0, explain(l, "", err)
		}
		for i := range c.Lines() {
			if info, err := c.LineInfo(i); err == nil && info.Name == l.Name {
				return chip, i, c.Close()
			}
		}
		if err := c.Close(); err != nil {
			return "", 0, err
		}
	}
	return "", 0, onNone(l, chips)
}

// onNone returns the error if none of the chips has the line.
func onNone(l Line, chips []string) error {
	if len(chips) == 0 {
		return fmt.Errorf("%w: %s: there is no GPIO chip that this user may see: gpiodetect lists them", ErrNoLine, l)
	}
	return fmt.Errorf("%w: %s is on none of %s: gpioinfo lists all lines", ErrNoLine, l, strings.Join(chips, ", "))
}

// explain translates a system call's error into GPIO terms.
func explain(l Line, consumer string, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %s by %q: gpioinfo lists the users of all lines", ErrBusy, l, consumer)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %s: add the user to the group of its device file (usermod -a -G gpio USER): %w", ErrDenied, l, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EINVAL), errors.Is(err, gpiod.ErrInvalidOffset):
		return fmt.Errorf("%w: %s: %w: gpioinfo lists all lines", ErrNoLine, l, err)
	}
	return fmt.Errorf("gpio: %s: %w", l, err)
}

// request opens a line with the options, and also returns its previous state.
func request(l Line, consumer string, options ...gpiod.LineReqOption) (line *gpiod.Line, before gpiod.LineInfo, err error) {
	chip, offset, err := l.find()
	if err != nil {
		return nil, before, err
	}
	c, err := gpiod.NewChip(chip, gpiod.WithConsumer(consumer))
	if err != nil {
		return nil, before, explain(l, "", err)
	}
	defer c.Close()
	if before, err = c.LineInfo(offset); err != nil {
		return nil, before, explain(l, "", err)
	}
	options = append(options, gpiod.WithConsumer(consumer), gpiod.WithABIVersion(2))
	if l.ActiveLow {
		options = append(options, gpiod.AsActiveLow)
	}
	if line, err = c.RequestLine(offset, options...); err != nil {
		return nil, before, explain(l, before.Consumer, err)
	}
	return line, before, nil
}

// An Output is a line driven by this process: a trigger, a strobe, a reset, an LED.
type Output struct {
	line    *gpiod.Line
	asked   Line
	restore gpiod.LineConfigOption

	mu     sync.Mutex
	closed bool
}

// OpenOutput opens a line, at first without changing it, and then drives it with the value, 0 or 1. consumer is the
// name of the user shown by gpioinfo.
func OpenOutput(l Line, consumer string, value int) (*Output, error) {
	line, before, err := request(l, consumer, gpiod.AsIs)
	if err != nil {
		return nil, err
	}
	o := &Output{line: line, asked: l, restore: gpiod.AsInput}
	if before.Config.Direction == gpiod.LineDirectionOutput {
		was, err := line.Value()
		if err != nil {
			return nil, errors.Join(explain(l, "", err), line.Close())
		}
		o.restore = gpiod.AsOutput(was)
	}
	if err := line.Reconfigure(gpiod.AsOutput(value)); err != nil {
		return nil, errors.Join(explain(l, "", err), line.Close())
	}
	return o, nil
}

// Set drives the line with 0 or 1.
func (o *Output) Set(value int) error {
	if err := o.line.SetValue(value); err != nil {
		return fmt.Errorf("gpio: %s: %w", o.asked, err)
	}
	return nil
}

// Close restores the line's previous direction, and its value if that was output, and releases the line. Further calls
// do nothing.
func (o *Output) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	return errors.Join(o.line.Reconfigure(o.restore), o.line.Close())
}
