// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// certificateYears is the validity of the certificate in years. It is long, because an unattended appliance must not
// become unreachable.
const certificateYears = 10

const tlsUsage = `Usage: tegracast config tls [--dir DIR] [--name NAME]

Makes a certificate, its key and a password, with which other machines may see
the page, and prints what to write into the configuration. Existing files stay
as they are.
`

// configTLS creates the files with which serve offers the page to other machines (a self-signed certificate, its key,
// and a password), and prints the configuration that uses them.
func configTLS(_ context.Context, e env, args []string) error {
	f := e.flags("config tls", tlsUsage)
	folder := f.String("dir", ".", "write web.crt, web.key and web.password to `DIR`")
	extra := f.StringArray("name", nil, "other machines call this one `NAME`, a host's name or an address; repeatable (this machine's own are known)")
	if err := parse(f, args); err != nil {
		return err
	}
	dir, err := filepath.Abs(*folder)
	if err != nil {
		return err
	}
	names, addresses, err := ownNames(*extra)
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: names[0], Organization: []string{"tegracast"}},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(certificateYears, 0, 0), // a board's clock may be slow at first
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: names, IPAddresses: addresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return err
	}
	paths := [3]string{filepath.Join(dir, "web.crt"), filepath.Join(dir, "web.key"), filepath.Join(dir, "web.password")}
	if err := writeNew(paths, [3][]byte{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		[]byte(rand.Text() + "\n"),
	}); err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "certificate of %s\n  good until %s, SHA-256 % X\n\n", strings.Join(names, ", "), c.NotAfter.Format(time.DateOnly), sha256.Sum256(der))
	fmt.Fprintf(e.Out, "Have the service's user read the files (chown tegracast), and write into the configuration:\n\n"+
		"web:\n  listen: 0.0.0.0:8443\n  certificate: %s\n  key: %s\n  password_file: %s\n", paths[0], paths[1], paths[2])
	return nil
}

// ownNames returns this machine's names, its addresses except link-local ones, and the names and addresses in extra. It
// returns an error if an element of extra is neither a name nor an address, or if this machine's are unknown.
func ownNames(extra []string) (names []string, addresses []net.IP, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	names = []string{host, "localhost"}
	if !strings.Contains(host, ".") {
		names = append(names, host+".local") // mDNS
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, nil, err
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			addresses = append(addresses, n.IP)
		}
	}
	for _, x := range extra {
		if ip := net.ParseIP(x); ip != nil {
			addresses = append(addresses, ip)
		} else if x == "" || strings.ContainsAny(x, " /:@") {
			return nil, nil, fmt.Errorf("--name %q: write a host's name or an address, such as camera.example.org", x)
		} else if !slices.Contains(names, x) {
			names = append(names, x)
		}
	}
	return names, addresses, nil
}

// writeNew creates new files, readable only by their owner: all of them, or none.
func writeNew(paths [3]string, content [3][]byte) error {
	for i, path := range paths {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			err = fmt.Errorf("%w: remove it, or write to another folder (--dir)", err)
		} else if err != nil {
			err = fmt.Errorf("%w: name a folder that can be written to with --dir", err)
		} else {
			_, err = f.Write(content[i])
			if err = errors.Join(err, f.Close()); err != nil {
				i++ // this file exists
			}
		}
		if err != nil {
			for _, made := range paths[:i] {
				err = errors.Join(err, os.Remove(made))
			}
			return err
		}
	}
	return nil
}
