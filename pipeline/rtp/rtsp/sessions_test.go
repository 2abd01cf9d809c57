// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// client is the client's end of a connection.
type client struct {
	net.Conn
	in      *bufio.Reader
	url     string
	session string
	cseq    int
}

func dial(t testing.TB, s *Server, name string) *client {
	t.Helper()
	c, err := net.Dial("tcp", s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{Conn: c, in: bufio.NewReaderSize(c, 1<<16), url: s.URL(name)}
}

// ask sends a request and returns the status and the headers of the answer. It skips packets before the answer.
func (c *client) ask(method, suffix, header string) (status string, h textproto.MIMEHeader, err error) {
	c.cseq++
	if c.session != "" {
		header += "Session: " + c.session + "\r\n"
	}
	if _, err := fmt.Fprintf(c, "%s %s%s RTSP/1.0\r\nCSeq: %d\r\n%s\r\n", method, c.url, suffix, c.cseq, header); err != nil {
		return "", nil, err
	}
	for {
		if b, err := c.in.Peek(1); err != nil {
			return "", nil, err
		} else if b[0] != '$' {
			break
		}
		if _, _, err := c.packet(); err != nil {
			return "", nil, err
		}
	}
	r := textproto.NewReader(c.in)
	if status, err = r.ReadLine(); err != nil {
		return "", nil, err
	}
	if h, err = r.ReadMIMEHeader(); err != nil {
		return "", nil, err
	}
	if n, _ := strconv.Atoi(h.Get("Content-Length")); n > 0 {
		_, err = c.in.Discard(n)
	}
	return status, h, err
}

// packet reads a packet and its channel.
func (c *client) packet() (channel byte, b []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, nil, err
	}
	if head[0] != '$' {
		return 0, nil, fmt.Errorf("not a packet: %q", head)
	}
	b = make([]byte, binary.BigEndian.Uint16(head[2:]))
	_, err = io.ReadFull(c.in, b)
	return head[1], b, err
}

// play sets up the stream with a Transport header and starts playing.
func (c *client) play(t testing.TB, transport string) (answered string) {
	t.Helper()
	status, h, err := c.ask("SETUP", "/trackID=0", "Transport: "+transport+"\r\n")
	if err != nil || status != "RTSP/1.0 200 OK" {
		t.Fatalf("SETUP %s: %s %v", transport, status, err)
	}
	c.session, _, _ = strings.Cut(h.Get("Session"), ";")
	if status, _, err := c.ask("PLAY", "/", ""); err != nil || status != "RTSP/1.0 200 OK" {
		t.Fatalf("PLAY: %s %v", status, err)
	}
	return h.Get("Transport")
}

const overTCP = "RTP/AVP/TCP;unicast;interleaved=0-1"

// frames reads frames of raw video and returns how many of them began with their first packet and had all packets up to
// the marker.
func (c *client) frames(n int) (whole int, err error) {
	began, next := false, uint16(0)
	for done := 0; done < n; {
		channel, b, err := c.packet()
		switch {
		case err != nil:
			return whole, err
		case channel != 0:
			continue
		}
		seq, line, offset := binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[16:]), binary.BigEndian.Uint16(b[18:])
		first := line == 0 && offset == 0
		began = first || began && seq == next
		if next = seq + 1; b[1]>>7 == 1 {
			if done++; began {
				whole++
			}
			began = false
		}
	}
	return whole, nil
}

// eventually waits for a condition, long enough for a slow machine.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal(what)
		}
	}
}

func small(t testing.TB, fps int) *rtptest.Source {
	return rtptest.NewSource(t, rtptest.Format(t, pipeline.UYVY, 160, 120, fps), 0)
}

// TestPassword checks that a client without the password gets neither the description nor a session, and that an
// address reachable by others requires a password.
func TestPassword(t *testing.T) {
	_, server := serve(t, Config{User: "me", Password: "word"}, "raw", send.Config{}, small(t, 30))
	for who, right := range map[string]bool{"": false, "me:wrong@": false, "you:word@": false, "me:word@": true} {
		u, err := base.ParseURL(strings.Replace(server.URL("raw"), "rtsp://", "rtsp://"+who, 1))
		if err != nil {
			t.Fatal(err)
		}
		c := gortsplib.Client{Scheme: u.Scheme, Host: u.Host}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Describe(u); (err == nil) != right {
			t.Errorf("%q: %v", who, err)
		}
		c.Close()
	}
	c := dial(t, server, "raw")
	if status, _, err := c.ask("SETUP", "/trackID=0", "Transport: "+overTCP+"\r\n"); err != nil || status != "RTSP/1.0 401 Unauthorized" {
		t.Errorf("%s %v", status, err)
	}
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		for _, c := range []Config{{}, {User: "me"}, {Password: "word"}} {
			c.Listen = address
			if _, err := Listen(c); !errors.Is(err, ErrPassword) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// TestReadersLeave checks that readers start with a frame's first packet, that everything is released when one leaves
// or disappears, and that impossible requests are refused.
func TestReadersLeave(t *testing.T) {
	sink, server := serve(t, Config{}, "raw", send.Config{}, small(t, 30))
	readers := func() int { return len(sink.Stats().Destinations) }
	for _, leave := range []func(c *client){
		func(c *client) {
			if status, _, err := c.ask("TEARDOWN", "/", ""); err != nil || status != "RTSP/1.0 200 OK" {
				t.Errorf("%s %v", status, err)
			}
		},
		func(c *client) { c.Close() },
	} {
		tcp := dial(t, server, "raw")
		tcp.play(t, overTCP)
		if whole, err := tcp.frames(3); err != nil || whole != 3 {
			t.Errorf("%d of 3 frames are whole: %v", whole, err)
		}
		if status, _, err := tcp.ask("GET_PARAMETER", "/", ""); err != nil || status != "RTSP/1.0 200 OK" {
			t.Errorf("between packets: %s %v", status, err)
		}
		port := rtptest.EvenPorts(t, 1)[0]
		socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			t.Fatal(err)
		}
		udp := dial(t, server, "raw")
		answer := udp.play(t, fmt.Sprintf("RTP/AVP;unicast;client_port=%d-%d", port, port+1))
		b := make([]byte, 2000)
		_, from, err := socket.ReadFromUDPAddrPort(b)
		if want := fmt.Sprintf("server_port=%d-%d", from.Port(), from.Port()+1); err != nil || !strings.Contains(answer, want) {
			t.Errorf("%s, not %s: %v", answer, want, err)
		}
		if ssrc := fmt.Sprintf("ssrc=%08X", binary.BigEndian.Uint32(b[8:])); !strings.Contains(strings.ToUpper(answer), strings.ToUpper(ssrc)) {
			t.Errorf("%s, not %s", answer, ssrc)
		}
		if n := readers(); n != 2 {
			t.Errorf("%d readers", n)
		}
		leave(tcp)
		leave(udp)
		eventually(t, "readers have left and are sent to", func() bool { return readers() == 0 })
		socket.Close()
	}
	for _, transport := range []string{
		"RTP/AVP;unicast;client_port=5001-5002", "RTP/AVP;unicast;client_port=0-1", "RTP/AVP;unicast;client_port=70000-70001",
		"RTP/AVP/TCP;unicast;interleaved=300-301", "RTP/AVP;multicast", "RTP/SAVP;unicast;client_port=5000-5001",
	} {
		if status, _, err := dial(t, server, "raw").ask("SETUP", "/trackID=0", "Transport: "+transport+"\r\n"); err == nil && strings.Contains(status, "200") {
			t.Errorf("%s: %s", transport, status)
		}
	}
	if status, _, err := dial(t, server, "other").ask("DESCRIBE", "", ""); err != nil || status != "RTSP/1.0 404 Not Found" {
		t.Errorf("%s %v", status, err)
	}
	server.Remove("raw")
	if status, _, err := dial(t, server, "raw").ask("DESCRIBE", "", ""); err != nil || status != "RTSP/1.0 404 Not Found" {
		t.Errorf("%s %v", status, err)
	}
}

// TestStalledReaders has 50 readers, of which five pause and one reads nothing. These lose frames; the other 44 lose
// none; the five get whole frames again.
func TestStalledReaders(t *testing.T) {
	long(t)
	const all, stalled, enough = 50, 6, 40
	sink, server := serve(t, Config{}, "raw", send.Config{}, small(t, 10))
	type result struct {
		whole int
		err   error
	}
	results := make(chan result, all)
	var idle []*client
	for i := range all {
		c := dial(t, server, "raw")
		if i < stalled {
			idle = append(idle, c)
		}
		c.play(t, overTCP)
		if i >= stalled {
			go func() {
				whole, err := c.frames(enough)
				results <- result{whole, err}
				_, _ = io.Copy(io.Discard, c.in) // until all have enough
			}()
		}
	}
	for range all - stalled {
		if r := <-results; r.err != nil || r.whole != enough {
			t.Errorf("a reader that reads got %d whole frames of %d: %v", r.whole, enough, r.err)
		}
	}
	slow := map[string]bool{}
	for _, c := range idle {
		slow[c.LocalAddr().String()] = true
	}
	for _, d := range sink.Stats().Destinations {
		if slow[d.Address] != (d.Cut > 0) {
			t.Errorf("stalled %v: %v", slow[d.Address], d)
		}
	}
	for _, c := range idle[1:] {
		go func() {
			whole, err := c.frames(20)
			results <- result{whole, err}
		}()
	}
	for range idle[1:] {
		if r := <-results; r.err != nil || r.whole < 15 {
			t.Errorf("a reader that goes on got %d whole frames of 20: %v", r.whole, r.err)
		}
	}
}

// TestManyConnections checks that 1,000 clients that send requests are answered, each as long as not many others
// follow, and that a reader loses no frame.
func TestManyConnections(t *testing.T) {
	sink, server := serve(t, Config{}, "raw", send.Config{}, small(t, 30))
	reader := dial(t, server, "raw")
	reader.play(t, overTCP)
	go func() { _, _ = io.Copy(io.Discard, reader.in) }()
	for i := range 1000 {
		c := dial(t, server, "raw")
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if status, _, err := c.ask("OPTIONS", "", ""); err != nil || status != "RTSP/1.0 200 OK" {
			t.Fatalf("client %d: %s, %v", i, status, err)
		}
	}
	server.listener.mu.Lock()
	open := len(server.listener.open)
	server.listener.mu.Unlock()
	if open > maxIdle+1 {
		t.Errorf("%d connections are open", open)
	}
	if d := sink.Stats().Destinations; len(d) != 1 || d[0].Cut > 0 || d[0].Frames == 0 {
		t.Errorf("the reader: %+v", d)
	}
}

// TestSilentConnections checks that 140 connections that send nothing, or half a request, keep no other client out, and
// are closed after a while. One that has sent a request is closed after those.
func TestSilentConnections(t *testing.T) {
	_, server := serve(t, Config{}, "raw", send.Config{}, small(t, 30))
	server.listener.mu.Lock()
	server.listener.patience = 2 * time.Second
	server.listener.mu.Unlock()
	asked := dial(t, server, "raw")
	answered := func(c *client) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if status, _, err := c.ask("OPTIONS", "", ""); err != nil || status != "RTSP/1.0 200 OK" {
			t.Fatalf("%s, %v", status, err)
		}
	}
	answered(asked)
	var silent []*client
	for i := range 140 {
		c := dial(t, server, "raw")
		if i%2 == 0 {
			if _, err := c.Write([]byte("OPTIONS * RTSP/1.0\r\nCS")); err != nil && i > maxIdle {
				t.Fatal(err)
			}
		}
		silent = append(silent, c)
	}
	answered(dial(t, server, "raw"))
	answered(asked)
	for i, c := range silent {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still open: %v", i, err)
		}
	}
	answered(asked)
}

// TestGuesses checks that after ten wrong passwords an address is refused, even with the right one.
func TestGuesses(t *testing.T) {
	_, server := serve(t, Config{User: "me", Password: "secret"}, "raw", send.Config{}, small(t, 30))
	describe := func(password string) base.StatusCode {
		t.Helper()
		c := gortsplib.Client{Scheme: "rtsp", Host: server.addr.String()}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		u, err := base.ParseURL(fmt.Sprintf("rtsp://me:%s@%s/raw", password, server.addr))
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := c.Describe(u)
		var bad liberrors.ErrClientBadStatusCode
		if errors.As(err, &bad) {
			return bad.Code
		} else if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	if got := describe("secret"); got != base.StatusOK {
		t.Errorf("the right password: %v", got)
	}
	for i := range 10 {
		if got := describe("wrong"); got != base.StatusUnauthorized {
			t.Errorf("wrong password %d: %v", i, got)
		}
	}
	for _, password := range []string{"wrong", "secret"} {
		if got := describe(password); got != base.StatusServiceUnavailable {
			t.Errorf("%s after ten wrong passwords: %v", password, got)
		}
	}
}

// FuzzRequests sends arbitrary data. The server must answer or close the connection, and answer others.
func FuzzRequests(f *testing.F) {
	log := slog.New(slog.DiscardHandler)
	server, err := Listen(Config{Listen: "127.0.0.1:0", Logger: log})
	if err != nil {
		f.Fatal(err)
	}
	sink, err := send.New(send.Config{Logger: log}, rtptest.Format(f, pipeline.UYVY, 160, 120, 30))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		server.Close()
		if err := sink.Close(); err != nil {
			f.Error(err)
		}
	})
	server.Add("raw", sink)
	for _, seed := range []string{
		"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "$\x00\xff\xffabc", "DESCRIBE rtsp://h/raw RTSP/1.0\r\nCSeq: 1\r\n\r\n",
		"SETUP rtsp://h/raw/trackID=0 RTSP/1.0\r\nCSeq: 1\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n\r\nPLAY rtsp://h/raw/ RTSP/1.0\r\nCSeq: 2\r\n\r\n",
		"SETUP rtsp://h/raw/trackID=9 RTSP/1.0\r\nCSeq: 1\r\nTransport: RTP/AVP;unicast;client_port=1-0\r\n\r\n",
		"GET /raw HTTP/1.1\r\nX-Sessioncookie: a\r\nAccept: application/x-rtsp-tunnelled\r\n\r\n",
		"PLAY rtsp://h/raw RTSP/1.0\r\nCSeq: 1\r\nSession: 1\r\nContent-Length: 99999999999\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := dial(t, server, "raw")
		_ = c.SetDeadline(time.Now().Add(time.Second)) // one half of a tunnel is closed later
		_, _ = c.Write(b)
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(c.in, 1<<20))
		c.Close()
		other := dial(t, server, "raw")
		defer other.Close()
		_ = other.SetDeadline(time.Now().Add(time.Minute))
		if status, _, err := other.ask("DESCRIBE", "", ""); err != nil || status != "RTSP/1.0 200 OK" {
			t.Fatalf("%s %v", status, err)
		}
	})
}
