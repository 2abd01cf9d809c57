// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// TestCertificateExpires checks that a warning comes within the last 30 days of a certificate, and not before.
func TestCertificateExpires(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(2030, 3, 31, 12, 0, 0, 0, time.UTC)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.AddDate(-1, 0, 0), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	file := programtest.Write(t, "web.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	for now, want := range map[time.Time]bool{end.AddDate(0, 0, -31): false, end.AddDate(0, 0, -29): true, end.AddDate(0, 0, 1): true} {
		var log bytes.Buffer
		if warnExpiry(slog.New(slog.NewTextHandler(&log, nil)), file, now); strings.Contains(log.String(), "expires=2030-03-31") != want {
			t.Errorf("%v: %q, want a warning %v", now, &log, want)
		}
	}
}
