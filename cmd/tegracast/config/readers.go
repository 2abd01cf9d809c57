// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net/netip"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/rtp/rtsp"
)

// RTSP is the server from which readers request the RTP streams.
type RTSP struct {
	Listen       string `yaml:"listen,omitempty" jsonschema_description:"address:port of the RTSP server, at which each output with rtp is read as rtsp://HOST:PORT/NAME (default 127.0.0.1:8554), or none. Beyond loopback it needs user and password_file."`
	User         string `yaml:"user,omitempty" jsonschema_description:"Who may read (default: everyone on this machine)."`
	PasswordFile string `yaml:"password_file,omitempty" jsonschema_description:"File with the user's password in its first line."`
	Multicast    string `yaml:"multicast,omitempty" jsonschema_description:"Range of IPv4 multicast groups, such as 239.255.42.0/24, for readers that ask for multicast (default: none, they are refused)."`
}

// Groups returns the multicast groups that readers may request. The zero value means none.
func (r RTSP) Groups() netip.Prefix {
	p, _ := netip.ParsePrefix(r.Multicast) // Check has validated it
	return p
}

// Gives reports whether a destination is one of the multicast groups that readers may request.
func (r RTSP) Gives(destination string) bool {
	a, err := netip.ParseAddrPort(destination)
	return err == nil && r.Groups().Contains(a.Addr().Unmap())
}

// together refuses a user without a password, and a password without a user.
func together(at yamlfile.Section, user, passwordFile string) error {
	switch {
	case user == "" && passwordFile != "":
		return at.Key("password_file").Errorf("whose password? Write user, too")
	case user != "" && passwordFile == "":
		return at.Key("user").Errorf("a user needs a password: write password_file, too")
	}
	return nil
}

// Default addresses, which only this machine can reach. The value nowhere turns a server off.
const (
	defaultRTSP = "127.0.0.1:8554"
	defaultWeb  = "127.0.0.1:8080"
	nowhere     = "none"
)

// address returns the address at which a server listens, or "" if the server is off. listen is the value of the key,
// and fallback the address if the key is omitted.
func address(listen, fallback string) string {
	if listen == nowhere {
		return ""
	}
	return cmp.Or(listen, fallback)
}

// parse parses a non-empty result of address.
func parse(at yamlfile.Section, listen, fallback string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(listen)
	if err != nil {
		return a, at.Key("listen").Errorf("%q: write an address and a port, such as %s, or %s", listen, fallback, nowhere)
	}
	return a, nil
}

// Address returns the address at which the server listens, or "" if it is off.
func (r RTSP) Address() string { return address(r.Listen, defaultRTSP) }

// Check refuses invalid values.
func (r RTSP) Check(at yamlfile.Section) error {
	if r.Address() == "" {
		return nil
	}
	a, err := parse(at, r.Address(), defaultRTSP)
	if err == nil {
		err = together(at, r.User, r.PasswordFile)
	}
	switch {
	case err != nil:
		return err
	case r.Multicast != "" && rtsp.CheckGroups(r.Groups()) != nil:
		return at.Key("multicast").Errorf("%q: %w", r.Multicast, rtsp.ErrGroups)
	case r.User == "" && !a.Addr().IsLoopback():
		return at.Key("listen").Errorf("others can reach %s: write user and password_file, or listen at a loopback address such as %s",
			r.Listen, defaultRTSP)
	}
	return nil
}
