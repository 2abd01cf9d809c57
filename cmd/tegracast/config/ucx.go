// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

// UCX is a stream that other machines receive by UCX.
type UCX struct {
	Listen    string   `yaml:"listen" jsonschema:"minLength=1" jsonschema_description:"IP address and port to listen at, such as 0.0.0.0:5020. Outputs may share it; receivers name the output that they want."`
	Receivers int      `yaml:"receivers,omitempty" jsonschema:"minimum=1,maximum=16" jsonschema_description:"How many may take this output at the same time (default 4). There is memory for two frames of each; connected receivers may also use the share of those that are not connected."`
	Allow     []string `yaml:"allow,omitempty" jsonschema_description:"Address ranges that may take this output, such as 192.168.1.0/24 (default: all)."`
	Checksum  *bool    `yaml:"checksum,omitempty" jsonschema_description:"Send the CRC-32C of each frame (default true). Frames as the FPGA's camera delivers them have the FPGA's own in any case."`
}

// defaultReceivers is the maximum number of receivers of an output whose section gives none.
const defaultReceivers = 4

func (c *UCX) resolve(r *resolver, at yamlfile.Section, _ *Output) (traits, error) {
	c.Receivers = cmp.Or(c.Receivers, defaultReceivers)
	if c.Checksum == nil {
		on := true
		c.Checksum = &on
	}
	return traits{OpenAt: at.Place(), recorded: true, Holds: frames.Holds(c.Receivers)}, c.verify(r, at)
}

// verify refuses invalid values. Several UCX outputs may listen at one address.
func (c *UCX) verify(r *resolver, at yamlfile.Section) error {
	for i, text := range c.Allow {
		if _, err := netip.ParsePrefix(text); err != nil {
			return at.Key("allow").Element(i).Errorf("%q: write an address range, such as 192.168.1.0/24, or 192.168.1.5/32 for one machine", text)
		}
	}
	at = at.Key("listen")
	if err := frames.CheckAddress(c.Listen); err != nil {
		return at.Errorf("%w", err)
	}
	if slices.ContainsFunc(r.out.Outputs, func(x Output) bool { other, is := x.Kind.(*UCX); return is && other.Listen == c.Listen }) {
		return nil
	}
	if first, taken := r.taken.take("tcp "+c.Listen, at); taken {
		return at.Errorf("%s listens at %s already: give it another port", first, c.Listen)
	}
	return nil
}

// Allowed returns the networks from which receivers may connect; an empty list means from everywhere.
func (c *UCX) Allowed() (list []netip.Prefix) {
	for _, text := range c.Allow {
		list = append(list, netip.MustParsePrefix(text)) // resolve has checked it
	}
	return list
}

// Sends describes what the output sends, and who may receive it.
func (c *UCX) Sends() string {
	who := "everyone who reaches " + c.Listen
	switch {
	case len(c.Allow) > 0:
		who = strings.Join(c.Allow, ", ")
	case !c.Open():
		who = "this machine"
	}
	return "frames by UCX, which " + who + " may take"
}

// Open reports whether every machine that reaches the address may receive the output.
func (c *UCX) Open() bool {
	at, err := netip.ParseAddrPort(c.Listen)
	return err == nil && !at.Addr().IsLoopback() && len(c.Allow) == 0
}
