// SPDX-License-Identifier: Apache-2.0

package guesses

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestGuesses: after ten wrong passwords an address has to wait for the rest of a minute, and others need not. The log has one line a minute.
func TestGuesses(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	var g Guesses
	const client, neighbour, other = "[2001:db8::1]:1000", "[2001:db8::2]:2000", "192.0.2.1:1000"
	now := time.Now()
	for i := range most {
		if wait := g.Wait(client, now); wait > 0 {
			t.Fatalf("waits %v after %d wrong passwords", wait, i)
		}
		g.Failed(client, "web", now, log)
	}
	if wait := g.Wait(neighbour, now.Add(time.Second)); wait != span-time.Second {
		t.Errorf("waits %v", wait)
	}
	if wait := g.Wait(other, now); wait > 0 {
		t.Errorf("another address waits %v", wait)
	}
	if wait := g.Wait(client, now.Add(span+time.Second)); wait > 0 {
		t.Errorf("waits %v after a minute", wait)
	}
	g.Failed(client, "web", now.Add(2*span), log)
	if n := g.failed[Site(client)].count; n != 1 {
		t.Errorf("%d wrong passwords are remembered, want that of the last minute", n)
	}
	if n := strings.Count(said.String(), "web: a wrong password"); n != 2 {
		t.Errorf("the log:\n%s", &said)
	}
	for i := range 5 * addresses {
		g.Failed(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), "web", now, log)
		if len(g.failed) > addresses {
			t.Fatalf("%d addresses are remembered", len(g.failed))
		}
	}
}

func TestSite(t *testing.T) {
	for client, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7", "[::ffff:192.0.2.7]:80": "192.0.2.7", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::", "x": "invalid IP",
	} {
		if got := Site(client).String(); got != want {
			t.Errorf("%s: %s", client, got)
		}
	}
}
