// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestConfigTLS checks that config tls makes a certificate of this machine and its key, readable only by their owner,
// prints a section that config check accepts, and overwrites nothing.
func TestConfigTLS(t *testing.T) {
	dir := t.TempDir()
	status, out, errw := runs(t, "config", "tls", "--dir", dir, "--name", "camera.example.org", "--name", "192.0.2.77")
	if status != exitOK {
		t.Fatalf("status %d: %s", status, errw)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "web.crt"), filepath.Join(dir, "web.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	for _, name := range []string{"localhost", "camera.example.org", "192.0.2.77", "127.0.0.1"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: time.Now().AddDate(0, 0, 820)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if valid := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore); valid > 825*24*time.Hour {
		t.Errorf("it is valid for %v", valid)
	}
	for _, name := range []string{"a b", "", "-x", "x-.example", "a..b", "münchen.example", "a,b", strings.Repeat("x", 64), strings.Repeat("x.", 150) + "x"} {
		says(t, name, []string{"config", "tls", "--dir", t.TempDir(), "--name=" + name}, exitUsage, "camera.example.org: at most 253 characters")
	}
	for _, name := range []string{"web.crt", "web.key", "web.password"} {
		if i, err := os.Stat(filepath.Join(dir, name)); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
	_, text, _ := runs(t, "config", "default")
	_, section, _ := strings.Cut(out, "web:")
	file := programtest.Write(t, "c.yaml", text+"\nweb:"+section)
	if status, _, errw := runs(t, "config", "check", file); status != exitOK {
		t.Errorf("the section is refused: %s", errw)
	}
	password, err := os.ReadFile(filepath.Join(dir, "web.password"))
	if err != nil || len(strings.TrimSpace(string(password))) < 20 || strings.Contains(out, strings.TrimSpace(string(password))) {
		t.Errorf("password %q, %v", password, err)
	}
	if err := os.Remove(filepath.Join(dir, "web.crt")); err != nil {
		t.Fatal(err)
	}
	says(t, "again", []string{"config", "tls", "--dir", dir}, exitFailure, "web.key", "--dir")
	if _, err := os.Stat(filepath.Join(dir, "web.crt")); err == nil {
		t.Error("a certificate without its key is left behind")
	}
	if err := os.Remove(filepath.Join(dir, "web.key")); err != nil {
		t.Fatal(err)
	}
	if status, out, errw := runs(t, "config", "tls", "--dir", dir); status != exitOK || !strings.Contains(out, "web.password stays") {
		t.Errorf("renewed: status %d: %s%s", status, out, errw)
	}
	if again, err := os.ReadFile(filepath.Join(dir, "web.password")); err != nil || string(again) != string(password) {
		t.Errorf("the password has changed: %v", err)
	}
}

// TestConfigTLSWrites checks that the service's files are for its group, and that the section is added to a
// configuration that has none, once, and printed where it does not fit.
func TestConfigTLSWrites(t *testing.T) {
	dir := t.TempDir()
	made, err := makeTLS(dir, nil, os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web.crt", "web.key", "web.password"} {
		if i, err := os.Stat(filepath.Join(dir, name)); err != nil || i.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
	password := filepath.Join(dir, "web.password")
	for text, want := range map[string]string{"": "the first line is empty", "short\n": "the password has 5 characters", "long enough a password\n": ""} {
		if err := errors.Join(os.Remove(made.certificate), os.Remove(filepath.Join(dir, "web.key")),
			os.WriteFile(password, []byte(text), 0o600), os.Chmod(password, 0o600)); err != nil {
			t.Fatal(err)
		}
		again, err := makeTLS(dir, nil, os.Getgid())
		if want == "" {
			if i, _ := os.Stat(password); err != nil || i.Mode().Perm() != 0o640 || !strings.Contains(again.text, "stays") {
				t.Errorf("%v, %v: %s", err, i.Mode(), again.text)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		for _, name := range []string{made.certificate, filepath.Join(dir, "web.key")} { // as before
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := filepath.Join(dir, "tegracast.yaml")
	writes := func(want string, bad bool) {
		t.Helper()
		var out, errw strings.Builder
		err := env{Env: terminal.Env{Out: &out, Err: &errw}}.writeSection(file, made)
		if !strings.Contains(out.String()+errw.String(), want) || bad != errors.Is(err, terminal.ErrChecked) || strings.Contains(out.String(), made.section) != bad {
			t.Errorf("%v: %s%s, want %s", err, &out, &errw, want)
		}
	}
	writes("make one with tegracast config default", true)
	for text, want := range map[string]string{
		good + "web: {profile: true}\n": "web", good + "nothing: 1\n": `unknown key "nothing"`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		writes(want, true)
		if after, err := os.ReadFile(file); err != nil || string(after) != text {
			t.Errorf("it was changed: %v\n%s", err, after)
		}
	}
	if err := errors.Join(os.WriteFile(file, []byte(good), 0o640), os.Mkdir(file+".new", 0o700)); err != nil {
		t.Fatal(err)
	}
	writes("is a directory", true) // so the new text cannot be written
	link := filepath.Join(dir, "link.yaml")
	if after, err := os.ReadFile(file); string(after) != good || errors.Join(err, os.Remove(file+".new"), os.Symlink(file, link)) != nil {
		t.Fatalf("%v: it was changed:\n%s", err, after)
	}
	real := file
	for i, text := range []string{good, strings.TrimSuffix(good, "\n"), "---\n" + good + "... # the end\n# of all", good + "..."} {
		if file = real; i%2 == 1 {
			file = link
		}
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		writes("has the section web now", false)
		writes("names these files already", false)
		if status, _, errw := runs(t, "config", "check", file); status != exitOK {
			t.Error(errw)
		}
		if i, err := os.Lstat(real); err != nil || i.Mode() != 0o640 {
			t.Errorf("%v: its mode is %v", err, i.Mode())
		}
	}
}

// TestAccessConfiguration checks that what is missing or does not work is reported with its place.
func TestAccessConfiguration(t *testing.T) {
	_, text, _ := runs(t, "config", "default")
	for section, words := range map[string][]string{
		"web: {certificate: a, key: b}":                 {"web.password_file", "tegracast config tls"},
		"web: {key: a, password_file: a}":               {"web.key", "tegracast config tls"},
		"web: {password_file: a}":                       nil,
		"web: {listen: '0.0.0.0:80', password_file: a}": {"web.listen", "trusted_proxies"},
		"web: {listen: '0.0.0.0:80', password_file: a, hosts: [a.example], trusted_proxies: [10.0.0.1]}": nil,
		"web: {trusted_proxies: [10.0.0.0/8, '0.0.0.0/0']}":                                              {"web.trusted_proxies[1]", "everybody"},
		"web: {trusted_proxies: ['::/0']}":                                                               {"web.trusted_proxies[0]", "everybody"},
		"web: {trusted_proxies: [proxy]}":                                                                {"web.trusted_proxies[0]", "10.0.0.0/24"},
		"web: {hosts: ['camera.example:443']}":                                                           {"web.hosts[0]", "without a port"},
		"web: {certificate: /none, key: /none, password_file: /none}":                                    nil,
		"web: {listen: 'x', certificate: a, key: a, password_file: a}":                                   {"web.listen", "127.0.0.1:8080"},
		"web: {listen: none, certificate: a, key: a, password_file: '' }":                                {"web.password_file"},
	} {
		status, out, errw := runs(t, "config", "check", programtest.Write(t, "c.yaml", text+"\n"+section+"\n"))
		if want := map[bool]int{true: exitOK, false: exitUsage}[words == nil]; status != want {
			t.Errorf("%s: status %d: %s%s", section, status, out, errw)
		}
		for _, w := range words {
			if !strings.Contains(errw, w) {
				t.Errorf("%s: %q does not say %s", section, errw, w)
			}
		}
	}
	small := strings.Replace(good, "5004", fmt.Sprint(rtptest.EvenPorts(t, 1)[0]), 1)
	says(t, "no certificate", []string{"serve", "--config", programtest.Write(t, "c.yaml", small+"\nweb: {certificate: /none, key: /none, password_file: /none}\n")},
		exitFailure, "web.certificate", "/none")
}
