// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// Web configures the appliance's HTTP server.
type Web struct {
	Listen         string   `yaml:"listen,omitempty" jsonschema_description:"address:port of the page, metrics and health (default 127.0.0.1:8080), or none. Beyond loopback it needs a certificate, or a proxy that ends TLS: hosts, trusted_proxies and password_file."`
	Profile        bool     `yaml:"profile,omitempty" jsonschema_description:"Serve Go's profiles under /debug/pprof/, too. Only on a loopback address."`
	Lock           bool     `yaml:"lock_configuration,omitempty" jsonschema_description:"The configuration can be neither seen nor changed on the page or by the API."`
	Certificate    string   `yaml:"certificate,omitempty" jsonschema_description:"PEM file with the certificate for TLS. tegracast config tls makes it, the key and the password."`
	Key            string   `yaml:"key,omitempty" jsonschema_description:"PEM file with the certificate's private key."`
	PasswordFile   string   `yaml:"password_file,omitempty" jsonschema_description:"File with the page's password in its first line, at least 12 characters. Without one the page needs the token that serve makes."`
	Models         string   `yaml:"models,omitempty" jsonschema_description:"Folder in which the models of a configuration that comes from the page must be (default /etc/tegracast/models)."`
	Hosts          []string `yaml:"hosts,omitempty" jsonschema_description:"Further names by which browsers ask for the page, such as that of a reverse proxy. Addresses, localhost, the machine's name and the certificate's names are known."`
	TrustedProxies []string `yaml:"trusted_proxies,omitempty" jsonschema_description:"Addresses or networks of reverse proxies, such as 192.0.2.7 or 10.0.0.0/24, which are let in without TLS and whose X-Forwarded-For is believed."`
}

// Equal reports whether two sections are equal.
func (w Web) Equal(other Web) bool { return reflect.DeepEqual(w, other) }

// Proxies returns the addresses of the trusted proxies.
func (w Web) Proxies() []netip.Prefix {
	var list []netip.Prefix
	for _, text := range w.TrustedProxies {
		p, _ := parseProxy(text) // Check has validated it
		list = append(list, p)
	}
	return list
}

// parseProxy parses an address or a network, and refuses a network of all addresses.
func parseProxy(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, fmt.Errorf("%q: write an address or a network, such as 192.0.2.7 or 10.0.0.0/24", text)
	case p.Bits() == 0:
		return p, fmt.Errorf("%q: everybody would be trusted: write the proxy's address", text)
	}
	return p.Masked(), nil
}

// Address returns the address at which the server listens, or "" if it is off.
func (w Web) Address() string { return address(w.Listen, defaultWeb) }

// TLS reports whether the server uses TLS, without which only this machine and trusted proxies may connect.
func (w Web) TLS() bool { return w.Certificate != "" }

// Check refuses invalid values.
func (w Web) Check(at yamlfile.Section) error {
	for _, x := range []struct{ key, value string }{{"certificate", w.Certificate}, {"key", w.Key}, {"password_file", w.PasswordFile}} {
		if w.TLS() && x.value == "" || x.key == "key" && x.value != "" && !w.TLS() {
			return at.Key(x.key).Errorf("certificate, key and password_file go together: tegracast config tls makes all three")
		}
	}
	for i, text := range w.TrustedProxies {
		if _, err := parseProxy(text); err != nil {
			return at.Key("trusted_proxies").Element(i).Errorf("%w", err)
		}
	}
	for i, name := range w.Hosts {
		if name == "" || strings.ContainsAny(name, "/:*@ ") {
			return at.Key("hosts").Element(i).Errorf("%q: write a name without a port, such as camera.example.org", name)
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
	case !a.Addr().IsLoopback() && !w.TLS() && (len(w.Hosts) == 0 || len(w.TrustedProxies) == 0 || w.PasswordFile == ""):
		return at.Key("listen").Errorf("others can reach %s: add certificate, key and password_file (tegracast config tls makes them); or, behind "+
			"a proxy that ends TLS, add hosts, trusted_proxies and password_file; or listen at a loopback address such as %s", w.Listen, defaultWeb)
	}
	return nil
}
