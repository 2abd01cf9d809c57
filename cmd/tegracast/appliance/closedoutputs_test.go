// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/resolve/resolvetest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// nameServer starts a server that answers with a code of dnsmessage. Every host name resolves to this machine.
func nameServer(t *testing.T) *atomic.Int32 {
	code := &atomic.Int32{}
	resolvetest.Answer(t, func() (dnsmessage.RCode, []netip.Addr) {
		if code := dnsmessage.RCode(code.Load()); code != dnsmessage.RCodeSuccess {
			return code, nil
		}
		return dnsmessage.RCodeSuccess, []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	return code
}

// TestAnOutputWaitsForItsName checks that an output whose destination's name cannot be resolved at the start waits while
// everything else runs. It can be stopped, survives a reload and a refused reload, and is opened when the name resolves.
func TestAnOutputWaitsForItsName(t *testing.T) {
	code := nameServer(t)
	code.Store(int32(dnsmessage.RCodeRefused))
	p := rtptest.EvenPorts(t, 3)
	named, other := fmt.Sprint("viewer.example:", p[0]), fmt.Sprint("127.0.0.1:", p[2])
	text := func(third string, rate int) string {
		return reloadConfig(t, []string{named, fmt.Sprint("127.0.0.1:", p[1]), third}, rate, 1.5, 1400)
	}
	s := newReloads(t, text(other, 31), nil)
	s.begin(t)
	s.becomes(t, "raw2", pipeline.Running)
	if x := s.becomes(t, "raw1", pipeline.Retrying); !strings.Contains(x.Error, named) || x.Since == nil || x.Next == nil || x.Sends != "raw video (RFC 4175)" || x.To[0] != named {
		t.Errorf("%+v", x)
	}
	s.streaming(t, "raw2")
	s.put(t, text(other, 32))
	if n := s.log.count("configuration reloaded"); n != 1 {
		t.Errorf("a reload beside an output that waits:\n%s", s.log.take())
	}
	s.put(t, text("another.example:5004", 32))
	if n := s.log.count("going back to the previous one"); n != 1 {
		t.Errorf("a reload with another name:\n%s", s.log.take())
	}
	s.becomes(t, "raw1", pipeline.Retrying)
	s.becomes(t, "raw3", pipeline.Running)
	if err := s.supervisor.switchOutput(t.Context(), "raw1", false); err != nil {
		t.Error(err)
	}
	s.becomes(t, "raw1", pipeline.Stopped)
	if err := s.supervisor.switchOutput(t.Context(), "raw1", true); err == nil {
		t.Error("an output whose name is not known was started")
	}
	code.Store(int32(dnsmessage.RCodeSuccess))
	if err := s.supervisor.switchOutput(t.Context(), "raw1", true); err != nil {
		t.Error(err)
	}
	s.streaming(t, "raw1")
	s.end(t)
}

// TestAWaitingOutputIsOpened checks that it is opened by itself once its name resolves.
func TestAWaitingOutputIsOpened(t *testing.T) {
	code := nameServer(t)
	code.Store(int32(dnsmessage.RCodeServerFailure))
	p := rtptest.EvenPorts(t, 3)
	s := newReloads(t, reloadConfig(t, []string{fmt.Sprint("viewer.example:", p[0]), fmt.Sprint("127.0.0.1:", p[1]), fmt.Sprint("127.0.0.1:", p[2])}, 31, 1.5, 1400), nil)
	s.begin(t)
	s.becomes(t, "raw1", pipeline.Retrying)
	code.Store(int32(dnsmessage.RCodeSuccess))
	s.becomes(t, "raw1", pipeline.Running)
	s.streaming(t, "raw1")
	if n := s.log.count("output is open now"); n != 1 {
		t.Errorf("the log:\n%s", s.log.take())
	}
	if _, err := os.Stat(filepath.Join(s.announcer.dir, "raw1.sdp")); err != nil {
		t.Error(err)
	}
	s.end(t)
}

// TestAWrongNameEndsTheStart checks that a name that does not exist is a mistake, for which the appliance does not wait.
func TestAWrongNameEndsTheStart(t *testing.T) {
	nameServer(t).Store(int32(dnsmessage.RCodeNameError))
	c, err := config.Load(programtest.Write(t, "c.yaml", reloadConfig(t, []string{"viewer.example:5004", "127.0.0.1:5006", "127.0.0.1:5008"}, 31, 1.5, 1400)))
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(Env{Out: &logLines{}, Log: slog.New(slog.DiscardHandler), patient: true}, c, Options{})
	if dns := (*net.DNSError)(nil); !errors.As(err, &dns) || !dns.IsNotFound {
		t.Errorf("%v", err)
	}
	if a != nil {
		t.Error(a.opener.closeAll())
	}
}

// TestAnOutputOfAnEndedSource checks that an output opened after the end of its source has ended, and that starting it
// plays the source again. If the appliance ends with its sources, no output waits, since it would miss them unnoticed.
func TestAnOutputOfAnEndedSource(t *testing.T) {
	code := nameServer(t)
	code.Store(int32(dnsmessage.RCodeServerFailure))
	clip, dir := programtest.Write(t, "clip.raw", string(make([]byte, 64*16*2*5))), t.TempDir()
	text := fmt.Sprintf(`
web: {listen: none}
memory: host
sources: [{name: clip, file: {path: %s, width: 64, height: 16, rate: 100, once: true}}]
isp: [{name: isp, workers: 1}]
outputs:
  - {name: named, from: isp, rtp: {payload: raw, destinations: ["viewer.example:%d"]}}
  - {name: rec, from: clip, record: {directory: %q}}
`, clip, rtptest.EvenPorts(t, 1)[0], dir)
	s := newReloads(t, text, nil)
	s.begin(t)
	s.becomes(t, "rec", pipeline.Ended)
	s.becomes(t, "named", pipeline.Retrying)
	code.Store(int32(dnsmessage.RCodeSuccess))
	s.becomes(t, "named", pipeline.Ended)
	code.Store(int32(dnsmessage.RCodeNameError))
	if err := s.supervisor.switchOutput(t.Context(), "named", true); err == nil {
		t.Error("an output without an address was started")
	}
	s.becomes(t, "rec", pipeline.Ended)
	code.Store(int32(dnsmessage.RCodeSuccess))
	if err := s.supervisor.switchOutput(t.Context(), "named", true); err != nil {
		t.Fatal(err)
	}
	s.becomes(t, "named", pipeline.Ended)
	for _, o := range s.end(t).Outputs {
		most := map[string]uint64{"named": 5, "rec": 15}[o.Name] // a slow machine misses some at the source, and drops some
		if o.Delivered == 0 || o.Delivered+o.Drops() > most {
			t.Errorf("%s: %d frames and %d dropped, want at most %d together", o.Name, o.Delivered, o.Drops(), most)
		}
	}
	if n := len(recordings(t, dir)); n != 3 {
		t.Errorf("%d recordings of a source that was played three times, once for a start that failed", n)
	}

	code.Store(int32(dnsmessage.RCodeServerFailure))
	c, err := config.Load(s.file)
	if err != nil {
		t.Fatal(err)
	}
	err = Serve(t.Context(), Env{Out: &logLines{}, Log: slog.New(slog.DiscardHandler)}, c, Options{ExitAtEnd: true, Fixed: true, Dir: t.TempDir()})
	if dns := (*net.DNSError)(nil); !errors.As(err, &dns) {
		t.Errorf("it has ended with %v", err)
	}
}
