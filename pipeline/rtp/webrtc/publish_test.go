// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// taker is a WHIP server built on pion that accepts streams with its token.
type taker struct {
	t       *testing.T
	address string
	began   chan *viewer

	mu      sync.Mutex
	refuses int // number of requests to refuse first
	asked   int
	over    []string // sessions ended by DELETE
}

// startTaker starts a server at which a stream is offered to PATH; the session has another URL.
func startTaker(t *testing.T, refuses int) *taker {
	t.Helper()
	x := &taker{t: t, began: make(chan *viewer, 4), refuses: refuses}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /whip", x.post)
	mux.HandleFunc("POST /moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/whip", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("DELETE /sessions/{id}", func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if r.Header.Get("Authorization") == "Bearer a word" {
			x.over = append(x.over, r.PathValue("id"))
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	x.address = s.URL
	return x
}

func (x *taker) post(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.asked++
	refused := x.asked <= x.refuses
	x.mu.Unlock()
	offer, err := io.ReadAll(r.Body)
	switch {
	case r.Header.Get("Authorization") != "Bearer a word":
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	case refused:
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	case err != nil || r.Header.Get("Content-Type") != mediaType || !strings.Contains(string(offer), "a=sendonly") || strings.Contains(string(offer), "ice-lite"):
		x.t.Errorf("%v %v %s", err, r.Header, offer)
		http.Error(w, "no offer", http.StatusBadRequest)
		return
	}
	v := client(x.t, pion.SettingEngine{})
	answer, err := negotiate(v.peer, string(offer))
	if err != nil {
		x.t.Error(err)
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Location", "/sessions/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
	x.began <- v
}

// key waits for a session, and for a key frame in it.
func (x *taker) key() *viewer {
	x.t.Helper()
	select {
	case v := <-x.began:
		for limit := time.After(patience); ; {
			select {
			case p := <-v.packets:
				if h, ok := rtp.ParseH264(p.Payload); ok && h.Type == rtp.UnitSPS {
					return v
				}
			case <-limit:
				x.t.Fatal("no key frame comes")
			}
		}
	case <-time.After(patience):
		x.t.Fatal("no session begins")
	}
	return nil
}

func word() (string, error) { return "a word", nil }

// TestPublish checks that a server that refuses at first finally gets the stream, and again after it has ended the
// session or disappeared. The server is told about the end, and appears as a destination in the statistics.
func TestPublish(t *testing.T) {
	t.Parallel()
	l := usual
	l.disconnected, l.failed = time.Second/2, time.Second/2
	server, _, _ := serve(t, l)
	said := make(chan string, 64)
	server.log = slog.New(slog.NewTextHandler(lines(said), nil))
	x := startTaker(t, 1)
	p, err := server.Publish("camera", Remote{URL: x.address + "/moved", Token: word})
	if err != nil {
		t.Fatal(err)
	}
	v := x.key()
	if refused, taken := <-said, <-said; !strings.Contains(refused, "later") || !strings.Contains(taken, "accepted the stream") {
		t.Errorf("the log says %s and %s", refused, taken)
	}
	if why := p.Trouble(); why != "" {
		t.Errorf("the stream is taken, and the trouble is %s", why)
	}
	list := server.Viewers("camera")
	if len(list) != 1 || list[0].Reader != "WHIP" || list[0].Session != "" {
		t.Errorf("%+v", list)
	} else if _, err := netip.ParseAddrPort(list[0].Address); err != nil { // one of this machine's addresses: that of the first pair of candidates
		t.Error(err)
	}
	if v.capture == 0 {
		t.Error("no abs-capture-time")
	}
	if err := v.peer.GracefulClose(); err != nil {
		t.Error(err)
	}
	v = x.key()
	p.Close()
	v.until(t, pion.PeerConnectionStateClosed)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.asked != 3 || len(x.over) != 2 || x.over[1] != "1" {
		t.Errorf("asked %d times, sessions ended: %q", x.asked, x.over)
	}
	if list := server.Viewers("camera"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// TestPublishInVain checks that a server that refuses, or sends an invalid answer, is logged once, without the token.
func TestPublishInVain(t *testing.T) {
	server, _, _ := serve(t, usual)
	x := startTaker(t, 0)
	odd := http.NewServeMux()
	odd.HandleFunc("/nowhere", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	odd.HandleFunc("/nothing", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/x")
		w.WriteHeader(http.StatusCreated)
	})
	other := httptest.NewServer(odd)
	t.Cleanup(other.Close)
	unreadable := errors.New("the file cannot be read")
	for what, tt := range map[string]struct {
		url   string
		token func() (string, error)
		want  string
	}{
		"another token": {x.address + "/whip", func() (string, error) { return "secret", nil }, "401 Unauthorized"},
		"no token":      {x.address + "/whip", nil, "who are you?"},
		"no file":       {x.address + "/whip", func() (string, error) { return "", unreadable }, unreadable.Error()},
		"no place":      {other.URL + "/nowhere", word, "where the session is"},
		"no answer":     {other.URL + "/nothing", word, "is not one of WebRTC"},
		"no server":     {"http://127.0.0.1:9/whip", word, "refused"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			said := make(chan string, 4)
			s := New(slog.New(slog.NewTextHandler(lines(said), nil)))
			s.streams = server.streams
			p, err := s.Publish("camera", Remote{URL: tt.url, Token: tt.token})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			select {
			case line := <-said:
				if !strings.Contains(line, tt.want) || strings.Contains(line, "secret") {
					t.Errorf("%s, want %q", line, tt.want)
				}
				if why := p.Trouble(); !strings.Contains(why, tt.want) || strings.Contains(why, "secret") {
					t.Errorf("the trouble is %s, want %q", why, tt.want)
				}
			case <-time.After(patience):
				t.Error("the log does not hear of it")
			}
		})
	}
	if _, err := server.Publish("other", Remote{URL: "https://h/x"}); !errors.Is(err, errNoStream) {
		t.Errorf("%v", err)
	}
}

// TestPublishFails checks that a session that the server has begun is ended if the answer is cut or invalid, or no
// connection follows, and that the log then does not say that the server accepted the stream.
func TestPublishFails(t *testing.T) {
	server, _, _ := serve(t, usual)
	for what, answers := range map[string]func(w http.ResponseWriter, offer string){
		"nothing": func(http.ResponseWriter, string) {},
		"a part": func(w http.ResponseWriter, _ string) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"and goes": func(w http.ResponseWriter, offer string) {
			v := client(t, pion.SettingEngine{})
			answer, err := negotiate(v.peer, offer)
			if err := errors.Join(err, v.peer.GracefulClose()); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, answer)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			over, said := make(chan string, 4), make(chan string, 16)
			remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					over <- r.URL.Path
					return
				}
				offer, _ := io.ReadAll(r.Body)
				w.Header().Set("Location", "/sessions/1")
				w.WriteHeader(http.StatusCreated)
				answers(w, string(offer))
			}))
			t.Cleanup(remote.Close)
			s := New(slog.New(slog.NewTextHandler(lines(said), nil)))
			s.streams, s.limits.connect = server.streams, time.Second/4
			p, err := s.Publish("camera", Remote{URL: remote.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			select {
			case path := <-over:
				if path != "/sessions/1" {
					t.Error(path)
				}
			case <-time.After(patience):
				t.Error("the session is not ended")
			}
			if line := <-said; strings.Contains(line, "accepted the stream") {
				t.Error(line)
			}
		})
	}
}

// TestPublishStaysWithItsServer checks that no request is sent to another server, to which a server refers by a
// redirect or as the URL of the session: it may be this machine's own page, or would get the token.
func TestPublishStaysWithItsServer(t *testing.T) {
	server, _, _ := serve(t, usual)
	asked := make(chan string, 4)
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Header.Get("Authorization")
	}))
	t.Cleanup(stranger.Close)
	for what, tt := range map[string]struct {
		status int
		want   string // in the log
	}{
		"redirect": {http.StatusTemporaryRedirect, errElsewhere.Error() + ": " + stranger.URL},
		"see":      {http.StatusSeeOther, errElsewhere.Error()},
		"session":  {http.StatusCreated, "is not one of WebRTC"},
	} {
		t.Run(what, func(t *testing.T) {
			named := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer a word" {
					t.Error("the server itself does not get the token")
				}
				w.Header().Set("Location", stranger.URL+"/api/v1/outputs/camera/stop")
				w.WriteHeader(tt.status)
			}))
			t.Cleanup(named.Close)
			said := make(chan string, 16)
			s := New(slog.New(slog.NewTextHandler(lines(said), nil)))
			s.streams = server.streams
			p, err := s.Publish("camera", Remote{URL: named.URL + "/whip", Token: word})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case line := <-said:
				if !strings.Contains(line, tt.want) || strings.Contains(line, "a word") {
					t.Errorf("the log says %s, want %q", line, tt.want)
				}
			case <-time.After(patience):
				t.Error("the log does not hear of it")
			}
			p.Close() // a request would have been made by now
			select {
			case got := <-asked:
				t.Errorf("the other server is sent %q", got)
			default:
			}
		})
	}
}

func TestSameOrigin(t *testing.T) {
	for address, want := range map[string]bool{
		"https://h/x": true, "https://H:443/y?z": true,
		"http://h/x": false, "http://h:443/x": false, "https://h:444/x": false, "https://h.example/x": false, "https://sub.h/x": false,
	} {
		a, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := sameOrigin(a, &url.URL{Scheme: "https", Host: "h"}); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

// lines is a writer of lines.
type lines chan string

// Write implements io.Writer.
func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

func TestCheckURL(t *testing.T) {
	for address, want := range map[string]error{
		"https://h/whip": nil, "https://h:8443/a/b?room=x": nil, "http://127.0.0.1:7880/whip/v1": nil, "http://localhost/x": nil, "http://[::1]/x": nil,
		"": ErrURL, "camera": ErrURL, "rtsp://h/x": ErrURL, "https:///x": ErrURL, "https://u:p@h/x": ErrURL, "https://h/x#y": ErrURL, "https://[::1/x": ErrURL,
		"http://192.0.2.1/x": ErrToken, "http://h/x": ErrToken,
	} {
		if err := CheckURL(address, true); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", address, err, want)
		}
	}
	if err := CheckURL("http://192.0.2.1/x", false); err != nil {
		t.Error(err)
	}
}
