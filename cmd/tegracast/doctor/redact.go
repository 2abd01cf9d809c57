// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A redactor removes private data from texts: names of the machine and its users, serial numbers, ids, network and mail
// addresses, keys, and hosts and passwords in URLs and HTTP headers.
type redactor struct{ words []privateWord }

// A privateWord is replaced everywhere, or only as a whole word.
type privateWord struct {
	pattern *regexp.Regexp
	whole   bool
	with    string // the replacement
}

// privateFiles lists files that contain one private word each, by the text that replaces the word.
var privateFiles = map[string][]string{
	"<host>": {"proc/sys/kernel/hostname", "proc/sys/kernel/domainname", "etc/hostname", "etc/mailname"},
	"<serial>": {
		"proc/device-tree/serial-number", "sys/firmware/devicetree/base/serial-number", "sys/devices/soc0/serial_number",
		"sys/module/tegra_fuse/parameters/tegra_chip_uid",
		"sys/class/dmi/id/product_serial", "sys/class/dmi/id/board_serial", "sys/class/dmi/id/chassis_serial", "sys/class/dmi/id/product_uuid",
	},
	"<id>": {"etc/machine-id", "var/lib/dbus/machine-id", "proc/sys/kernel/random/boot_id"},
}

// notPrivate lists common names, which are not replaced.
var notPrivate = []string{
	"localhost", "localdomain", "(none)", "root", "nvidia", "ubuntu", "debian", "jetson", "tegra", "tegracast",
	"user", "default string", "not specified",
}

// newRedactor returns a redactor for the private data in a machine's files, and for the user's name in the environment.
func newRedactor(root fs.FS) redactor {
	var r redactor
	for with, names := range privateFiles {
		for _, name := range names {
			b, _ := fs.ReadFile(root, name)
			word := strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
			r.add(word, with)
			short, _, _ := strings.Cut(word, ".") // for a name with its domain
			r.add(short, with)
		}
	}
	users, _ := fs.ReadFile(root, "etc/passwd")
	for line := range strings.Lines(string(users)) {
		f := strings.Split(line, ":")
		if len(f) < 6 {
			continue
		}
		if id, err := strconv.Atoi(f[2]); err == nil && id >= 1000 && id < 65534 { // of people (login.defs(5))
			r.add(f[0], "<user>")
			person, _, _ := strings.Cut(f[4], ",")
			r.add(person, "<user>")
		}
	}
	cards, _ := fs.Glob(root, "sys/class/net/*/address") // cannot fail: the pattern is valid
	for _, name := range cards {
		mac, _ := fs.ReadFile(root, name)
		if word := strings.ReplaceAll(strings.TrimSpace(string(mac)), ":", ""); strings.Trim(word, "0") != "" {
			r.add(word, "<mac>")
		}
	}
	for _, name := range []string{"USER", "LOGNAME", "SUDO_USER"} {
		r.add(os.Getenv(name), "<user>")
	}
	return r
}

// add adds a word to replace, in any case of letters: everywhere if it has 8 bytes or more, otherwise only as a whole
// word. It ignores words of one or two bytes and those in notPrivate.
func (r *redactor) add(word, with string) {
	const long = 8
	if len(word) < 3 || slices.Contains(notPrivate, strings.ToLower(word)) {
		return
	}
	r.words = append(r.words, privateWord{regexp.MustCompile(`(?i)` + regexp.QuoteMeta(word)), len(word) < long, with})
}

// in returns a text with the word replaced. A whole word is one without a letter next to a letter at its ends, or a digit
// next to a digit: cam7 is found in cam7_front and in cam7Front, but not in cam70.
func (w privateWord) in(text string) string {
	var out strings.Builder
	from := 0
	for _, m := range w.pattern.FindAllStringIndex(text, -1) {
		before, _ := utf8.DecodeLastRuneInString(text[:m[0]])
		first, _ := utf8.DecodeRuneInString(text[m[0]:])
		last, _ := utf8.DecodeLastRuneInString(text[:m[1]])
		behind, _ := utf8.DecodeRuneInString(text[m[1]:])
		if w.whole && (alike(before, first) || alike(last, behind)) {
			continue
		}
		out.WriteString(text[from:m[0]] + w.with)
		from = m[1]
	}
	return out.String() + text[from:]
}

// alike reports whether both are letters or both are digits.
func alike(a, b rune) bool {
	return unicode.IsLetter(a) && unicode.IsLetter(b) || unicode.IsDigit(a) && unicode.IsDigit(b)
}

// Patterns of private data of any machine.
var (
	urlPattern = regexp.MustCompile( // RFC 3986 §3.2
		`\b([A-Za-z][A-Za-z0-9+.-]*://)([^\s"'<>]*@)?(\[[^\]\s]*\]|[^\s/?#"'<>:,;()]*)`)
	userAtHost  = regexp.MustCompile(`[^\s"'<>()/:@]+:[^\s"'<>()]*@[^\s"'<>(),;/]+`)
	bearer      = regexp.MustCompile(`(?i)\b(bearer\s+)[^\s"',;]+`) // RFC 6750 §2.1
	secretValue = regexp.MustCompile(
		`(?i)\b((?:authorization|password|passwd|secret|token)["']?\s*[:=]\s*["']?(?:(?:basic|bearer)\s+)?)[^\s"',;&]+`)
	macAddress  = regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,7}\b`)
	plainMAC    = regexp.MustCompile(`\b(?:enx|wlx|wwx)?(?:[0-9A-Fa-f]{12}|[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2})\b`) // also in names such as enx3c6d667671f1
	uuidPattern = regexp.MustCompile(`\b[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\b`)
	ipv4Address = regexp.MustCompile(`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`)
	ipv6Address = regexp.MustCompile(`(^|[^\w:.])((?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})`)
	homeFolder  = regexp.MustCompile(`/home/[^/\s"':;,]+`)
	serialText  = regexp.MustCompile(`(?i)\b(serial[ _-]?(?:number|no)?["']?\s*[:=]\s*["']?)[^\s"',;]+`)
	mailAddress = regexp.MustCompile(`[\w.+-]+@[\w-]+\.[\w.-]+`)
	publicKey   = regexp.MustCompile(`\b(?:ssh|ecdsa|sk)-[\w@.-]+ AAAA[\w+/=]+`)
)

// cleanWords returns a text, such as a file name, without private words.
func (r redactor) cleanWords(text string) string {
	for _, w := range r.words {
		text = w.in(text)
	}
	return text
}

// clean returns a text with all private data that it recognises replaced. Loopback addresses stay.
func (r redactor) clean(text string) string {
	text = urlPattern.ReplaceAllStringFunc(text, cleanURL)
	text = userAtHost.ReplaceAllString(text, "<user>@<host>")
	text = secretValue.ReplaceAllString(text, "${1}<secret>")
	text = bearer.ReplaceAllString(text, "${1}<secret>")
	text = r.cleanWords(text)
	text = publicKey.ReplaceAllString(text, "<key>")
	text = mailAddress.ReplaceAllString(text, "<mail>")
	text = homeFolder.ReplaceAllString(text, "/home/<user>")
	text = uuidPattern.ReplaceAllString(text, "<uuid>")
	text = macAddress.ReplaceAllString(text, "<mac>")
	text = plainMAC.ReplaceAllStringFunc(text, cleanMAC)
	text = serialText.ReplaceAllString(text, "${1}<serial>")
	text = ipv4Address.ReplaceAllStringFunc(text, func(s string) string { return cleanAddress(s) })
	return ipv6Address.ReplaceAllStringFunc(text, func(s string) string {
		m := ipv6Address.FindStringSubmatch(s)
		return m[1] + cleanAddress(m[2])
	})
}

// cleanURL returns the start of a URL with user, password and host replaced. In a URL without a user, names of the
// local machine such as localhost stay.
func cleanURL(s string) string {
	m := urlPattern.FindStringSubmatch(s)
	scheme, user, host := m[1], m[2], m[3]
	if user != "" {
		return scheme + "<user>@<host>"
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if host == "" || host == "localhost" || err == nil && (a.IsLoopback() || a.IsUnspecified()) {
		return s
	}
	return scheme + "<host>"
}

// cleanMAC replaces what may be a MAC address without colons, unless it is a decimal number.
func cleanMAC(s string) string {
	if !strings.ContainsAny(s, "abcdefABCDEF") {
		return s
	}
	return "<mac>"
}

func cleanAddress(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil || a.IsLoopback() || a.IsUnspecified() {
		return s
	}
	return "<address>"
}

// configText formats a configuration space in hexadecimal, like lspci -xxx. It blanks the card's serial number (Device
// Serial Number, PCI Express Base Specification 6.0 §7.9.3).
func configText(config []byte) string {
	c := slices.Clone(config)
	const serialNumber = 0x0003
	for at, seen := 0x100, 0; at >= 0x100 && at+12 <= len(c) && seen < 480; seen++ {
		header := binary.LittleEndian.Uint32(c[at:])
		if header&0xffff == serialNumber {
			clear(c[at+4 : at+12])
		}
		at = int(header>>20) &^ 3
	}
	return hexText(c)
}

// hexText formats 16 bytes per line, after their offset.
func hexText(b []byte) string {
	var out strings.Builder
	for at := 0; at < len(b); at += 16 {
		fmt.Fprintf(&out, "%03x: % x\n", at, b[at:min(at+16, len(b))])
	}
	return out.String()
}
