// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// linkLocalStreams streams between two interfaces of a network namespace to a group and to an address of the link, and
// receives both. $1 is the program. It ends when both receivers have ended.
const linkLocalStreams = `
ip link set dev lo up; ip link add name va type veth peer name vb; ip link set dev va up; ip link set dev vb up
until ip -6 -o addr show dev vb scope link | grep -v tentative | grep -q fe80; do sleep .1; done
at=$(ip -6 -o addr show dev vb scope link | awk '{print $4}' | cut -d/ -f1)
cat > c.yaml <<END
memory: host
web: {listen: none}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 64, height: 16, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs:
  - {name: group, rtp: {payload: raw, checksum: true, interface: va, destinations: ["[ff02::7777]:5004"]}}
  - {name: address, rtp: {payload: raw, checksum: true, destinations: ["[$at%va]:5014"]}}
END
$1 serve --config c.yaml --sdp-dir . --quiet & serve=$!
until [ -s group.sdp ] && [ -s address.sdp ]; do kill -0 $serve || exit 1; sleep .1; done
$1 probe group.sdp --interface vb --duration 1500ms & probe=$!
$1 probe address.sdp --interface vb --duration 1500ms; second=$?
wait $probe; first=$?
kill $serve; wait $serve
exit $((first + second))
`

// TestLinkLocalStreams checks that --interface names the link of an address that is ambiguous without one (RFC 4007 §6).
func TestLinkLocalStreams(t *testing.T) {
	programtest.NotShort(t)
	if os.Getuid() != 0 {
		t.Skip("NEEDS root, to make a network namespace")
	}
	c := exec.CommandContext(t.Context(), "unshare", "--net", "bash", "-c", linkLocalStreams, "bash", programtest.Program(t))
	c.Dir = t.TempDir()
	out, err := c.CombinedOutput()
	if err != nil || strings.Count(string(out), ": clean\n") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
