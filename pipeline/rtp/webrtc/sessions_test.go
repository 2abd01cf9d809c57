// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/logging"
	pion "github.com/pion/webrtc/v4"
)

// TestRefused checks that offers that cannot be answered, and unsupported requests, are refused with the right status.
func TestRefused(t *testing.T) {
	t.Parallel()
	_, _, base := serve(t, usual)
	documented := theDocument(t)
	offer := client(t, pion.SettingEngine{}).offer(t)
	camera := base + "/camera/whep"
	vp8, sends := strings.ReplaceAll(offer, "H264/", "VP8/"), strings.ReplaceAll(offer, "recvonly", "sendonly")
	single := strings.ReplaceAll(offer, "packetization-mode=1", "packetization-mode=0")
	open := regexp.MustCompile("a=fingerprint.*\r\n").ReplaceAllString(offer, "")
	for name, tt := range map[string]struct {
		method, url, kind, body string
		want                    int
	}{
		"no SDP":            {http.MethodPost, camera, "text/plain", offer, http.StatusUnsupportedMediaType},
		"no offer":          {http.MethodPost, camera, mediaType, "hello", http.StatusBadRequest},
		"nothing":           {http.MethodPost, camera, mediaType, "", http.StatusBadRequest},
		"too long":          {http.MethodPost, camera, mediaType, strings.Repeat("a", maxOffer+1), http.StatusRequestEntityTooLarge},
		"no H.264":          {http.MethodPost, camera, mediaType, vp8, http.StatusUnprocessableEntity},
		"one packet a unit": {http.MethodPost, camera, mediaType, single, http.StatusUnprocessableEntity},
		"it sends":          {http.MethodPost, camera, mediaType, sends, http.StatusUnprocessableEntity},
		"no fingerprint":    {http.MethodPost, camera, mediaType, open, http.StatusBadRequest},
		"no such output":    {http.MethodPost, base + "/other/whep", mediaType, offer, http.StatusNotFound},
		"no such session":   {http.MethodDelete, camera + "/x", "", "", http.StatusNotFound},
		"trickle":           {http.MethodPatch, camera + "/x", "application/trickle-ice-sdpfrag", "", http.StatusMethodNotAllowed},
	} {
		status, h, text := ask(t, tt.method, tt.url, tt.kind, tt.body)
		if status != tt.want || text == "" {
			t.Errorf("%s: status %d, want %d: %s", name, status, tt.want, text)
		}
		path := map[string]string{http.MethodPost: "/{name}/whep", http.MethodDelete: "/{name}/whep/{session}", http.MethodPatch: "/{name}/whep/{session}"}
		if _, said := documented[path[tt.method]][strings.ToLower(tt.method)].Responses[strconv.Itoa(status)]; !said {
			t.Errorf("%s: status %d is not in the document", name, status)
		}
		if allowed := h.Get("Allow"); (allowed == "DELETE, OPTIONS") != (status == http.StatusMethodNotAllowed) {
			t.Errorf("%s: allowed is %q", name, allowed)
		}
	}
	for url, allowed := range map[string]string{camera: "POST, OPTIONS", camera + "/x": "DELETE, OPTIONS"} {
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "OPTIONS"} {
			want := http.StatusMethodNotAllowed
			if method == "OPTIONS" {
				want = http.StatusNoContent
			}
			if status, h, _ := ask(t, method, url, "", ""); status != want || h.Get("Allow") != allowed || (h.Get("Accept-Post") == mediaType) != (url == camera) {
				t.Errorf("%s %s: status %d, %v", method, url, status, h)
			}
		}
	}
	capital := strings.ReplaceAll(strings.ReplaceAll(offer, "packetization-mode", "Packetization-Mode"), "profile-level-id", "Profile-Level-ID")
	if status, h, text := ask(t, http.MethodPost, camera, mediaType, capital); status != http.StatusCreated {
		t.Errorf("names of parameters in capital letters: status %d: %s", status, text)
	} else if status, _, text := ask(t, http.MethodDelete, base+h.Get("Location"), "", ""); status != http.StatusOK {
		t.Errorf("its end: status %d: %s", status, text)
	}
}

// theDocument returns the paths of the OpenAPI document, with their methods.
func theDocument(t *testing.T) map[string]map[string]struct{ Responses map[string]any } {
	t.Helper()
	b, err := os.ReadFile("../../../cmd/tegracast/web/page/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Paths map[string]map[string]struct{ Responses map[string]any }
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d.Paths
}

// TestOneAddress checks that an answer to a client on this machine has one candidate, which other machines cannot
// reach, in a section that is not refused.
func TestOneAddress(t *testing.T) {
	server, _, _ := serve(t, usual)
	for _, at := range []string{"127.0.0.1", "::1"} {
		v, answer, err := server.watch("camera", client(t, pion.SettingEngine{}).offer(t), netip.MustParseAddr(at))
		if err != nil {
			t.Fatal(err)
		}
		v.end(errDeleted)
		sound, video, _ := strings.Cut(answer, "m=video")
		list := regexp.MustCompile(`a=candidate:\S+ 1 udp \d+ (\S+) \d+ typ host`).FindAllStringSubmatch(video, -1)
		if strings.Contains(sound, "candidate") || len(list) != 1 || list[0][1] != "127.0.0.1" || !strings.Contains(answer, "a=ice-lite") {
			t.Errorf("%s: %s", at, answer)
		}
	}
}

// TestTheAnsweredLevelIsSent checks that the answer names the level that the stream's parameter sets have, whatever level
// the offer has, and the offer's profile.
func TestTheAnsweredLevelIsSent(t *testing.T) {
	_, _, base := serve(t, usual)
	first := watch(t, base, pion.SettingEngine{}).frame(t)
	var level byte
	for _, p := range first.packets {
		unit := p.Payload
		if unit[0]&31 == 24 { // STAP-A: a length follows
			unit = unit[3:]
		}
		if unit[0]&31 == 7 {
			level = unit[3]
		}
	}
	offer := client(t, pion.SettingEngine{}).offer(t)
	own := regexp.MustCompile(`(a=fmtp:[0-9]+ )level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f`)
	if level == 0 || !own.MatchString(offer) {
		t.Fatalf("level %d, %s", level, offer)
	}
	for parameters, want := range map[string]string{
		"level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f": "profile-level-id=42e0%02x",
		"packetization-mode=1;profile-level-id=42e00a":                           "profile-level-id=42e0%02x",
		"Profile-Level-Id=42E034; Packetization-Mode=1":                          "Profile-Level-Id=42E0%02x",
		"packetization-mode=1":                                                   "profile-level-id=4200%02x",
	} {
		status, _, answer := ask(t, http.MethodPost, base+"/camera/whep", mediaType, own.ReplaceAllString(offer, "${1}"+parameters))
		if want = fmt.Sprintf(want, level); status != http.StatusCreated || strings.Count(answer, "a=fmtp:") != 1 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d, want %s: %s", parameters, status, want, answer)
		}
	}
}

// TestFull checks that a session beyond the limit is told to retry later, and succeeds when another one has left.
func TestFull(t *testing.T) {
	t.Parallel()
	l := usual
	l.sessions = 1
	_, _, base := serve(t, l)
	v := watch(t, base, pion.SettingEngine{})
	v.next(t) // only then the viewer would notice the end
	status, h, _ := ask(t, http.MethodPost, base+"/camera/whep", mediaType, client(t, pion.SettingEngine{}).offer(t))
	if status != http.StatusServiceUnavailable || h.Get("Retry-After") == "" {
		t.Errorf("status %d, %v", status, h)
	}
	if status, _, text := ask(t, http.MethodDelete, v.session, "", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	v.until(t, pion.PeerConnectionStateClosed)
	watch(t, base, pion.SettingEngine{}).next(t)
}

// descriptors returns the number of open file descriptors.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestEnds checks that a session ends when the viewer says so, when it is silent, without a connection, with the output
// and with the server, and that it leaves neither goroutines nor descriptors.
func TestEnds(t *testing.T) {
	l := limits{sessions: 4, connect: patience, disconnected: time.Second / 2, failed: time.Second / 2}
	server, _, base := serve(t, l)
	gone := func(what string) {
		t.Helper()
		for until := time.Now().Add(patience); server.count() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: the session does not end", what)
			}
		}
	}
	v := watch(t, base, pion.SettingEngine{})
	v.next(t) // from now on the sink has its thread
	_ = v.peer.GracefulClose()
	gone("the first viewer")
	http.DefaultClient.CloseIdleConnections()
	goroutines, open := runtime.NumGoroutine(), descriptors(t)
	v = watch(t, base, pion.SettingEngine{})
	if err := v.peer.GracefulClose(); err != nil {
		t.Error(err)
	}
	gone("a viewer that says so")
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	quiet := &logging.DefaultLoggerFactory{Writer: io.Discard}
	mux := ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: conn, Logger: quiet.NewLogger("mux")})
	var s pion.SettingEngine
	s.SetICEUDPMux(mux)
	v = watch(t, base, s)
	if err := conn.Close(); err != nil { // as if its cable were pulled
		t.Error(err)
	}
	gone("a viewer that is away")
	_ = v.peer.GracefulClose()
	_ = mux.Close()
	server.limits.connect = time.Millisecond
	other := client(t, pion.SettingEngine{})
	if _, _, err := server.watch("camera", other.offer(t), netip.MustParseAddr("127.0.0.1")); err != nil {
		t.Fatal(err)
	}
	gone("a viewer that does not come")
	_ = other.peer.GracefulClose()
	server.limits.connect = patience
	v = watch(t, base, pion.SettingEngine{})
	v.next(t)
	server.Remove("camera")
	gone("an output that ends")
	v.until(t, pion.PeerConnectionStateClosed)
	_ = v.peer.GracefulClose()
	server.Close()
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		http.DefaultClient.CloseIdleConnections()
		g, d := runtime.NumGoroutine(), descriptors(t)
		if g <= goroutines && d <= open {
			break
		}
		if time.Now().After(until) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before %d; %d descriptors, before %d: %s", g, goroutines, d, open, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestServerEnds checks that all sessions end with the server, and that no new one begins.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	server, _, base := serve(t, usual)
	a, b := watch(t, base, pion.SettingEngine{}), watch(t, base, pion.SettingEngine{})
	a.next(t)
	b.next(t)
	server.Close()
	a.until(t, pion.PeerConnectionStateClosed)
	b.until(t, pion.PeerConnectionStateClosed)
	status, _, _ := ask(t, http.MethodPost, base+"/camera/whep", mediaType, client(t, pion.SettingEngine{}).offer(t))
	if status != http.StatusServiceUnavailable || server.count() != 0 {
		t.Errorf("status %d, %d sessions", status, server.count())
	}
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// FuzzOffer checks that no offer causes harm, and that everything it opens is closed.
func FuzzOffer(f *testing.F) {
	f.Add("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=fingerprint:sha-256 00\r\nm=video 9 UDP/TLS/RTP/SAVPF 102\r\nc=IN IP4 0.0.0.0\r\n" +
		"a=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuvwx\r\na=setup:actpass\r\na=mid:0\r\na=recvonly\r\na=rtcp-mux\r\n" +
		"a=rtpmap:102 H264/90000\r\na=fmtp:102 packetization-mode=1;profile-level-id=42e01f\r\n")
	f.Add("v=0\r\nm=video 9 x 300 -1 96\r\na=rtpmap:96 h264/90000\r\n")
	f.Fuzz(func(t *testing.T, offer string) {
		v, _, err := open(&stream{}, offer, netip.MustParseAddr("127.0.0.1"), usual)
		if err != nil {
			return
		}
		if err := v.peer.GracefulClose(); err != nil {
			t.Error(err)
		}
	})
}
