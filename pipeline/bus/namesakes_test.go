// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// records keeps the log records of a publisher as text.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *records) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), what)
}

// TestBoardsOfOneName runs two boards of one name, and one of another. The two name each other in their health, and warn
// once.
func TestBoardsOfOneName(t *testing.T) {
	everyBroker(t, func(t *testing.T, b *broker) {
		b.start(t)
		var logs [3]records
		var boards [3]*Publisher
		for i, name := range []string{"jetson", "jetson", "another"} {
			boards[i], _ = runs(t, Config{
				Server: Server{URL: b.url()}, Board: name, Folder: t.TempDir(),
				Logger: slog.New(slog.NewTextHandler(&logs[i], nil)),
			})
		}
		others := func(i int) []string { return boards[i].namesakes(time.Now()) }
		await(t, "word of the other board", func() bool {
			for _, p := range boards {
				p.Health(Condition{Every: time.Second})
			}
			const warns = "under this board's name" // after the board is known
			return len(others(0)) > 0 && len(others(1)) > 0 && logs[0].count(warns) > 0 && logs[1].count(warns) > 0
		})
		if !slices.Equal(others(0), []string{boards[1].hexID()}) || !slices.Equal(others(1), []string{boards[0].hexID()}) || len(others(2)) != 0 {
			t.Errorf("%s sees %q, %s sees %q, another sees %q", boards[0].hexID(), others(0), boards[1].hexID(), others(1), others(2))
		}
		for i, want := range []int{1, 1, 0} {
			if n := logs[i].count("under this board's name"); n != want {
				t.Errorf("board %d warns %d times, want %d", i, n, want)
			}
		}
		boards[0].Health(Condition{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		await(t, "health that names the other board", func() bool {
			list, _, err := Boards(ctx, Server{URL: b.url()})
			return err == nil && slices.ContainsFunc(list, func(h Health) bool { return h.Board == "jetson" && len(h.Others) == 1 && h.Others[0] != h.ID })
		})
		if got := boards[0].namesakes(time.Now().Add(2 * namesakeTime)); len(got) != 0 {
			t.Errorf("two minutes later: %q", got)
		}
	})
}

// TestServersThatRefuseASubscription checks that a board publishes as before if it may not subscribe, or if what it gets
// then is nothing that it can read.
func TestServersThatRefuseASubscription(t *testing.T) {
	access := filepath.Join(t.TempDir(), "acl")
	if err := os.WriteFile(access, []byte("topic write tegracast/a/#\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const agreed = "\x90\x03\xff\xff\x00"
	for name, tt := range map[string]struct {
		start func(t *testing.T) *broker
		links uint64
	}{
		"by its list of rights": {func(t *testing.T) *broker {
			b := mosquitto(t, "allow_anonymous true\nacl_file "+access+"\n")
			b.start(t)
			return b
		}, 1},
		"by closing the connection": {func(t *testing.T) *broker { return subscribed(t, "") }, 3},
		"by another topic":          {func(t *testing.T) *broker { return subscribed(t, agreed+"\x30\x04\x00\x01xy") }, 1},
		"by a long message": {func(t *testing.T) *broker {
			return subscribed(t, agreed+"\x30\x80\x80\x80\x04"+strings.Repeat("x", 8<<20)+"\xd0\x00")
		}, 1},
		"by a message of QoS 1": {func(t *testing.T) *broker { return subscribed(t, agreed+"\x32\x05\x00\x01x\x00\x01") }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := runs(t, Config{Server: Server{URL: tt.start(t).url()}, Board: "a", Folder: t.TempDir()})
			for range 5 { // a link on which each is the first costs another link
				before := p.Stats().Published
				p.Health(Condition{})
				await(t, "message", func() bool { return p.Stats().Published > before })
			}
			if st := p.Stats(); st.Links > tt.links || st.Lost() != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// subscribed returns a broker that acknowledges messages, and that answers a subscription with some bytes, or by closing
// the connection if there are none.
func subscribed(t *testing.T, answer string) *broker {
	return &broker{scheme: "mqtt", address: listens(t, func(c io.ReadWriter) {
		in := bufio.NewReader(c)
		for {
			first, err := in.ReadByte()
			if err != nil || first == 0x82 && answer == "" {
				return
			}
			size, err := binary.ReadUvarint(in)
			rest := make([]byte, size)
			if _, short := io.ReadFull(in, rest); err != nil || short != nil {
				return
			}
			reply := map[byte]string{0x10: "\x20\x02\x00\x00", 0x82: answer, 0xc0: "\xd0\x00"}[first]
			if first&0xf0 == 0x30 {
				at := 2 + int(rest[0])<<8 + int(rest[1])
				reply = "\x40\x02" + string(rest[at:at+2])
			}
			if _, err := io.WriteString(c, reply); err != nil {
				return
			}
		}
	})}
}

// FuzzMQTT reads what a broker may send.
func FuzzMQTT(f *testing.F) {
	health := "\x00\x12tegracast/a/health"
	body, _ := json.Marshal(Health{Head: Head{Version: 1, Board: "a", ID: "0123456789abcdef"}})
	f.Add("\x90\x03\xff\xff\x00\x30"+string(rune(len(health)+len(body)))+health+string(body), true)
	f.Add("\x40\x02\x00\x01\xd0\x00", false)
	f.Add("\x31\x16"+health+"{}", true)
	f.Add("\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", true)
	f.Fuzz(func(t *testing.T, said string, watching bool) {
		l := &mqttLink{health: "tegracast/a/health", seen: func(data []byte) {
			if !watching || len(data) > mostHealth {
				t.Errorf("%d bytes, watching: %t", len(data), watching)
			}
		}}
		l.watching.Store(watching)
		in := bufio.NewReader(strings.NewReader(said))
		for {
			if _, err := l.read(in); err != nil {
				break
			}
		}
		if 4*len(l.acks) > len(said) {
			t.Errorf("%d acknowledgements of %q", len(l.acks), said)
		}
	})
}
