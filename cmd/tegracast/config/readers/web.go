// SPDX-License-Identifier: Apache-2.0

package readers

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// Web is what the appliance shows and tells over HTTP.
type Web struct {
	Listen       string `yaml:"listen,omitempty" jsonschema_description:"address:port of the page, metrics and health (default 127.0.0.1:8080), or none."`
	Profile      bool   `yaml:"profile,omitempty" jsonschema_description:"Serve Go's profiles under /debug/pprof/, too. Only on a loopback address."`
	Lock         bool   `yaml:"lock_configuration,omitempty" jsonschema_description:"The configuration can be neither seen nor changed on the page or by the API."`
	Certificate  string `yaml:"certificate,omitempty" jsonschema_description:"PEM file with the certificate by which other machines may look, over TLS. tegracast config tls makes it, the key and the password."`
	Key          string `yaml:"key,omitempty" jsonschema_description:"PEM file with the certificate's private key."`
	PasswordFile string `yaml:"password_file,omitempty" jsonschema_description:"File with the page's password in its first line, at least 12 characters: for other machines, and for the configuration on this machine, too."`
}

// Address is where the server listens; empty: nowhere.
func (w Web) Address() string { return address(w.Listen, defaultWeb) }

// TLS says whether other machines may look.
func (w Web) TLS() bool { return w.Certificate != "" }

// Check refuses what cannot be.
func (w Web) Check(at yamlfile.Section) error {
	for _, x := range []struct{ key, value string }{{"certificate", w.Certificate}, {"key", w.Key}, {"password_file", w.PasswordFile}} {
		if (x.value != "") != w.TLS() {
			return at.Key(x.key).Errorf("certificate, key and password_file go together: tegracast config tls makes all three")
		}
	}
	if w.Address() == "" {
		return nil
	}
	a, err := parse(at, w.Address(), defaultWeb)
	switch {
	case err != nil:
		return err
	case w.Profile && !a.Addr().IsLoopback():
		return at.Key("profile").Errorf("profiles show what is in memory: listen must be a loopback address such as %s", defaultWeb)
	}
	return nil
}
