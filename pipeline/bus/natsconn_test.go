// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const greeting = `INFO {"server_id":"X","version":"2.10.0","proto":1,"headers":true,"max_payload":1048576}` + "\r\n"

// hostile starts a NATS server that sends first, and says to each subscriber: %[1]s is the subject, %[2]s the
// subscription.
func hostile(t *testing.T, first, says string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, first)
				for lines := bufio.NewScanner(c); lines.Scan(); {
					switch f := strings.Fields(lines.Text()); {
					case len(f) > 0 && f[0] == "PING":
						_, _ = io.WriteString(c, "PONG\r\n")
					case len(f) > 2 && f[0] == "SUB":
						fmt.Fprintf(c, says, strings.ReplaceAll(f[1], "*", "x"), f[2])
					}
				}
			}()
		}
	}()
	return "nats://" + l.Addr().String()
}

// TestHostileServer checks that a NATS server can at most break the link, and cannot use more memory than a message may
// have.
func TestHostileServer(t *testing.T) {
	for name, tt := range map[string]struct{ first, says string }{
		"a length at the end of the numbers": {greeting, "MSG %s %s 9223372036854775807\r\nabc"},
		"the same with headers":              {greeting, "HMSG %s %s 9223372036854775800 9223372036854775807\r\nabc"},
		"in small letters":                   {greeting, "msg %s %s 9223372036854775807\r\nabc"},
		"behind a return":                    {greeting, "MSG %s %s 9223372036854775807\r5\r\nabc"},
		"a length beyond the numbers":        {greeting, "MSG %s %s 99999999999999999999\r\nabc"},
		"2 GB":                               {greeting, "MSG %s %s 2000000000\r\n" + strings.Repeat("x", 1<<20)},
		"no length":                          {greeting, "MSG %s %s -5\r\nabc"},
		"a line without an end":              {greeting, "INFO {%s%s" + strings.Repeat("x", mostLine)},
		"a greeting without an end":          {"INFO {" + strings.Repeat("x", mostLine), ""},
		"more than a greeting":               {greeting + "+OK\r\nMSG", ""},
		"no greeting":                        {"+OK\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			lost := make(chan error, 10)
			c := Config{Server: Server{URL: hostile(t, tt.first, tt.says)}, Board: "b", Logger: slog.New(slog.DiscardHandler)}
			l, err := dialNATS(ctx, c, calls{lost: func(err error) { lost <- err }})
			if err != nil { // while it asks for the stream
				return
			}
			defer l.close()
			for {
				if err := l.flush(time.Now()); err != nil {
					return
				}
				select {
				case <-lost:
					return
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
					t.Fatal("the link lasts")
				}
			}
		})
	}
}

// parts is a reader that returns its data in parts.
type parts struct {
	net.Conn
	io.Reader
}

func (p parts) Read(b []byte) (int, error) { return p.Reader.Read(b) }

// TestWhatALibraryReads checks the limits of lines and messages, whose data may look like lines.
func TestWhatALibraryReads(t *testing.T) {
	inside := "MSG a 1 99999999999\r\n"
	for said, good := range map[string]bool{
		greeting + "PING\r\n+OK\r\n-ERR 'x'\r\n":                                          true,
		fmt.Sprintf("MSG a 1 %d\r\n%s\r\nPING\r\nMSG a 1 0\r\n\r\n", len(inside), inside): true,
		fmt.Sprintf("HMSG\ta 1  reply %d %d \r\n%s\r\n", 2, len(inside), inside):          true,
		fmt.Sprintf("MSG a 1 %d\r\n%s\r\n%s", len(inside), inside, inside):                false,
		fmt.Sprintf("MSG a 1 %d\r\n", mostSaid):                                           true,
		fmt.Sprintf("MSG a 1 %d\r\n", mostSaid+1):                                         false,
		"MSG\r\n": false, "MSG a 1 x\r\n": false, "hMsG a 1 4294967296\n": false, "MSG a 1 1\r1\r\n": false, "\r\n\n": true,
		strings.Repeat("x", mostLine) + "\n": true, strings.Repeat("x", mostLine+1): false,
	} {
		for _, r := range []io.Reader{strings.NewReader(said), iotest.OneByteReader(strings.NewReader(said))} {
			got, err := io.ReadAll(&natsConn{Conn: parts{Reader: r}})
			if good != (err == nil) || err != nil && !errors.Is(err, errBeyond) || good && string(got) != said {
				t.Errorf("%.60q: %d bytes, %v", said, len(got), err)
			}
		}
	}
}

// FuzzNATSConn checks that it does not matter in which parts the data arrive.
func FuzzNATSConn(f *testing.F) {
	for _, seed := range []string{greeting, "MSG a 1 3\r\nabc\r\nPING\r\n", "HMSG a 1 2 99999999999\r\n", "MSG a 1 1\r1\r\n", "MSG a 1 0\n\n\n"} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, said []byte, part int) {
		whole, pieces := &natsConn{Conn: parts{}}, &natsConn{Conn: parts{}}
		want := whole.follow(said)
		var got error
		for rest := said; len(rest) > 0 && got == nil; {
			n := min(len(rest), 1+max(0, part)%7)
			got = pieces.follow(rest[:n])
			rest = rest[n:]
		}
		if (want == nil) != (got == nil) || want == nil && (whole.data != pieces.data || !bytes.Equal(whole.line, pieces.line)) {
			t.Errorf("%q: %v, %d, %q; in parts %v, %d, %q", said, want, whole.data, whole.line, got, pieces.data, pieces.line)
		}
	})
}
