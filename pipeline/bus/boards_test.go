// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/tegracast/tegracast/pipeline/report"
)

// TestBoards checks that, with twenty boards publishing, Boards returns the latest health of each, whatever else is on
// the bus.
func TestBoards(t *testing.T) {
	everyBroker(t, func(t *testing.T, b *broker) {
		b.start(t)
		const boards = 20
		var stops []func()
		for n := range boards {
			p, stop := runs(t, Config{Server: Server{URL: b.url()}, Board: fmt.Sprintf("board-%02d", n), Folder: t.TempDir()})
			p.Health(Condition{Program: "old"})
			p.Event(Happened{Kind: KindFault, Text: "x"})
			p.Health(Condition{Program: "1.0", Ready: true, Ended: n == 7, Outputs: []OutputHealth{{Name: "raw"}}})
			stops = append(stops, stop)
			await(t, "acknowledgement", func() bool { return p.Stats().Published == 3 })
		}
		for _, stop := range stops {
			stop()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		list, foreign, err := Boards(ctx, Server{URL: b.url()})
		if err != nil || foreign != 0 || len(list) != boards {
			t.Fatalf("%d boards, %d messages of others, %v", len(list), foreign, err)
		}
		for n, h := range list {
			if h.Board != fmt.Sprintf("board-%02d", n) || h.Program != "1.0" || !h.Ready || h.Ended != (n == 7) || len(h.Outputs) != 1 || h.Sequence != 2 {
				t.Errorf("%+v", h)
			}
		}
	})
}

// TestNobodyAnswers checks that Boards returns within the deadline, with an error that says why there is no answer.
func TestNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // never sends anything
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, scheme := range []string{"nats", "mqtt"} {
		for address, wait := range map[string]time.Duration{freeAddress(t): time.Minute, l.Addr().String(): time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			if _, _, err := Boards(ctx, Server{URL: scheme + "://" + address}); err == nil {
				t.Errorf("%s://%s has answered", scheme, address)
			}
			cancel()
		}
	}
}

// authority makes a self-signed certificate for 127.0.0.1.
func authority(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// credentials makes a NATS operator with an account and a user: as options for a server and as a credentials file.
func credentials(t *testing.T) (o func(*server.Options), file string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	pair := func(make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		k, err := make()
		must(err)
		public, err := k.PublicKey()
		must(err)
		return k, public
	}
	operator, operatorID := pair(nkeys.CreateOperator)
	account, accountID := pair(nkeys.CreateAccount)
	user, userID := pair(nkeys.CreateUser)
	system, systemID := pair(nkeys.CreateAccount)
	claim := jwt.NewOperatorClaims(operatorID)
	claim.SystemAccount = systemID
	text, err := claim.Encode(operator)
	must(err)
	trusted, err := jwt.DecodeOperatorClaims(text)
	must(err)
	own := jwt.NewAccountClaims(accountID)
	own.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	ownText, err := own.Encode(operator)
	must(err)
	systemText, err := jwt.NewAccountClaims(systemID).Encode(operator)
	must(err)
	userText, err := jwt.NewUserClaims(userID).Encode(account)
	must(err)
	seed, err := user.Seed()
	must(err)
	creds, err := jwt.FormatUserConfig(userText, seed)
	must(err)
	file = filepath.Join(t.TempDir(), "creds")
	must(os.WriteFile(file, creds, 0o600))
	_ = system
	return func(o *server.Options) {
		resolver := &server.MemAccResolver{}
		must(resolver.Store(accountID, ownText))
		must(resolver.Store(systemID, systemText))
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{trusted}, resolver, systemID
	}, file
}

// TestWhoPublishes checks TLS, user, token and credentials, and that without them Stats.Trouble says why.
func TestWhoPublishes(t *testing.T) {
	certificate, key := authority(t)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	secure := func(o *server.Options) {
		o.TLSConfig, o.TLSTimeout = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, 10
	}
	withCredentials, file := credentials(t)
	for name, x := range map[string]struct {
		broker  func() *broker
		scheme  string
		right   Server
		wrong   Server
		trouble string
	}{
		"user over TLS": {
			func() *broker {
				return embedded(t, func(o *server.Options) { secure(o); o.Username, o.Password = "me", "secret" })
			},
			"tls",
			Server{User: "me", Password: "secret", Authority: certificate},
			Server{User: "me", Password: "other", Authority: certificate},
			"Authorization",
		},
		"unknown authority": {func() *broker { return embedded(t, secure) }, "tls", Server{Authority: certificate}, Server{}, "certificate"},
		"token": {
			func() *broker { return embedded(t, func(o *server.Options) { o.Authorization = "letters" }) },
			"nats",
			Server{Token: "letters"},
			Server{Token: "digits"},
			"Authorization",
		},
		"credentials": {func() *broker { return embedded(t, withCredentials) }, "nats", Server{Credentials: file}, Server{}, "Authorization"},
		"mosquitto": {func() *broker {
			path := filepath.Join(t.TempDir(), "passwords")
			if out, err := exec.Command(needs(t, "mosquitto_passwd"), "-b", "-c", path, "me", "secret").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return mosquitto(t, fmt.Sprintf("certfile %s\nkeyfile %s\npassword_file %s\nallow_anonymous false\n", certificate, key, path))
		}, "mqtts", Server{User: "me", Password: "secret", Authority: certificate}, Server{User: "me", Password: "x", Authority: certificate}, "uthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			b := x.broker()
			b.start(t)
			x.right.URL, x.wrong.URL = x.scheme+"://"+b.address, x.scheme+"://"+b.address
			p, stop := runs(t, Config{Server: x.right, Board: "a", Folder: t.TempDir()})
			if err := p.Results("o", report.Report{}); err != nil {
				t.Fatal(err)
			}
			await(t, "acknowledgement: "+p.Stats().Trouble, func() bool { return p.Stats().Published == 1 })
			stop()
			p, stop = runs(t, Config{Server: x.wrong, Board: "a", Folder: t.TempDir()})
			await(t, x.trouble, func() bool { return strings.Contains(p.Stats().Trouble, x.trouble) })
			stop()
			if said := p.Stats().Trouble; strings.Contains(said, "secret") {
				t.Error(said)
			}
		})
	}
}

// TestNoJetStream checks that a server without JetStream, and a stream that accepts only smaller messages, are reported
// differently from an unreachable server.
func TestNoJetStream(t *testing.T) {
	b := embedded(t, func(o *server.Options) { o.JetStream = false })
	b.start(t)
	p, _ := runs(t, Config{Server: Server{URL: b.url()}, Board: "a", Folder: t.TempDir()})
	await(t, "trouble", func() bool { return p.Stats().Trouble != "" })
	if said := p.Stats().Trouble; !strings.Contains(said, "nats-server -js") {
		t.Error(said)
	}
}
