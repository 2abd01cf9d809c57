// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"io/fs"
	"strconv"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/share"
)

// Share lets other processes of this machine map the frames of an output.
type Share struct {
	Socket    string `yaml:"socket" jsonschema:"minLength=1" jsonschema_description:"Path of the Unix socket that consumers connect to, such as /run/tegracast/frames."`
	Mode      string `yaml:"mode,omitempty" jsonschema:"pattern=^0?[0-7]{3}$" jsonschema_description:"Mode of the socket, in quotes (default '0660'): who may write to it may connect."`
	Users     []int  `yaml:"users,omitempty" jsonschema_description:"Numbers of the users whose processes may have the frames, of those that can connect (default: all)."`
	Groups    []int  `yaml:"groups,omitempty" jsonschema_description:"Numbers of the groups whose processes may have the frames: the group that the process runs as. A process of users or groups may."`
	Consumers int    `yaml:"consumers,omitempty" jsonschema:"minimum=1,maximum=16" jsonschema_description:"How many processes may take this output at the same time (default 2)."`
	Frames    int    `yaml:"frames,omitempty" jsonschema:"minimum=1,maximum=16" jsonschema_description:"How many frames each of them may hold (default 2). There is memory for these, and one more of each."`
}

const (
	defaultMode      = "0660"
	defaultConsumers = 2
	defaultFrames    = 2
)

// setDefaults fills in Mode, Consumers and Frames if the file omits them.
func (c *Share) setDefaults() {
	c.Mode, c.Consumers, c.Frames = cmp.Or(c.Mode, defaultMode), cmp.Or(c.Consumers, defaultConsumers), cmp.Or(c.Frames, defaultFrames)
}

// Holds returns the maximum number of frames that the output holds.
func (c *Share) Holds() int { return share.Holds(c.Consumers, c.Frames) }

// FileMode returns the socket's mode.
func (c *Share) FileMode() fs.FileMode {
	mode, _ := strconv.ParseUint(c.Mode, 8, 9) // verify has checked it
	return fs.FileMode(mode)
}

// verify refuses invalid values.
func (c *Share) verify(at yamlfile.Section) error {
	if err := share.CheckSocket(c.Socket); err != nil {
		return at.Key("socket").Errorf("%w", err)
	}
	if mode, err := strconv.ParseUint(c.Mode, 8, 9); err != nil || len(c.Mode) < 3 || mode == 0 {
		return at.Key("mode").Errorf("%q: write a mode such as '0660', with three or four digits from 0 to 7", c.Mode)
	}
	for key, list := range map[string][]int{"users": c.Users, "groups": c.Groups} {
		for i, id := range list {
			if id < 0 {
				return at.Key(key).Element(i).Errorf("%d: write the number of one of the %s, which id(1) shows", id, key)
			}
		}
	}
	return nil
}

// claim refuses invalid values, and a socket that something else has.
func (c *Share) claim(r *resolver, at yamlfile.Section) error {
	if err := c.verify(at); err != nil {
		return err
	}
	if first, taken := r.taken.take("socket "+c.Socket, at.Key("socket")); taken {
		return at.Key("socket").Errorf("%s is %s already: give it another path", c.Socket, first)
	}
	return nil
}

func (c *Share) resolve(r *resolver, at yamlfile.Section, _ *Output) (traits, error) {
	c.setDefaults()
	if err := c.claim(r, at); err != nil {
		return traits{}, err
	}
	return traits{OpenAt: at.Place(), recorded: true, shared: true, Holds: c.Holds()}, nil
}
