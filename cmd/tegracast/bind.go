// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/printable"
)

const bindUsage = `Usage: tegracast bind [--yes] ADDRESS

Binds a PCI Express function, such as 0005:01:00.0, to the kernel module
tegra_p2p. Run it as root. If another driver, such as AMD's xdma, has the
function, bind names that driver and changes nothing. With --yes it takes the
function from that driver, and whatever uses the function loses it.

The binding lasts until the machine reboots or the function leaves the bus.
For a permanent binding use driverctl set-override ADDRESS tegra_p2p.
`

// ourDriver is the name of the kernel module's driver on the bus.
const ourDriver = "tegra_p2p"

func bindCommand(_ context.Context, e env, args []string) error {
	f := e.flags("bind", bindUsage)
	yes := f.Bool("yes", false, "take the function from the driver that has it")
	if err := parseOptions(f, args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return terminal.UsageError{Err: errors.New("give the PCI address of one function, as lspci -D shows it: try tegracast bind --help")}
	}
	address, err := pciAddress(f.Arg(0))
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	said, err := pciBus{root: "/sys/bus/pci", write: writeAttribute}.bindFunction(address, *yes)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.Out, printable.Lines(said))
	return nil
}

// addressRule matches the address of a PCI function in lower case: domain, bus, device and function, as Linux writes
// them. The domain is optional, because lspci omits 0000.
var addressRule = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])$`)

// pciAddress returns the address s in the form of sysfs, in lower case and with the domain, or an error if s is not the
// address of a PCI function.
func pciAddress(s string) (string, error) {
	m := addressRule.FindStringSubmatch(strings.ToLower(s))
	switch {
	case m == nil:
		return "", fmt.Errorf("%q is no PCI address such as 0005:01:00.0: lspci -D lists them", s)
	case m[1] == "":
		return "0000:" + m[2], nil
	}
	return m[1] + ":" + m[2], nil
}

// pciBus is the PCI bus in sysfs (Documentation/ABI/testing/sysfs-bus-pci: driver_override, unbind, drivers_probe).
type pciBus struct {
	root  string
	write func(file, text string) error
}

// writeAttribute writes text to a file of sysfs. The file must exist.
func writeAttribute(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (b pciBus) device(address, file string) string {
	return filepath.Join(b.root, "devices", address, file)
}

// text returns the content of a PCI function's file, without surrounding white space, or "" if it cannot be read.
func (b pciBus) text(address, file string) string {
	text, _ := os.ReadFile(b.device(address, file))
	return strings.TrimSpace(string(text))
}

// driver returns the name of the driver to which a PCI function is bound, or "" if there is none or it is unknown.
func (b pciBus) driver(address string) string {
	target, err := os.Readlink(b.device(address, "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// bindFunction binds a PCI function to tegra_p2p, and returns a text that says what it did. It takes the function from
// another driver only if yes is true, and refuses bridges. If tegra_p2p does not accept the function, bindFunction
// tries to bind it to its previous driver again, and returns an error.
func (b pciBus) bindFunction(address string, yes bool) (said string, err error) {
	if _, err := os.Stat(b.device(address, "")); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no function %s on the bus: lspci -D lists them", address)
	} else if err != nil {
		return "", err
	}
	const bridges = "0x06" // base class (PCI Code and ID Assignment Specification)
	before := b.driver(address)
	name := fmt.Sprintf("%s (%s:%s)", address, strings.TrimPrefix(b.text(address, "vendor"), "0x"), strings.TrimPrefix(b.text(address, "device"), "0x"))
	switch {
	case strings.HasPrefix(b.text(address, "class"), bridges):
		return "", fmt.Errorf("%s is a bridge, not an FPGA: name the function behind it, which lspci -D -t shows", name)
	case before == ourDriver:
		return name + " is driven by tegra_p2p already", nil
	case before != "" && !yes:
		return "", fmt.Errorf("%s is driven by %s, and nothing was changed: to take it from that driver, and from whatever uses it, "+
			"run tegracast bind --yes %s",
			name, before, address)
	}
	if _, err := os.Stat(filepath.Join(b.root, "drivers", ourDriver)); err != nil {
		return "", fmt.Errorf("the kernel module is not loaded, and nothing was changed: modprobe tegra_p2p: %w", err)
	}
	if err := b.move(address, before); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if before != "" {
		return fmt.Sprintf("%s was taken from %s and is driven by tegra_p2p", name, before), nil
	}
	return name + " is driven by tegra_p2p", nil
}

// move unbinds the function from its driver, whose name is before ("": none), and binds it to tegra_p2p. It sets
// driver_override first, so that no other driver can take the function in between. If it fails after that, it calls
// giveBack.
func (b pciBus) move(address, before string) error {
	old := b.text(address, "driver_override")
	if old == "(null)" {
		old = ""
	}
	if err := b.write(b.device(address, "driver_override"), ourDriver+"\n"); errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run it as root, for example with sudo", err)
	} else if err != nil {
		return err
	}
	var err error
	if before != "" {
		err = b.write(b.device(address, "driver/unbind"), address)
	}
	if err == nil {
		err = b.write(filepath.Join(b.root, "drivers_probe"), address)
	}
	if err == nil && b.driver(address) == ourDriver {
		return nil
	}
	errs := errors.Join(err, errors.New("tegra_p2p does not accept it: journalctl -k -g tegra_p2p says why"), b.giveBack(address, before, old))
	return errors.New(strings.ReplaceAll(errs.Error(), "\n", "; "))
}

// giveBack sets driver_override to override, its previous value, and, if no driver has the function, binds it again to
// its previous driver, whose name is before ("": none).
func (b pciBus) giveBack(address, before, override string) error {
	err := b.write(b.device(address, "driver_override"), override+"\n")
	if before != "" && b.driver(address) == "" {
		err = errors.Join(err, b.write(filepath.Join(b.root, "drivers", before, "bind"), address))
	}
	if b.driver(address) != before {
		return errors.Join(err, fmt.Errorf("%s, which had it before, does not accept it again", before))
	}
	return err
}
