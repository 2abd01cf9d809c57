// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/pipeline/resolve"
	"github.com/tegracast/tegracast/pipeline/resolve/resolvetest"
)

func TestAddrPort(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"192.0.2.7:5004", "192.0.2.7:5004"},
		{"[::ffff:192.0.2.7]:5004", "192.0.2.7:5004"},
		{"[2001:db8::7]:5004", "[2001:db8::7]:5004"},
		{"[fe80::1%lo]:5004", "[fe80::1%lo]:5004"},
		{"localhost:5004", "127.0.0.1:5004"},
		{"127.0.0.1:domain", "127.0.0.1:53"},
	} {
		got, err := resolve.AddrPort(t.Context(), "udp", tt.text)
		if err != nil || got != netip.MustParseAddrPort(tt.want) {
			t.Errorf("%s: %v, %v, want %s", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{"192.0.2.7", "host.invalid:5004", "127.0.0.1:no-such-service"} {
		if got, err := resolve.AddrPort(t.Context(), "udp", text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestSilentNameServer checks that a lookup ends at its limit, and with its context, and that a name without an answer is
// not looked up again at once.
func TestSilentNameServer(t *testing.T) {
	asked := resolvetest.Silence(t)
	began := time.Now()
	_, err := resolve.AddrPort(t.Context(), "udp", "viewer:5004")
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "has not answered within 2s") || took < resolve.Limit {
		t.Errorf("after %v: %v", took, err)
	}
	for len(asked) > 0 {
		<-asked
	}
	if _, again := resolve.AddrPort(t.Context(), "udp", "viewer:5006"); again == nil || again.Error() != err.Error() || len(asked) > 0 {
		t.Errorf("%v instead of %v; %d questions", again, err, len(asked))
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range asked {
			cancel()
		}
	}()
	var dns *net.DNSError
	if _, err := resolve.AddrPort(ctx, "udp", "another:5004"); !errors.As(err, &dns) || !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Error(err)
	}
}

// TestFollow checks that Follow looks every 30 s until its context ends.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 91*time.Second)
		defer cancel()
		looks, began := 0, time.Now()
		resolve.Follow(ctx, func() { looks++ })
		if took := time.Since(began); looks != 3 || took != 91*time.Second {
			t.Errorf("%d looks in %v", looks, took)
		}
	})
}
