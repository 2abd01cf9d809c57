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

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// Server is a server of the bus, and who asks it. At most one of User, Token and Credentials is given.
type Server struct {
	URL            string // CheckServer
	User, Password string
	Token          string // of NATS
	Credentials    string // file with a JWT and a key of NATS
	Authority      string // file with the certificates that sign the server's; empty: those of the system
}

// MQTT says whether the server is asked by MQTT.
func (s *Server) MQTT() bool {
	u, err := url.Parse(s.URL)
	return err == nil && (u.Scheme == "mqtt" || u.Scheme == "mqtts")
}

// ports are those that a URL of a scheme means without one.
var ports = map[string]string{"nats": "4222", "tls": "4222", "mqtt": "1883", "mqtts": "8883"}

// CheckServer refuses what is no URL of a server.
func CheckServer(text string) error {
	u, err := url.Parse(text)
	if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q: write nats://HOST, tls://HOST, mqtt://HOST or mqtts://HOST, with a port such as :4222 where it is not the usual one", text)
	}
	if u.User != nil {
		return errors.New("the URL has a user or a password, which everyone sees: write user and password_file")
	}
	return nil
}

// address is the host and port of a URL that was checked.
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

// boardRule keeps names fit for subjects of NATS and for topics of MQTT.
var boardRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckBoard refuses what is no name of a board.
func CheckBoard(name string) error {
	if !boardRule.MatchString(name) {
		return fmt.Errorf("%q: must be 1 to 64 of the letters A to Z and a to z, digits, _ and -", name)
	}
	return nil
}

// maxAuthority is the longest file of certificates in bytes.
const maxAuthority = 1 << 20

// tls is how the server's certificate is judged; nil: the connection is not encrypted.
func (s *Server) tls(host string) (*tls.Config, error) {
	u, err := url.Parse(s.URL)
	if err != nil || !slices.Contains([]string{"tls", "mqtts"}, u.Scheme) {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if s.Authority == "" {
		return c, nil
	}
	pem, err := pipeline.ReadRegular(s.Authority, maxAuthority, "a certificate")
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", s.Authority)
	}
	return c, nil
}

// A link is a connection to a server. One goroutine uses it.
type link interface {
	// send sends a message, at the latest with flush. What the server says of it is heard later, under the token. A token is one more than
	// that of the message before.
	send(m *store.Message, token uint64) error
	// flush ends a round of messages. It comes several times a second, also without messages.
	flush(now time.Time) error
	// heard tells what the server has said since: it has the message, or the error.
	heard(tell func(token uint64, err error))
	close()
}

var (
	errRefused = errors.New("the server refuses the message")
	errLost    = errors.New("the connection is lost")
)

// Times after which it is given up.
const (
	dialTime  = 10 * time.Second // a connection, with all that belongs to it
	writeTime = dialTime / 2     // writing
)

// dial connects. lost is told once or more when the link is lost, by any goroutine. It never waits.
func dial(ctx context.Context, c Config, id uint64, lost func(error)) (link, error) {
	if c.MQTT() {
		return dialMQTT(ctx, c, id, lost)
	}
	return dialNATS(ctx, c, lost)
}
