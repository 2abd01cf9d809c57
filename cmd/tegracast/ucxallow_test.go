// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// TestUCXAllows checks that an output is visible only to the addresses that may receive it, that an output open to all
// causes a warning, and that the page names who may receive each.
func TestUCXAllows(t *testing.T) {
	at, web := freePort(t), freePort(t)
	_, all, err := net.SplitHostPort(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	serve := over(t, "tcp", "serve", "--config", programtest.Write(t, "ucx.yaml", fmt.Sprintf(`
web: {listen: %q}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
outputs:
  - {name: mine, from: camera, ucx: {listen: %[2]q, allow: [127.0.0.0/8]}}
  - {name: others, from: camera, ucx: {listen: %[2]q, allow: [192.0.2.0/24, "2001:db8::/32"]}}
  - {name: everyones, from: camera, ucx: {listen: "0.0.0.0:%[3]s"}}
`, web, at, all)))
	listens(t, serve, at)
	listens(t, serve, web)
	answer, err := programtest.Client.Get("http://" + web + "/api/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	answer.Body.Close()
	for _, want := range []string{
		"frames by UCX, which 127.0.0.0/8 may take", "frames by UCX, which 192.0.2.0/24, 2001:db8::/32 may take",
		"frames by UCX, which everyone who reaches 0.0.0.0:" + all + " may take",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the status does not say %q: %s", want, page)
		}
	}
	mine := over(t, "tcp", "receive", "--duration", "1s", "--ucx", at) // the only output visible to this machine
	if status := mine.Wait(t, time.Minute); status != exitOK {
		t.Errorf("status %d: %s%s", status, mine.Out.String(), mine.Err.String())
	}
	others := over(t, "tcp", "receive", "--duration", "1s", "--ucx", at, "--stream", "others")
	if status := others.Wait(t, time.Minute); status != exitFailure || !strings.Contains(others.Err.String(), `no stream "others", only: mine`) {
		t.Errorf("status %d: %s%s", status, others.Out.String(), others.Err.String())
	}
	serve.Stop(t)
	if log := serve.Err.String(); strings.Count(log, "list those who may in ucx.allow") != 1 || !strings.Contains(log, "output=everyones") {
		t.Error(log)
	}
}
