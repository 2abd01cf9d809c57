// SPDX-License-Identifier: Apache-2.0

package config

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

// DefaultRTSP is where only this machine can read.
const DefaultRTSP = "127.0.0.1:8554"

// Address is where the server listens; empty: nowhere.
func (r RTSP) Address() string {
	if r.Listen == NoListen {
		return ""
	}
	return cmp.Or(r.Listen, DefaultRTSP)
}

func (r RTSP) check(at yamlfile.Section) error {
	if r.Address() == "" {
		return nil
	}
	address, err := netip.ParseAddrPort(r.Address())
	switch {
	case err != nil:
		return at.Key("listen").Errorf("%q: write an address and a port, such as %s, or %s", r.Listen, DefaultRTSP, NoListen)
	case r.User == "" && r.PasswordFile != "":
		return at.Key("password_file").Errorf("whose password? Write user, too")
	case r.User != "" && r.PasswordFile == "":
		return at.Key("user").Errorf("a user needs a password: write password_file, too")
	case r.User == "" && !address.Addr().IsLoopback():
		return at.Key("listen").Errorf("others can reach %s: write user and password_file, or listen at a loopback address such as %s", r.Listen, DefaultRTSP)
	}
	return nil
}
