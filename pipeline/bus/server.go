// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/tegracast/tegracast/pipeline/bus/store"
	"github.com/tegracast/tegracast/pipeline/files"
)

// Server describes a server of the bus and how to log in. At most one of User, Token and Credentials may be set.
type Server struct {
	URL            string // see CheckServer
	User, Password string
	Token          string // for NATS
	Credentials    string // file with a NATS JWT and key
	Authority      string // file with the CA certificates; empty: those of the system
}

// MQTT reports whether the server speaks MQTT.
func (s *Server) MQTT() bool {
	u, err := url.Parse(s.URL)
	return err == nil && (u.Scheme == "mqtt" || u.Scheme == "mqtts")
}

// ports holds the default port of each scheme.
var ports = map[string]string{"nats": "4222", "tls": "4222", "mqtt": "1883", "mqtts": "8883"}

// CheckServer returns an error unless text is the URL of a server.
func CheckServer(text string) error {
	u, err := url.Parse(text)
	if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q: write nats://HOST, tls://HOST, mqtt://HOST or mqtts://HOST, with a port such as :4222 where it is not the usual one", text)
	}
	if u.User != nil {
		return errors.New("the URL contains a user or a password, which everyone can see: write user and password_file")
	}
	return nil
}

// address returns the scheme and the host:port of the URL, which has been checked.
func (s *Server) address() (scheme, address string) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "", ""
	}
	port := u.Port()
	if port == "" {
		port = ports[u.Scheme]
	}
	return u.Scheme, net.JoinHostPort(u.Hostname(), port)
}

// boardRule allows only names that fit into both NATS subjects and MQTT topics.
var boardRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckBoard returns an error unless name is valid as the name of a board.
func CheckBoard(name string) error {
	if !boardRule.MatchString(name) {
		return fmt.Errorf("%q: must be 1 to 64 of the letters A to Z and a to z, digits, _ and -", name)
	}
	return nil
}

// maxAuthority is the maximum size of a certificate file in bytes.
const maxAuthority = 1 << 20

// tls returns the TLS configuration, or nil if the connection is not encrypted.
func (s *Server) tls(host string) (*tls.Config, error) {
	u, err := url.Parse(s.URL)
	if err != nil || !slices.Contains([]string{"tls", "mqtts"}, u.Scheme) {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if s.Authority == "" {
		return c, nil
	}
	pem, err := files.ReadRegular(s.Authority, maxAuthority, "a certificate")
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", s.Authority)
	}
	return c, nil
}

// A link is a connection to a server. It is used by one goroutine.
type link interface {
	// send sends a message, at the latest on the next flush. heard later reports the server's reply under the token,
	// which must be one more than that of the previous message. An error that wraps errRefused is about this message
	// only; after any other error the link is broken.
	send(m *store.Message, token uint64) error
	// flush ends a round of messages. It is called several times a second, even without messages.
	flush(now time.Time) error
	// heard calls tell for every reply since the previous call, with a nil error if the server has the message.
	heard(tell func(token uint64, err error))
	// watch asks the server for the health that is published under the board's name. A server may refuse.
	watch()
	close()
}

// calls holds the functions that a link calls, from any goroutine. They never block.
type calls struct {
	lost func(error)       // one or more times when the link is lost
	seen func(data []byte) // for each message of health that arrives after watch; data is valid during the call
}

var (
	errRefused = errors.New("the server refuses the message")
	errLost    = errors.New("the connection is lost")
	// errUnwatched means that the link was lost because of watch: some servers close the connection of a client that
	// subscribes without the right to, and others may publish what ends it.
	errUnwatched = errors.New("the connection does not survive a subscription")
)

// Timeouts.
const (
	dialTime  = 10 * time.Second // for connecting, including TLS and login
	writeTime = dialTime / 2     // for writing
)

// dial connects.
func dial(ctx context.Context, c Config, id uint64, to calls) (link, error) {
	if c.MQTT() {
		return dialMQTT(ctx, c, id, to)
	}
	return dialNATS(ctx, c, to)
}
