// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// TestAlone: a stream to where another socket sends is refused with who that is; others are not.
func TestAlone(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("udp", net.JoinHostPort(host, "45678"))
		if err != nil {
			t.Logf("%s: %v", host, err) // a machine without IPv6
			continue
		}
		defer c.Close()
		at := func(port string) *config.Appliance {
			to := &config.RTP{Destinations: []string{"camera.example.org:45678", net.JoinHostPort(host, port)}}
			return &config.Appliance{Outputs: []config.Output{{Name: "front", Kind: to}}}
		}
		want := fmt.Sprintf(`output "front": process %d (`, os.Getpid())
		if err := Alone(at("45678")); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "stop it, or") {
			t.Errorf("%s: %v, want %s", host, err, want)
		}
		if err := Alone(at("45676")); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}
