// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// apiScript gets the service's configuration, or changes it to a file, and prints the answer. Debian's base has no HTTP
// client.
const apiScript = `key=$(cat /var/lib/tegracast/web.token)
exec 3<>/dev/tcp/127.0.0.1/8080
file=${2:-/dev/null}
{ printf '%s /api/v1/config HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n' "$1" "$key" "$(stat -c %s "$file")"; cat "$file"; } >&3
cat <&3
`

func keptFiles(t *testing.T) map[string]string {
	return map[string]string{"/root/api": programtest.Write(t, "api", apiScript)}
}

// keeps changes the configuration by the API. The unit cannot write to /etc. The state folder has the change, also after
// a restart, and config diff shows it, until the API resets it.
func (a *installed) keeps(t *testing.T) {
	const installed, kept = "/etc/tegracast/tegracast.yaml", "/var/lib/tegracast/tegracast.yaml"
	says := func(text string) string {
		return "(for i in $(seq 300); do bash /root/api GET | grep -q '" + text + "' && exit 0; sleep .1; done; exit 1)"
	}
	a.must(t, "sha256sum "+installed+" > /root/sum; sed 's/- name: raw/&\\n    rate: 5/' "+installed+" > /root/changed")
	a.must(t, says(`"kept":false`))
	a.is(t, "stat -c '%n %U %G %a' /var/lib/tegracast/web.token /run/tegracast/web.sock; journalctl -b -u tegracast | grep -c $(cat /var/lib/tegracast/web.token)",
		"/var/lib/tegracast/web.token tegracast tegracast 600\n/run/tegracast/web.sock tegracast tegracast 660\n0\n")
	a.must(t, "bash /root/api PUT /root/changed > /root/answer; grep -q 'outputs.raw..rate' /root/answer || { cat /root/answer; exit 1; }")
	a.is(t, "cmp /root/changed "+kept+"; stat -c '%U %a' "+kept+"; sha256sum -c --quiet /root/sum; "+
		"tegracast config diff | grep '^[+-] '; tegracast config diff >/dev/null; echo $?", "tegracast 600\n+    rate: 5\n1\n")
	a.must(t, "systemctl restart tegracast; "+says(`"kept":true`))
	a.must(t, "bash /root/api DELETE > /root/answer; "+says(`"kept":false`))
	a.is(t, "tegracast config diff >/dev/null; echo $?; ls /var/lib/tegracast/*.yaml*; rm "+kept+".old", "0\n"+kept+".old\n")
	a.back(t, "with the installed configuration", time.Now())
}
