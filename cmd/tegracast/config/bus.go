// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/bus"
)

// Bus is the message bus to which results, events and health are published.
type Bus struct {
	Server          string                       `yaml:"server" jsonschema_description:"nats://HOST:PORT or tls://HOST:PORT of a NATS server with JetStream, or mqtt://HOST:PORT or mqtts://HOST:PORT of any broker of MQTT (docs/bus.md). tls and mqtts are encrypted."`
	Board           string                       `yaml:"board,omitempty" jsonschema_description:"Name of this board, which no other board on the bus has (default: the host name up to its first dot)."`
	User            string                       `yaml:"user,omitempty" jsonschema_description:"User name for publishing (default: none; the server requires no login)."`
	PasswordFile    string                       `yaml:"password_file,omitempty" jsonschema_description:"File with the user's password in its first line."`
	TokenFile       string                       `yaml:"token_file,omitempty" jsonschema_description:"File with a token of NATS in its first line, instead of a user."`
	CredentialsFile string                       `yaml:"credentials_file,omitempty" jsonschema_description:"File with credentials of NATS (a JWT and its key), as nsc makes it, instead of a user."`
	AuthorityFile   string                       `yaml:"authority_file,omitempty" jsonschema_description:"PEM file with the certificates that sign the server's (default: those that this machine trusts)."`
	Store           yamlfile.Word[yamlfile.Size] `yaml:"store,omitempty" jsonschema_description:"How much may wait on disk while the server cannot be reached, such as 64MiB (default), before the oldest messages are deleted."`
}

const (
	defaultStore = 64 << 20
	leastStore   = 16 << 20
)

// SetDefaults fills in Store and Board if the file omits them. Board stays empty if the host name is unknown.
func (b *Bus) SetDefaults() {
	if b.Store.V == 0 {
		b.Store.V = defaultStore
	}
	if host, err := os.Hostname(); b.Board == "" && err == nil {
		b.Board, _, _ = strings.Cut(host, ".")
	}
}

// Check refuses invalid values. SetDefaults must have been called.
func (b *Bus) Check(at yamlfile.Section) error {
	if err := bus.CheckServer(b.Server); err != nil {
		return at.Key("server").Errorf("%w", err)
	}
	if err := bus.CheckBoard(b.Board); err != nil {
		return at.Key("board").Errorf("%w", err)
	}
	if b.Store.V < leastStore {
		return at.Key("store").Errorf("%d bytes: must be at least 16MiB", b.Store.V)
	}
	if err := together(at, b.User, b.PasswordFile); err != nil {
		return err
	}
	mqtt := (&bus.Server{URL: b.Server}).MQTT()
	for _, x := range []struct{ key, value string }{{"token_file", b.TokenFile}, {"credentials_file", b.CredentialsFile}} {
		switch {
		case x.value == "":
		case mqtt:
			return at.Key(x.key).Errorf("only NATS knows it: by MQTT write user and password_file")
		case b.User != "" || b.TokenFile != "" && b.CredentialsFile != "":
			return at.Key(x.key).Errorf("give one of user, token_file and credentials_file")
		}
	}
	return nil
}

// Remote returns the server with the password or the token read from its file.
func (b *Bus) Remote() (s bus.Server, err error) {
	s = bus.Server{URL: b.Server, User: b.User, Credentials: b.CredentialsFile, Authority: b.AuthorityFile}
	for _, x := range []struct {
		key, path string
		to        *string
	}{{"password_file", b.PasswordFile, &s.Password}, {"token_file", b.TokenFile, &s.Token}} {
		if x.path == "" {
			continue
		}
		if *x.to, err = Password(x.path); err != nil {
			return s, fmt.Errorf("bus.%s: %w", x.key, err)
		}
	}
	return s, nil
}
