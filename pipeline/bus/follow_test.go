// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestOnlyTheConfiguredServer checks that servers advertised by a NATS server that refuses the user are not contacted
// and given the token.
func TestOnlyTheConfiguredServer(t *testing.T) {
	asked := make(chan string, 4)
	listen := func(each func(net.Conn)) string {
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
				each(c)
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	const info = `INFO {"server_id":"x","version":"2.10.0","proto":1,"headers":true,"max_payload":1048576,"auth_required":true%s}` + "\r\n"
	stranger := listen(func(c net.Conn) {
		fmt.Fprintf(c, info, "")
		said, _ := bufio.NewReader(c).ReadString('\n')
		asked <- said
	})
	named := listen(func(c net.Conn) {
		fmt.Fprintf(c, info, fmt.Sprintf(`,"connect_urls":[%q]`, stranger))
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "-ERR 'Authorization Violation'\r\n")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _, err := Boards(ctx, Server{URL: "nats://" + named, Token: "a word"})
	if err == nil || !strings.Contains(err.Error(), "Authorization") {
		t.Error(err)
	}
	select {
	case said := <-asked:
		t.Errorf("the other server is asked: %s", said)
	default:
	}
}
