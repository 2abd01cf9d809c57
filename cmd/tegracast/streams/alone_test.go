// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// senderEnv makes the test program a process that sends to an address until its standard input ends.
const senderEnv = "TEGRACAST_TEST_SENDS_TO"

// TestMain runs that process, or the tests.
func TestMain(m *testing.M) {
	to := os.Getenv(senderEnv)
	if to == "" {
		os.Exit(m.Run())
	}
	c, err := net.Dial("udp", to)
	if err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	_ = c.Close()
}

// sendFrom starts another process that sends to an address, and returns its process number, or 0 if this machine has no
// such address.
func sendFrom(t *testing.T, to string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), senderEnv+"="+to)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if n, _ := out.Read(make([]byte, 8)); n == 0 {
		return 0
	}
	return cmd.Process.Pid
}

// TestAlone checks that a stream to a destination of another process is refused with that process's name, and that
// streams of this process and others are accepted.
func TestAlone(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		at := func(port string) *config.Appliance {
			to := &config.RTP{Destinations: []string{"camera.example.org:45678", net.JoinHostPort(host, port)}}
			return &config.Appliance{Outputs: []config.Output{{Name: "front", Kind: to}}}
		}
		own, err := net.Dial("udp", net.JoinHostPort(host, "45676"))
		pid := sendFrom(t, net.JoinHostPort(host, "45678"))
		if err != nil || pid == 0 {
			t.Logf("%s: %v", host, err) // a machine without IPv6
			continue
		}
		defer own.Close()
		want := fmt.Sprintf(`output "front": process %d (`, pid)
		if err := Alone(at("45678")); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "stop it, or") {
			t.Errorf("%s: %v, want %s", host, err, want)
		}
		for _, port := range []string{"45676", "45674"} {
			if err := Alone(at(port)); err != nil {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
}
