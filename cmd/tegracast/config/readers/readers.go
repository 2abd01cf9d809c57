// SPDX-License-Identifier: Apache-2.0

// Package readers is the section of a configuration that says who may ask for streams.
package readers

import (
	"cmp"
	"net/netip"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// RTSP is where readers ask for the RTP streams.
type RTSP struct {
	Listen       string `yaml:"listen,omitempty" jsonschema_description:"address:port of the RTSP server, at which each output with rtp is read as rtsp://HOST:PORT/NAME (default 127.0.0.1:8554), or none. Beyond loopback it needs user and password_file."`
	User         string `yaml:"user,omitempty" jsonschema_description:"Who may read (default: everyone on this machine)."`
	PasswordFile string `yaml:"password_file,omitempty" jsonschema_description:"File with the user's password in its first line."`
}

// fallback is where only this machine can read, nowhere is how a file says that nothing listens.
const (
	fallback = "127.0.0.1:8554"
	nowhere  = "none"
)

// Address is where the server listens; empty: nowhere.
func (r RTSP) Address() string {
	if r.Listen == nowhere {
		return ""
	}
	return cmp.Or(r.Listen, fallback)
}

// Check refuses what cannot be.
func (r RTSP) Check(at yamlfile.Section) error {
	if r.Address() == "" {
		return nil
	}
	address, err := netip.ParseAddrPort(r.Address())
	switch {
	case err != nil:
		return at.Key("listen").Errorf("%q: write an address and a port, such as %s, or %s", r.Listen, fallback, nowhere)
	case r.User == "" && r.PasswordFile != "":
		return at.Key("password_file").Errorf("whose password? Write user, too")
	case r.User != "" && r.PasswordFile == "":
		return at.Key("user").Errorf("a user needs a password: write password_file, too")
	case r.User == "" && !address.Addr().IsLoopback():
		return at.Key("listen").Errorf("others can reach %s: write user and password_file, or listen at a loopback address such as %s",
			r.Listen, fallback)
	}
	return nil
}
