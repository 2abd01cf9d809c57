// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// strictly sends a request with headers, one in each line, and checks the answer against the grammar of RFC 2326 §7 and
// for the headers that its status needs. It skips packets before the answer, and returns status, headers and body.
func (c *client) strictly(t *testing.T, method, target string, header ...string) (status int, h map[string][]string, body string) {
	t.Helper()
	c.cseq++
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "%s %s RTSP/1.0\r\nCSeq: %d\r\n", method, target, c.cseq)
	for _, line := range append(header, "") {
		fmt.Fprintf(c, "%s\r\n", line)
	}
	status, h, body = c.strictAnswer(t)
	if cseq := h["CSeq"]; len(cseq) != 1 || cseq[0] != strconv.Itoa(c.cseq) {
		t.Errorf("%s: CSeq %q, want %d", method, cseq, c.cseq)
	}
	return status, h, body
}

var (
	statusLine = regexp.MustCompile(`^RTSP/1\.0 ([1-5][0-9][0-9]) [ -~]+\r\n$`)
	headerLine = regexp.MustCompile("^([-A-Za-z]+): ([ -~]*)\r\n$")
	required   = map[int]map[string]*regexp.Regexp{
		401: {"WWW-Authenticate": regexp.MustCompile(`^Digest realm="[^"]+", nonce="[^"]+", algorithm=(MD5|SHA-256), qop="auth"(, stale=true)?$`)},
		405: {"Allow": nil}, 455: {"Allow": nil}, 551: {"Unsupported": nil},
	}
)

func (c *client) strictAnswer(t *testing.T) (status int, h map[string][]string, body string) {
	t.Helper()
	for {
		b, err := c.in.Peek(1)
		if err != nil {
			t.Fatal(err)
		}
		if b[0] != '$' {
			break
		}
		if _, _, err := c.packet(); err != nil {
			t.Fatal(err)
		}
	}
	line, err := c.in.ReadString('\n')
	m := statusLine.FindStringSubmatch(line)
	if err != nil || m == nil {
		t.Fatalf("%q is no status line: %v", line, err)
	}
	status, _ = strconv.Atoi(m[1])
	for h = map[string][]string{}; ; {
		line, err := c.in.ReadString('\n')
		if line == "\r\n" {
			break
		}
		m := headerLine.FindStringSubmatch(line)
		if err != nil || m == nil {
			t.Fatalf("%q is no header: %v", line, err)
		}
		h[m[1]] = append(h[m[1]], m[2])
	}
	for name, form := range required[status] {
		if len(h[name]) == 0 || form != nil && slices.ContainsFunc(h[name], func(v string) bool { return !form.MatchString(v) }) {
			t.Errorf("status %d with %s: %q", status, name, h[name])
		}
	}
	if n := strings.Join(h["Content-Length"], ","); n != "" {
		size, err := strconv.Atoi(n)
		b := make([]byte, size)
		if _, rerr := io.ReadFull(c.in, b); err != nil || rerr != nil {
			t.Fatal(err, rerr)
		}
		body = string(b)
	}
	return status, h, body
}

// state brings a client into a state of RFC 2326 appendix A.
func (c *client) state(t *testing.T, state string) {
	t.Helper()
	need := func(method, target string, header ...string) map[string][]string {
		t.Helper()
		status, h, _ := c.strictly(t, method, target, header...)
		if status != 200 {
			t.Fatalf("%s: %d", method, status)
		}
		return h
	}
	if state == "init" {
		return
	}
	h := need("SETUP", c.url+"/trackID=0", "Transport: "+overTCP)
	c.session, _, _ = strings.Cut(strings.Join(h["Session"], ","), ";")
	switch state {
	case "playing":
		need("PLAY", c.url, "Session: "+c.session)
	case "paused":
		need("PLAY", c.url, "Session: "+c.session)
		need("PAUSE", c.url, "Session: "+c.session)
	}
}

// answers are the headers that successful answers must have, with their grammar.
var answers = map[string]map[string]*regexp.Regexp{
	"OPTIONS":  {"Public": regexp.MustCompile(`^[A-Z_]+(, [A-Z_]+)+$`)},
	"DESCRIBE": {"Content-Type": regexp.MustCompile(`^application/sdp$`), "Content-Base": regexp.MustCompile(`^rtsp://[^@ ]+/$`)},
	"SETUP":    {"Transport": regexp.MustCompile(`^RTP/AVP(/TCP)?;`), "Session": regexp.MustCompile(`^[A-Za-z0-9]{8,};timeout=[0-9]+$`)},
	"PLAY":     {"Session": regexp.MustCompile(`^[A-Za-z0-9]{8,};timeout=[0-9]+$`), "Range": regexp.MustCompile(`^npt=now-$`)},
}

// TestEveryRequestInEveryState sends each method in each state, with each form of the Session header, and compares the
// answers with RFC 2326. The connection must stay usable.
func TestEveryRequestInEveryState(t *testing.T) {
	_, server := serve(t, Config{}, "raw", send.Config{}, small(t, 60))
	for _, method := range []string{
		"OPTIONS", "DESCRIBE", "SETUP", "PLAY", "PAUSE", "TEARDOWN", "GET_PARAMETER", "SET_PARAMETER", "ANNOUNCE", "RECORD", "REDIRECT", "CHARGE",
	} {
		for _, state := range []string{"init", "ready", "playing", "paused"} {
			for _, session := range []string{"none", "right", "with parameters", "wrong"} {
				t.Run(method+" "+state+" "+session, func(t *testing.T) {
					c := dial(t, server, "raw")
					c.state(t, state)
					var header []string
					switch {
					case method == "SETUP":
						header = []string{"Transport: " + overTCP}
					case method == "DESCRIBE":
						header = []string{"Accept: application/sdp"}
					}
					switch session {
					case "right":
						header = append(header, "Session: "+c.session)
					case "with parameters":
						header = append(header, "Session: "+c.session+";timeout=25")
					case "wrong":
						header = append(header, "Session: nonsense")
					}
					if state == "init" && (session == "right" || session == "with parameters") {
						return // there is none
					}
					want := 200
					needs := method == "PLAY" || method == "PAUSE" || method == "TEARDOWN"
					if slices.Contains([]string{"ANNOUNCE", "RECORD", "REDIRECT", "CHARGE"}, method) {
						want = 501
					}
					if session == "wrong" || needs && session == "none" {
						want = max(want, 454)
					}
					if want == 200 && method == "SETUP" && state == "playing" {
						want = 455
					}
					status, h, body := c.strictly(t, method, c.url, header...)
					if session == "wrong" && want == 501 && status == 454 {
						want = 454 // both are true
					}
					if status != want {
						t.Errorf("%d, want %d", status, want)
					}
					for name, form := range answers[method] {
						if status == 200 && (len(h[name]) != 1 || !form.MatchString(h[name][0])) {
							t.Errorf("%s: %q", name, h[name])
						}
					}
					if method == "DESCRIBE" && status == 200 && !strings.HasPrefix(body, "v=0\r\n") {
						t.Errorf("description %q", body)
					}
					if status, _, _ := c.strictly(t, "OPTIONS", "*"); status != 200 {
						t.Errorf("after that: %d", status)
					}
				})
			}
		}
	}
}

// TestRequests checks answers to requests that differ in other ways.
func TestRequests(t *testing.T) {
	_, server := serve(t, Config{}, "raw", send.Config{}, small(t, 60))
	c := dial(t, server, "raw")
	const tcp = "Transport: " + overTCP
	for _, tt := range []struct {
		method, suffix string
		header         []string
		want           int
	}{
		{"OPTIONS", "", []string{"Require: implicit-play"}, 551},
		{"DESCRIBE", "", []string{"Require: www.onvif.org/ver20/backchannel"}, 551},
		{"DESCRIBE", "", []string{"Accept: text/html"}, 406},
		{"DESCRIBE", "x", nil, 404},
		{"SETUP", "x", []string{tcp}, 404},
		{"SETUP", "/trackID=1", []string{tcp}, 404},
		{"SETUP", "", nil, 461},
		{"SETUP", "", []string{"Transport: MP2T/H2221/UDP;unicast;client_port=6000-6001"}, 461},
		{"SETUP", "", []string{"Transport: RTP/AVP/TCP;unicast;interleaved=0-1;mode=record"}, 461},
		{"SETUP", "", []string{"Transport: RTP/AVP;multicast"}, 461},
		{"SETUP", "", []string{"Transport: RTP/AVP;unicast;client_port=6001-6002"}, 461},
		{"SETUP", "", []string{"Transport: x-real-rdt/tcp;client_port=6000,RTP/AVP;unicast;client_port=6001-6002," + overTCP}, 200},
		{"SETUP", "", []string{"Transport: MP2T/H2221/UDP;unicast;client_port=6000-6001", "Transport: RTP/AVP/TCP;unicast"}, 200},
		{"GET_PARAMETER", "", []string{"Content-Type: text/parameters", "Content-Length: 8", "", "jitter"}, 451},
		{"SET_PARAMETER", "", []string{"Content-Type: text/parameters", "Content-Length: 9", "", "ping: 1"}, 451},
		{"PLAY", "", []string{"Session: $", "Range: npt=10-20", "Scale: 2.0"}, 200},
		{"PLAY", "x", []string{"Session: $"}, 404},
		{"TEARDOWN", "x", []string{"Session: $"}, 404},
		{"TEARDOWN", "/trackID=0", []string{"Session: $"}, 200},
	} {
		for i, line := range tt.header {
			tt.header[i] = strings.Replace(line, "$", c.session, 1)
		}
		status, h, _ := c.strictly(t, tt.method, c.url+tt.suffix, tt.header...)
		if status != tt.want {
			t.Errorf("%s %s %q: %d, want %d", tt.method, tt.suffix, tt.header, status, tt.want)
		}
		if s := h["Session"]; len(s) == 1 {
			c.session, _, _ = strings.Cut(s[0], ";")
		}
	}
}

// TestLines checks requests whose lines are written in other ways.
func TestLines(t *testing.T) {
	_, server := serve(t, Config{}, "raw", send.Config{}, small(t, 60))
	for text, want := range map[string][]int{
		"OPTIONS * RTSP/1.0\nCSeq: 1\n\n":                                                    {200},
		"\r\n\r\nOPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n":                                      {200},
		"OPTIONS * RTSP/1.0\r\ncseq:1\r\nX-Long: a,\r\n b\r\n\r\n":                           {200},
		"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\nOPTIONS * RTSP/1.0\r\nCSeq: 2\r\n\r\n":         {200, 200},
		"RTSP/1.0 200 OK\r\nCSeq: 5\r\n\r\nOPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n":            {200},
		"OPTIONS * RTSP/2.0\r\nCSeq: 1\r\n\r\nOPTIONS * RTSP/1.0\r\nCSeq: 2\r\n\r\n":         {505, 200},
		"OPTIONS * RTSP/1.0\r\n\r\nOPTIONS * RTSP/1.0\r\nCSeq: 2\r\n\r\n":                    {400, 200},
		"DESCRIBE http://h/raw RTSP/1.0\r\nCSeq: 1\r\n\r\n":                                  {400},
		"DESCRIBE * RTSP/1.0\r\nCSeq: 1\r\n\r\n":                                             {400},
		"options * RTSP/1.0\r\nCSeq: 1\r\n\r\n":                                              {501},
		"OPTIONS *\r\n\r\n":                                                                  {400, 0},
		"OPTIONS * RTSP/1.0\r\nno header\r\n\r\n":                                            {400, 0},
		"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: -1\r\n\r\n":                        {400, 0},
		"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 99999999\r\n\r\n":                  {413, 0},
		"OPTIONS " + strings.Repeat("x", maxMessage) + " RTSP/1.0\r\nCSeq: 1\r\n\r\n":        {413, 0},
		"$\x00\x00\x03abc$\x07\x00\x00OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n":                 {200},
		"GET_PARAMETER * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 2\r\n\r\n\r\nOPTIONS * RTSP": {200},
	} {
		c := dial(t, server, "raw")
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		for _, status := range want {
			if status == 0 { // the end
				if _, err := c.in.ReadByte(); err == nil {
					t.Errorf("%.60q: the connection stays open", text)
				}
				continue
			}
			if got, _, _ := c.strictAnswer(t); got != status {
				t.Errorf("%.60q: %d, want %d", text, got, status)
			}
		}
	}
	c := dial(t, server, "raw")
	fmt.Fprint(c, "GET /raw HTTP/1.0\r\nAccept: application/x-rtsp-tunnelled\r\nX-Sessioncookie: a\r\n\r\n")
	if line, err := c.in.ReadString('\n'); err != nil || line != "HTTP/1.0 501 Not Implemented\r\n" {
		t.Errorf("HTTP: %q %v", line, err)
	}
}

// TestFirstPacket checks that the first packet has the sequence number and the timestamp of RTP-Info (RFC 2326 §12.33),
// over TCP and UDP, also after a pause, and that none follows the answers to PAUSE and TEARDOWN over TCP.
func TestFirstPacket(t *testing.T) {
	_, server := serve(t, Config{first: time.Minute}, "raw", send.Config{}, small(t, 60))
	port := rtptest.EvenPorts(t, 1)[0]
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_ = socket.SetReadBuffer(4 << 20)
	for _, transport := range []string{overTCP, fmt.Sprintf("RTP/AVP;unicast;client_port=%d-%d", port, port+1)} {
		c := dial(t, server, "raw")
		_, h, _ := c.strictly(t, "SETUP", c.url+"/trackID=0", "Transport: "+transport)
		session := "Session: " + strings.Join(h["Session"], "")
		for n := range 5 {
			_, h, _ := c.strictly(t, "PLAY", c.url, session)
			var seq uint16
			var stamp uint32
			if _, err := fmt.Sscanf(strings.Join(h["RTP-Info"], ""),
				"url="+c.url+"/trackID=0;seq=%d;rtptime=%d", &seq, &stamp); err != nil {
				t.Fatalf("%s: RTP-Info: %q: %v", transport, h, err)
			}
			b := make([]byte, 2000)
			if transport == overTCP {
				channel := byte(1)
				for channel != 0 {
					if channel, b, err = c.packet(); err != nil {
						t.Fatal(err)
					}
				}
			} else if _, err = socket.Read(b); err != nil {
				t.Fatal(err)
			}
			if got, at := binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:]); got != seq || at != stamp {
				t.Errorf("%s, start %d: the first packet has %d and %d, want %d and %d", transport, n, got, at, seq, stamp)
			}
			method := "PAUSE"
			if n == 4 {
				method = "TEARDOWN"
			}
			if status, _, _ := c.strictly(t, method, c.url, session); status != 200 {
				t.Errorf("%s: %d", method, status)
			}
			for i := 0; i < 3 && transport == overTCP; i++ { // three frames later
				time.Sleep(20 * time.Millisecond)
				for c.in.Buffered() > 0 {
					if channel, _, err := c.packet(); err != nil || channel == 0 {
						t.Errorf("after %s: a packet on channel %d, %v", method, channel, err)
					}
				}
			}
			for transport != overTCP { // what is on the way
				_ = socket.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				if _, err := socket.Read(b); err != nil {
					break
				}
			}
			_ = socket.SetReadDeadline(time.Time{})
		}
	}
}

// TestKeptByRTCP checks that a UDP reader that sends nothing but RTCP stays, and that a silent one does not.
func TestKeptByRTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	const idle = 3 * time.Second
	sink, server := serve(t, Config{idle: idle}, "raw", send.Config{}, small(t, 10))
	ports := rtptest.EvenPorts(t, 2)
	var clients []*client
	for _, port := range ports {
		c := dial(t, server, "raw")
		c.play(t, fmt.Sprintf("RTP/AVP;unicast;client_port=%d-%d", port, port+1))
		clients = append(clients, c)
	}
	d := sink.Stats().Destinations
	if len(d) != 2 {
		t.Fatalf("%+v", d)
	}
	report, err := (&rtcp.ReceiverReport{SSRC: 9}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ports[0] + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	b := make([]byte, 2000)
	_, from, err := socket.ReadFromUDPAddrPort(b) // a sender report
	if err != nil {
		t.Fatal(err)
	}
	longest := time.Duration(0)
	for began, last := time.Now(), time.Now(); time.Since(began) < 3*idle; time.Sleep(100 * time.Millisecond) {
		if _, err := socket.WriteToUDPAddrPort(report, from); err != nil {
			t.Fatal(err)
		}
		longest, last = max(longest, time.Since(last)), time.Now()
	}
	left := sink.Stats().Destinations
	switch {
	case longest > idle/2:
		t.Logf("this machine stood still for %v: nothing can be said", longest)
	case len(left) != 1 || !strings.HasSuffix(left[0].Address, ":"+strconv.Itoa(ports[0])):
		t.Errorf("after %v there are %+v", 3*idle, left)
	}
	_ = clients[1].SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := clients[1].in.ReadByte(); err == nil {
		t.Error("the silent reader's connection is open")
	}
}

// TestChallenges checks that each 401 has a challenge, whatever the client has sent, and that the connection stays.
func TestChallenges(t *testing.T) {
	_, server := serve(t, Config{User: "me", Password: "a long word"}, "raw", send.Config{}, small(t, 60))
	c := dial(t, server, "raw")
	status, h, _ := c.strictly(t, "DESCRIBE", c.url)
	if status != 401 || len(h["WWW-Authenticate"]) != 2 {
		t.Fatalf("%d %q", status, h)
	}
	_, rest, _ := strings.Cut(h["WWW-Authenticate"][1], `nonce="`)
	nonce, _, _ := strings.Cut(rest, `"`)
	value := func(scheme, nonce, more string) string {
		sum := algorithms[1].sum // MD5
		middle := nonce
		if more != "" {
			middle += ":00000001:abc:auth"
		}
		response := sum(sum("me:tegracast:a long word") + ":" + middle + ":" + sum("DESCRIBE:"+c.url))
		return fmt.Sprintf(`Authorization: %s username="me", realm="tegracast", nonce="%s", uri="%s", response="%s"%s`, scheme, nonce, c.url, response, more)
	}
	for _, tt := range []struct {
		header string
		want   int
		stale  bool
	}{
		{"Authorization: Basic bWU6YSBsb25nIHdvcmQ=", 401, false},
		{"Authorization: Digest nonsense", 401, false},
		{value("Digest", "0123", ""), 401, true},
		{value("Digest", nonce, ""), 200, false},
		{value("digest", nonce, ""), 200, false},
		{value("Digest", nonce, `, qop=auth, nc=00000001, cnonce="abc"`), 200, false},
		{value("Digest", nonce, `, qop="auth-int", nc=00000001, cnonce="abc"`), 401, false},
	} {
		status, h, _ := c.strictly(t, "DESCRIBE", c.url, tt.header)
		stale := strings.HasSuffix(strings.Join(h["WWW-Authenticate"], ""), "stale=true")
		if status != tt.want || stale != tt.stale {
			t.Errorf("%s: %d, stale %t; want %d, %t", tt.header, status, stale, tt.want, tt.stale)
		}
	}
}

// TestDigest compares with the example of RFC 7616 §3.9.1.
func TestDigest(t *testing.T) {
	d := digest{realm: "http-auth@example.org", nonce: "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v"}
	for algorithm, response := range map[string]string{
		"MD5": "8ca523f5e9506fed4657c9700eebdbec", "SHA-256": "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
	} {
		header := fmt.Sprintf(`Digest username="Mufasa", realm="http-auth@example.org", uri="/dir/index.html", algorithm=%s, `+
			`nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", nc=00000001, cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ", `+
			`qop=auth, response="%s", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"`, algorithm, response)
		all := func(string) bool { return true }
		if v := d.check(header, "GET", "Mufasa", "Circle of Life", all); v != rightCredentials {
			t.Errorf("%s: %v", algorithm, v)
		}
		for _, wrong := range []struct {
			method, user, password string
			names                  bool
		}{
			{"PUT", "Mufasa", "Circle of Life", true},
			{"GET", "Mufasa", "Circle of life", true},
			{"GET", "Scar", "Circle of Life", true},
			{"GET", "Mufasa", "Circle of Life", false},
		} {
			if v := d.check(header, wrong.method, wrong.user, wrong.password, func(string) bool { return wrong.names }); v != wrongCredentials {
				t.Errorf("%s, %+v: %v", algorithm, wrong, v)
			}
		}
	}
}

// FuzzDigest checks that no header but the right one is accepted.
func FuzzDigest(f *testing.F) {
	f.Add(`Digest username="me", realm="tegracast", nonce="n", uri="rtsp://h/raw", response="x", algorithm=MD5, qop=auth, nc=1, cnonce="c"`)
	f.Add(`digest a="b\"c" , d=e,,f`)
	f.Fuzz(func(t *testing.T, header string) {
		d := digest{"tegracast", "n"}
		if v := d.check(header, "DESCRIBE", "me", "a long word", func(string) bool { return true }); v == rightCredentials || v == staleCredentials {
			t.Errorf("%q is accepted", header)
		}
	})
}

// FuzzMessages reads arbitrary bytes. Whatever they are, messages must end within their limits.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", "$\x00\x00\x02abOPTIONS * RTSP/1.0\nCSeq: 1\nContent-Length: 3\n\nabc", "RTSP/1.0 200 OK\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newMessages(bytes.NewReader(b))
		for range len(b) + 1 {
			if m.wait() != nil {
				return
			}
			r, frame, err := m.next()
			if err != nil {
				return
			}
			if r != nil && (r.method == "" || len(r.body) > maxBody || !strings.HasPrefix(r.version, "RTSP/")) || frame != nil && len(frame.packet) > 1<<16 {
				t.Errorf("%+v %+v", r, frame)
			}
		}
		t.Error("messages do not end")
	})
}

// TestFirstPacketOfASmallFrame checks that a reader over TCP begins with the frame that RTP-Info names, also if that is
// shorter than the answer which precedes it.
func TestFirstPacketOfASmallFrame(t *testing.T) {
	sink, server := serve(t, Config{first: time.Minute}, "raw", send.Config{}, rtptest.NewSource(t, rtptest.Format(t, pipeline.UYVY, 16, 2, 30), 0))
	c := dial(t, server, "raw")
	_, h, _ := c.strictly(t, "SETUP", c.url+"/trackID=0", "Transport: "+overTCP)
	_, h, _ = c.strictly(t, "PLAY", c.url, "Session: "+strings.Join(h["Session"], ""))
	var seq uint16
	var stamp uint32
	if _, err := fmt.Sscanf(strings.Join(h["RTP-Info"], ""), "url="+c.url+"/trackID=0;seq=%d;rtptime=%d", &seq, &stamp); err != nil {
		t.Fatalf("%q: %v", h, err)
	}
	for n := 0; n < 10; {
		channel, b, err := c.packet()
		if err != nil {
			t.Fatal(err)
		}
		if channel != 0 {
			continue
		}
		if got := binary.BigEndian.Uint16(b[2:]); got != seq {
			t.Fatalf("packet %d has the sequence number %d, want %d", n, got, seq)
		}
		n, seq = n+1, seq+1
	}
	if d := sink.Stats().Destinations; d[0].Cut > 0 {
		t.Errorf("%+v", d)
	}
}
