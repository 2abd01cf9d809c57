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
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// certificateTime is the validity of the certificate. Some clients refuse certificates that are valid for longer.
const certificateTime = 825 * 24 * time.Hour

const tlsUsage = `Usage: tegracast config tls [--write] [--dir DIR] [--name NAME]

Makes a certificate, its key and a password, with which other machines may see
the page, and prints what to write into the configuration. Existing files stay
as they are.

With --write, which needs root, the files are for the installed service: in
/etc/tegracast, and readable by its group. The section web is added to its
configuration, or only printed, with status 1, if that cannot be done.

The certificate is valid for 825 days, and serve warns during the last 30. To
renew it, remove web.crt and web.key, and run the command again; the password
stays.
`

// configTLS creates the files with which serve offers the page to other machines (a self-signed certificate, its key,
// and a password), and prints the configuration that uses them, or adds it to the service's.
func configTLS(_ context.Context, e env, args []string) error {
	f := e.flags("config tls", tlsUsage)
	write := f.Bool("write", false, "make the files for the installed service, and configure it")
	folder := f.String("dir", ".", "write web.crt, web.key and web.password to `DIR` (default: this folder, with --write /etc/tegracast)")
	extra := f.StringArray("name", nil, "other machines call this one `NAME`, a host's name or an address; repeatable (this machine's own are known)")
	if err := parse(f, args); err != nil {
		return err
	}
	group := -1
	if *write {
		if !f.Changed("dir") {
			*folder = filepath.Dir(installedConfig)
		}
		var err error
		if group, err = serviceGroup(); err != nil {
			return err
		}
	}
	dir, err := filepath.Abs(*folder)
	if err != nil {
		return err
	}
	made, err := makeTLS(dir, *extra, group)
	if err != nil {
		return err
	}
	fmt.Fprint(e.Out, made.text)
	if *write {
		return e.writeSection(installedConfig, made)
	}
	fmt.Fprintf(e.Out, "Have the service's user read the files (chown tegracast), and write into the configuration:\n\n%s", made.section)
	return nil
}

// makeTLS creates web.crt, web.key and, unless there is one, web.password in a folder. Members of the group, unless it is
// -1, may read them.
func makeTLS(dir string, extra []string, group int) (madeTLS, error) {
	names, addresses, err := ownNames(extra)
	if err != nil {
		return madeTLS{}, terminal.UsageError{Err: err}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return madeTLS{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return madeTLS{}, err
	}
	now := time.Now()
	begin := now.Add(-24 * time.Hour) // a board's clock may be slow at first
	c := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: names[0], Organization: []string{"tegracast"}},
		NotBefore: begin, NotAfter: begin.Add(certificateTime - time.Second),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: names, IPAddresses: addresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return madeTLS{}, err
	}
	paths := []string{filepath.Join(dir, "web.crt"), filepath.Join(dir, "web.key"), filepath.Join(dir, "web.password")}
	content := [][]byte{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		[]byte(rand.Text() + "\n"),
	}
	made := madeTLS{
		certificate: paths[0],
		text: fmt.Sprintf("certificate of %s\n  good until %s, SHA-256 % X\n",
			strings.Join(names, ", "), c.NotAfter.Format(time.DateOnly), sha256.Sum256(der)),
		section: fmt.Sprintf("web:\n  listen: 0.0.0.0:8443\n  certificate: %s\n  key: %s\n  password_file: %s\n",
			paths[0], paths[1], paths[2]),
	}
	if _, err := os.Stat(paths[2]); err == nil {
		if err := keepPassword(paths[2], group); err != nil {
			return madeTLS{}, err
		}
		made.text += "the password in " + paths[2] + " stays\n"
		paths = paths[:2]
	}
	made.text += "\n"
	return made, writeNew(paths, content, group)
}

// hostRule allows the names of RFC 1123 §2.1, *. before one (RFC 9525 §6.3), and _, which some networks use.
var hostRule = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$`)

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
		x = strings.TrimSuffix(x, ".")
		if ip := net.ParseIP(x); ip != nil {
			addresses = append(addresses, ip)
		} else if len(x) > 253 || !hostRule.MatchString(x) {
			return nil, nil, fmt.Errorf("--name %.64q: write an address, or a host's name such as camera.example.org: at most 253 characters, "+
				"of letters, digits and -, at most 63 between two dots; *. may be in front", x)
		} else if !slices.Contains(names, x) {
			names = append(names, x)
		}
	}
	return names, addresses, nil
}
