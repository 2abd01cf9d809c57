// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// compilePeer compiles the receiver in C.
func compilePeer(t *testing.T, options ...string) (program string) {
	t.Helper()
	if _, err := os.Stat("/usr/include/ucp/api/ucp.h"); err != nil {
		t.Fatalf("%v (make setup-test installs libucx-dev)", err)
	}
	program = filepath.Join(t.TempDir(), "receiver")
	args := append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fsanitize=undefined"}, options...)
	if out, err := exec.Command("gcc", append(args, "-o", program, "testdata/receiver.c", "-lucp", "-lucs")...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v (make setup-test installs gcc)\n%s", err, out)
	}
	return program
}

// A peer is a running receiver in C.
type peer struct {
	*exec.Cmd
	out   bytes.Buffer
	ended chan struct{} // closed when it has ended
}

// startPeer starts a receiver of a number of frames of the stream "front". set are variables of its environment, which
// has no others of UCX, so that UCX's defaults count.
func startPeer(t *testing.T, program string, server *Server, frames int, set ...string) *peer {
	t.Helper()
	at := server.Addr()
	p := &peer{Cmd: exec.Command(program, at.Addr().String(), strconv.Itoa(int(at.Port())), "front", strconv.Itoa(frames)), ended: make(chan struct{})}
	p.Env, p.Stdout, p.Stderr = append([]string{}, set...), &p.out, &p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.Wait() // the test looks at the state
	}()
	t.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
	return p
}

// hasEnded reports whether the receiver has ended.
func (p *peer) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// TestAReceiverInCGetsTheFrames checks that a receiver written from docs/ucx.md gets frames from the first one on, and
// computes the CRCs that are announced, which are those of the pixels.
func TestAReceiverInCGetsTheFrames(t *testing.T) {
	program := compilePeer(t)
	server, f := serve(t), format(t, pipeline.UYVY, 640, 480)
	k, err := server.Stream(StreamConfig{Name: "front", Checksum: true}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newStudio(t, f, 16, k)
	for name, set := range map[string][]string{"UCX's defaults": nil, "tcp": {"UCX_TLS=tcp"}, "set like the sender": {"UCX_CM_USE_ALL_DEVICES=n"}} {
		t.Run(name, func(t *testing.T) {
			const frames = 8
			p := startPeer(t, program, server, frames, set...)
			await(t, "the receiver", func() bool { return p.hasEnded() || len(k.Stats().Receivers) == 1 })
			first := s.camera.emitted + 1
			want := new(strings.Builder)
			pixels := make([]byte, f.Size())
			for n := first; n < first+frames && !p.hasEnded(); n++ {
				paint(pixels, n)
				crc := checksum([][]byte{pixels})
				fmt.Fprintf(want, "frame %d bytes %d crc %08x by %d computed %08[3]x ok\n", n, f.Size(), crc, crcSender)
				s.emit(1, nil)
				offered(t, k, n-first+1)
			}
			fmt.Fprintf(want, "received %d, wrong 0\n", frames)
			await(t, "the receiver's end", p.hasEnded)
			if out := p.out.String(); p.ProcessState.ExitCode() != 0 || !strings.HasSuffix(out, "\n"+want.String()) {
				t.Errorf("%v:\n%s\nwant:\n%s", p.ProcessState, out, want)
			}
			await(t, "the receiver to be gone", func() bool { return len(k.Stats().Receivers) == 0 })
		})
	}
}

// A journal collects the text of a log.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// count returns how often the log has a text.
func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// journaled opens a server on the loopback, and returns its log.
func journaled(t testing.TB) (*Server, *journal) {
	t.Helper()
	log := &journal{}
	return serveWith(t, slog.New(slog.NewTextHandler(log, nil))), log
}

// TestReceiversThatAreNotHeardAreToldWhy checks that receivers whose hello does not arrive, or does not say from whom it
// is, are told what they lack, and that the log says so, too.
func TestReceiversThatAreNotHeardAreToldWhy(t *testing.T) {
	server, log := journaled(t)
	k := newTestSink(t, server.hub, StreamConfig{Name: "front"}, format(t, pipeline.Grey, 64, 48))
	for name, start := range map[string]func() *peer{
		"no reply endpoint": func() *peer {
			p := startPeer(t, compilePeer(t, "-DSEND_FLAGS=UCP_AM_SEND_FLAG_EAGER"), server, 1)
			await(t, "the hello", func() bool { return log.count("receiver=unknown") > 0 })
			return p
		},
		"all devices": func() *peer { return startPeer(t, compilePeer(t), server, 1, "UCX_CM_USE_ALL_DEVICES=y") },
	} {
		p := start()
		await(t, "the end: "+name, func() bool {
			server.hub.check(time.Now().Add(patience + time.Second))
			return p.hasEnded()
		})
		if out := p.out.String(); !contains(out, "bye 7: no hello") || !contains(out, "UCP_AM_SEND_FLAG_REPLY") || !contains(out, "UCX_CM_USE_ALL_DEVICES") {
			t.Errorf("%s:\n%s", name, out)
		}
	}
	await(t, "the log", func() bool { return log.count("reason=\"here: no hello within 5s") == 2 })
	if n := log.count("receiver=unknown"); n != 1 {
		t.Errorf("%d lines about unknown receivers", n)
	}
	if st := k.Stats(); st.Gone != 0 {
		t.Errorf("%+v", st)
	}
	if t.Failed() {
		t.Log(log.text.String())
	}
}

// TestAReceiverThatIsNotAnsweredSaysWhatMayBeWrong checks what a receiver says that has got no welcome.
func TestAReceiverThatIsNotAnsweredSaysWhatMayBeWrong(t *testing.T) {
	a := newAttempt(&Receiver{config: ReceiverConfig{Address: "192.0.2.7:5020"}}, time.Now())
	a.check(time.Now().Add(patience + time.Second))
	if a.err == nil || !contains(a.err.Error(), "192.0.2.7:5020 has not answered") || !contains(a.err.Error(), "UCX_CM_USE_ALL_DEVICES") {
		t.Error(a.err)
	}
}
