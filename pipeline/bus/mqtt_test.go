// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/report"
)

// listens serves connections until the test ends, and returns the address.
func listens(t *testing.T, serve func(io.ReadWriter)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// answers is a server that answers the first bytes of a client with first and its next ones with then. If then is
// empty, it closes the connection after its first answer.
func answers(t *testing.T, first, then string) *broker {
	t.Helper()
	return &broker{scheme: "mqtt", address: listens(t, func(c io.ReadWriter) {
		b := make([]byte, 4096)
		_, _ = c.Read(b)
		_, _ = io.WriteString(c, first)
		if then == "" {
			return
		}
		_, _ = c.Read(b)
		_, _ = io.WriteString(c, then)
		_, _ = io.Copy(io.Discard, c)
	})}
}

// TestBrokersSayNonsense checks that a reply that breaks the protocol ends the link and counts no message as published.
func TestBrokersSayNonsense(t *testing.T) {
	const welcome = "\x20\x02\x00\x00"
	for name, tt := range map[string]struct{ first, then, want string }{
		"refused":       {"\x20\x02\x00\x05", "", "ot Authorized"},
		"code":          {"\x20\x02\x00\x63", "", "code 99"},
		"HTTP":          {"HTTP/1.0 400 Bad Request\r\n\r\n", "", errNoBroker.Error()},
		"short":         {"\x20\x02\x00", "", "does not answer"},
		"publishes":     {welcome, "\x30\x04\x00\x01xy", errNoBroker.Error()},
		"long packet":   {welcome, "\x40\xff\xff\xff\x7f", errNoBroker.Error()},
		"never sent":    {welcome, "\x40\x02\x77\x77", ""},
		"identifier 0":  {welcome, "\x40\x02\x00\x00", ""},
		"pings and ack": {welcome, "\xd0\x00\x40\x02\x00\x01\xd0\x00", "published"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, stop := runs(t, Config{Server: Server{URL: answers(t, tt.first, tt.then).url()}, Board: "a", Folder: t.TempDir()})
			if err := p.Results("numbers", report.Report{}); err != nil {
				t.Fatal(err)
			}
			switch tt.want {
			case "":
				await(t, "link", func() bool { return p.Stats().Connected })
				time.Sleep(100 * time.Millisecond)
			case "published":
				await(t, "acknowledgement", func() bool { return p.Stats().Published == 1 })
			default:
				await(t, tt.want, func() bool { return strings.Contains(p.Stats().Trouble, tt.want) })
			}
			await(t, "count", func() bool { st := p.Stats(); return int(st.Published)+st.Waiting == 1 }) // updated after a round
			if st := p.Stats(); (tt.want == "published") != (st.Published == 1) {
				t.Errorf("%+v", st)
			}
			stop()
		})
	}
}

// TestIdleLink checks that neither side gives up a link on which nothing is published for a while.
func TestIdleLink(t *testing.T) {
	if !long() {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	everyBroker(t, func(t *testing.T, b *broker) {
		b.start(t)
		p, _ := runs(t, Config{Server: Server{URL: b.url()}, Board: "a", Folder: t.TempDir()})
		await(t, "link", func() bool { return p.Stats().Connected })
		time.Sleep(3 * keepAlive)
		if err := p.Results("numbers", report.Report{}); err != nil {
			t.Fatal(err)
		}
		await(t, "acknowledgement", func() bool { return p.Stats().Published == 1 })
		if st := p.Stats(); st.Links != 1 {
			t.Errorf("%+v", st)
		}
	})
}
