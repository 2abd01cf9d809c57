// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// Web is what the appliance shows and tells over HTTP.
type Web struct {
	Listen  string `yaml:"listen,omitempty" jsonschema_description:"host:port of the page, metrics and health (default 127.0.0.1:8080), or none."`
	Profile bool   `yaml:"profile,omitempty" jsonschema_description:"Serve Go's profiles under /debug/pprof/, too. Only on a loopback address."`
}

// DefaultListen is where only this machine can ask. NoListen is how a file says that nothing listens.
const (
	DefaultListen = "127.0.0.1:8080"
	NoListen      = "none"
)

func (w Web) check(at yamlfile.Section) error {
	if w.Listen == "" || w.Listen == NoListen {
		return nil
	}
	address, err := netip.ParseAddrPort(w.Listen)
	switch {
	case err != nil:
		return at.Key("listen").Errorf("%q: write an address and a port, such as %s, or %s", w.Listen, DefaultListen, NoListen)
	case w.Profile && !address.Addr().IsLoopback():
		return at.Key("profile").Errorf("profiles show what is in memory: listen must be a loopback address such as %s", DefaultListen)
	}
	return nil
}
