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
)

// A redactor takes what is private out of texts: names of the machine and its users, serial numbers, addresses of networks.
type redactor struct {
	words    []*regexp.Regexp
	replaced []string // what stands in a word's place
}

// privateFiles have one private word each.
var privateFiles = map[string][]string{
	"<host>": {"proc/sys/kernel/hostname", "proc/sys/kernel/domainname", "etc/hostname", "etc/mailname"},
	"<serial>": {
		"proc/device-tree/serial-number", "sys/firmware/devicetree/base/serial-number", "sys/devices/soc0/serial_number", "sys/module/tegra_fuse/parameters/tegra_chip_uid",
		"sys/class/dmi/id/product_serial", "sys/class/dmi/id/board_serial", "sys/class/dmi/id/chassis_serial", "sys/class/dmi/id/product_uuid",
	},
	"<id>": {"etc/machine-id", "var/lib/dbus/machine-id", "proc/sys/kernel/random/boot_id"},
}

// notPrivate are names that everybody has.
var notPrivate = []string{"localhost", "localdomain", "(none)", "root", "nvidia", "ubuntu", "debian", "jetson", "tegra", "tegracast", "user", "default string", "not specified"}

// newRedactor reads what is private of a machine from its files.
func newRedactor(root fs.FS) redactor {
	var r redactor
	for with, names := range privateFiles {
		for _, name := range names {
			b, _ := fs.ReadFile(root, name)
			word := strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
			r.add(word, with)
			short, _, _ := strings.Cut(word, ".") // of a name with its domain
			r.add(short, with)
		}
	}
	users, _ := fs.ReadFile(root, "etc/passwd")
	for line := range strings.Lines(string(users)) {
		f := strings.Split(line, ":")
		if len(f) < 6 {
			continue
		}
		if id, err := strconv.Atoi(f[2]); err == nil && id >= 1000 && id < 65534 { // people's (login.defs(5))
			r.add(f[0], "<user>")
			person, _, _ := strings.Cut(f[4], ",")
			r.add(person, "<user>")
		}
	}
	for _, name := range []string{"USER", "LOGNAME", "SUDO_USER"} {
		r.add(os.Getenv(name), "<user>")
	}
	return r
}

// add has a word replaced: a long one wherever it stands, a short one as a whole word.
func (r *redactor) add(word, with string) {
	const long = 8
	if len(word) < 3 || slices.Contains(notPrivate, strings.ToLower(word)) {
		return
	}
	pattern := `(?i)` + regexp.QuoteMeta(word)
	if len(word) < long {
		pattern = `(?i)\b` + regexp.QuoteMeta(word) + `\b`
	}
	r.words, r.replaced = append(r.words, regexp.MustCompile(pattern)), append(r.replaced, with)
}

// Patterns of what is private on every machine.
var (
	macAddress  = regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,7}\b`)
	uuidPattern = regexp.MustCompile(`\b[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\b`)
	ipv4Address = regexp.MustCompile(`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`)
	ipv6Address = regexp.MustCompile(`(^|[^\w:.])((?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})`)
	homeFolder  = regexp.MustCompile(`/home/[^/\s"':;,]+`)
	serialText  = regexp.MustCompile(`(?i)\b(serial[ _-]?(?:number|no)?["']?\s*[:=]\s*["']?)[^\s"',;]+`)
	mailAddress = regexp.MustCompile(`[\w.+-]+@[\w-]+\.[\w.-]+`)
	publicKey   = regexp.MustCompile(`\b(?:ssh|ecdsa|sk)-[\w@.-]+ AAAA[\w+/=]+`)
)

// cleanWords is a text without private words, such as the name of a file.
func (r redactor) cleanWords(text string) string {
	for i, w := range r.words {
		text = w.ReplaceAllString(text, r.replaced[i])
	}
	return text
}

// clean is a text without what is private. Addresses of this machine to itself stay.
func (r redactor) clean(text string) string {
	text = r.cleanWords(text)
	text = publicKey.ReplaceAllString(text, "<key>")
	text = mailAddress.ReplaceAllString(text, "<mail>")
	text = homeFolder.ReplaceAllString(text, "/home/<user>")
	text = uuidPattern.ReplaceAllString(text, "<uuid>")
	text = macAddress.ReplaceAllString(text, "<mac>")
	text = serialText.ReplaceAllString(text, "${1}<serial>")
	text = ipv4Address.ReplaceAllStringFunc(text, func(s string) string { return cleanAddress(s) })
	return ipv6Address.ReplaceAllStringFunc(text, func(s string) string {
		m := ipv6Address.FindStringSubmatch(s)
		return m[1] + cleanAddress(m[2])
	})
}

func cleanAddress(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil || a.IsLoopback() || a.IsUnspecified() {
		return s
	}
	return "<address>"
}

// configText is a configuration space in hexadecimal, as lspci -xxx shows it. The card's serial number is blanked (Device Serial
// Number, PCI Express Base Specification 6.0 §7.9.3).
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

// hexText is 16 bytes a line, behind their offset.
func hexText(b []byte) string {
	var out strings.Builder
	for at := 0; at < len(b); at += 16 {
		fmt.Fprintf(&out, "%03x: % x\n", at, b[at:min(at+16, len(b))])
	}
	return out.String()
}
