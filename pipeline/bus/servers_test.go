// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A broker is a real server that can be stopped and restarted with its stored messages.
type broker struct {
	name    string
	scheme  string // of the publisher's URL
	address string // of the publisher's URL
	start   func(t testing.TB) (stop func())
	collect func(t testing.TB, into *collected)
}

func (b *broker) url() string { return b.scheme + "://" + b.address }

// freeAddress returns an unused loopback address.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func portOf(address string) int {
	a, _ := net.ResolveTCPAddr("tcp", address)
	return a.Port
}

// embedded returns NATS in the test's process; change modifies its options.
func embedded(t testing.TB, change func(*server.Options)) *broker {
	dir, address := t.TempDir(), freeAddress(t)
	b := &broker{name: "embedded", scheme: "nats", address: address, collect: fromJetStream(address)}
	b.start = func(t testing.TB) func() {
		o := &server.Options{Host: "127.0.0.1", Port: portOf(address), JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true}
		if change != nil {
			change(o)
		}
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("the server does not start")
		}
		var once sync.Once
		stop := func() { once.Do(func() { s.Shutdown(); s.WaitForShutdown() }) }
		t.Cleanup(stop)
		return stop
	}
	return b
}

// listener returns NATS' MQTT listener.
func listener(t testing.TB) *broker {
	address := freeAddress(t)
	b := embedded(t, func(o *server.Options) {
		o.ServerName, o.MQTT.Host, o.MQTT.Port = "mqtt", "127.0.0.1", portOf(address)
	})
	b.name, b.scheme, b.address, b.collect = "NATS' listener of MQTT", "mqtt", address, fromMQTT(address)
	return b
}

// program starts a server from a Debian package and waits until it listens.
func program(t testing.TB, address, path string, args ...string) func() {
	t.Helper()
	c := exec.Command(path, args...)
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop := func() { once.Do(func() { _ = c.Process.Signal(syscall.SIGTERM); _ = c.Wait() }) }
	t.Cleanup(stop)
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return stop
		}
		if time.Since(begin) > time.Minute {
			stop()
			t.Fatalf("%s does not listen: %s", path, said.String())
		}
	}
}

// needs returns the path of a program from a Debian package; without it, the test is skipped with a clear message.
func needs(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		t.Skipf("NEEDS %s: make setup-test installs Debian's package of that name", name)
	}
	return path
}

func debianNATS(t testing.TB) *broker {
	path, address, dir := needs(t, "nats-server"), freeAddress(t), t.TempDir()
	b := &broker{name: "Debian's nats-server", scheme: "nats", address: address, collect: fromJetStream(address)}
	b.start = func(t testing.TB) func() {
		return program(t, address, path, "-a", "127.0.0.1", "-p", fmt.Sprint(portOf(address)), "-js", "-sd", dir)
	}
	return b
}

// mosquitto runs as root, because the user that it would otherwise switch to may not exist.
func mosquitto(t testing.TB, more string) *broker {
	path, address, dir := needs(t, "mosquitto"), freeAddress(t), t.TempDir()
	b := &broker{name: "mosquitto", scheme: "mqtt", address: address, collect: fromMQTT(address)}
	text := fmt.Sprintf("listener %d 127.0.0.1\npersistence true\npersistence_location %s/\nuser root\n"+
		"max_queued_messages 100000\n%s", portOf(address), dir, more)
	if more == "" {
		text += "allow_anonymous true\n"
	}
	conf := filepath.Join(dir, "mosquitto.conf")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start = func(t testing.TB) func() { return program(t, address, path, "-c", conf) }
	return b
}

// collected holds the messages that a consumer has received.
type collected struct {
	mu   sync.Mutex
	list []Head
	top  uint64 // the largest number
}

func (c *collected) add(t testing.TB, data []byte) {
	var h Head
	if err := json.Unmarshal(data, &h); err != nil || h.Version != Version {
		t.Errorf("%v: %s", err, data)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list, c.top = append(c.list, h), max(c.top, h.Sequence)
}

func (c *collected) heads() []Head {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Head(nil), c.list...)
}

// fromJetStream collects the messages of a stream, across restarts of the server. It waits for the stream to exist.
func fromJetStream(address string) func(testing.TB, *collected) {
	return func(t testing.TB, into *collected) {
		conn, err := nats.Connect("nats://"+address, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		t.Cleanup(func() { cancel(); <-ended; conn.Close() })
		go func() {
			defer close(ended)
			for next := uint64(1); ctx.Err() == nil; { // message by message, which works across restarts of every server version
				if s, err := js.Stream(ctx, Stream); err == nil {
					for m, err := s.GetMsg(ctx, next); err == nil; m, err = s.GetMsg(ctx, next) {
						into.add(t, m.Data)
						next++
					}
				}
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		}()
	}
}

// fromMQTT collects what arrives over MQTT, across restarts of the server.
func fromMQTT(address string) func(testing.TB, *collected) {
	return func(t testing.TB, into *collected) {
		o := mqtt.NewClientOptions().AddBroker("mqtt://" + address).SetClientID("consumer").SetCleanSession(false)
		o.SetConnectRetry(true).SetConnectRetryInterval(100 * time.Millisecond).SetMaxReconnectInterval(200 * time.Millisecond).SetResumeSubs(true)
		o.SetProtocolVersion(4)
		ready := make(chan struct{})
		var once sync.Once
		o.SetOnConnectHandler(func(c mqtt.Client) {
			c.Subscribe("tegracast/#", 1, func(_ mqtt.Client, m mqtt.Message) { into.add(t, m.Payload()) }).Wait()
			once.Do(func() { close(ready) })
		})
		c := mqtt.NewClient(o)
		c.Connect()
		t.Cleanup(func() { c.Disconnect(0) })
		<-ready
	}
}

// A cable is a link that can be cut: existing connections break, and no new one can be made.
type cable struct {
	address string
	mu      sync.Mutex
	cut     bool
	conns   []net.Conn
}

func newCable(t testing.TB, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{address: l.Addr().String()}
	t.Cleanup(func() { l.Close(); c.set(true) })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil || !c.hold(near, far) {
				near.Close()
				continue
			}
			go func() { _, _ = io.Copy(near, far); near.Close() }()
			go func() { _, _ = io.Copy(far, near); far.Close() }()
		}
	}()
	return c
}

func (c *cable) hold(near, far net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		far.Close()
		return false
	}
	c.conns = append(c.conns, near, far)
	return true
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		for _, x := range c.conns {
			x.Close()
		}
		c.conns = nil
	}
}

// runs starts a publisher; stop ends it cleanly.
func runs(t testing.TB, c Config) (p *Publisher, stop func()) {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Limit == 0 {
		c.Limit = 64 << 20
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return p, stop
}

// await waits until is returns true. The limit of a minute allows for busy machines.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("within a minute there is no %s", what)
		}
	}
}
