// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// Limits on what is read from a bus, since others may publish there too.
const (
	mostBoards      = 4096
	mostHealth      = 256 << 10 // bytes of one message
	mostHealthBytes = 64 << 20  // bytes of all messages
)

// ErrMore means that a bus holds more boards, or more bytes of their health, than this package reads.
var ErrMore = fmt.Errorf("the bus has more than %d boards, or more than %d MiB of their health: the others are omitted",
	mostBoards, mostHealthBytes>>20)

// Early is the time by which a board's clock may run ahead of this machine's before its time counts as lying in the
// future.
const Early = 5 * time.Second

// Boards asks a server for the latest health of every board and returns the list sorted by name. foreign counts the
// messages found there that are not listed, because they are malformed, of another version, or published under the name
// of another board. ctx must have a deadline; on an error Boards also returns what it has received so far.
func Boards(ctx context.Context, s Server) (list []Health, foreign int, err error) {
	ask := askNATS
	if s.MQTT() {
		ask = askMQTT
	}
	latest, count, bytes := map[string]Health{}, 0, 0
	err = ask(ctx, s, func(subject string, data []byte) error {
		count, bytes = count+1, bytes+len(data)
		if count > mostBoards || bytes > mostHealthBytes {
			return ErrMore
		}
		h, err := parseHealth(subject, data)
		if err != nil {
			foreign++
		} else if was, is := latest[h.Board]; !is || newer(h.At, was.At, time.Now()) {
			latest[h.Board] = h
		}
		return nil
	})
	list = slices.Collect(maps.Values(latest))
	slices.SortFunc(list, func(a, b Health) int { return cmp.Compare(a.Board, b.Board) })
	return list, foreign, err
}

// newer reports whether a message dated a replaces one dated b. A message dated in the future never replaces one that
// is not, because no later message could replace it in turn.
func newer(a, b, now time.Time) bool {
	if future := a.After(now.Add(Early)); future != b.After(now.Add(Early)) {
		return !future
	}
	return a.After(b)
}

// parseHealth parses a message that anybody may have published. The board in the message must match the one in the
// subject: a server can restrict who publishes under a subject, but not what a message says.
func parseHealth(subject string, data []byte) (h Health, err error) {
	if len(data) > mostHealth {
		return h, fmt.Errorf("%d bytes of health, more than %d", len(data), mostHealth)
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, err
	}
	if h.Version != Version {
		return h, fmt.Errorf("version %d of the message, want %d", h.Version, Version)
	}
	if subject != prefix+h.Board+health {
		return h, fmt.Errorf("board %q in a message of %q", h.Board, subject)
	}
	return h, CheckBoard(h.Board)
}

// askNATS calls each with the latest health message of every board, which it reads from the stream that stores these
// messages. It stops at the first error.
func askNATS(ctx context.Context, s Server, each func(subject string, data []byte) error) error {
	o, err := s.natsOptions(ctx, "tegracast fleet")
	if err != nil {
		return err
	}
	scheme, address := s.address()
	conn, err := nats.Connect(scheme+"://"+address, append(o, nats.SetCustomDialer(&dialer{ctx: ctx, server: &s}))...)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	name, err := js.StreamNameBySubject(ctx, prefix+"*"+health)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound): // no board has published yet
		return nil
	case err != nil:
		return err
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix+"*"+health))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		m, err := stream.GetLastMsgForSubject(ctx, subject)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // it has just been dropped to make room
		case err != nil:
			return err
		default:
			if err := each(m.Subject, m.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

// mqttOptions returns the options of a connection that does not reconnect by itself and for which the broker keeps no
// session.
func (s *Server) mqttOptions(ctx context.Context, client string) *mqtt.ClientOptions {
	scheme, address := s.address()
	o := mqtt.NewClientOptions().AddBroker(scheme + "://" + address).SetClientID(client).SetProtocolVersion(4).SetCleanSession(true)
	o.SetAutoReconnect(false).SetConnectRetry(false).SetKeepAlive(keepAlive).SetPingTimeout(keepAlive / 2)
	o.SetConnectTimeout(dialTime / 2).SetWriteTimeout(writeTime)
	if deadline, is := ctx.Deadline(); is {
		o.SetConnectTimeout(max(time.Millisecond, min(dialTime/2, time.Until(deadline))))
	}
	o.SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (net.Conn, error) {
		plain, err := plainly(ctx, address)
		if err != nil {
			return nil, err
		}
		c, err := s.encrypted(ctx, plain)
		if err != nil {
			return nil, errors.Join(err, plain.Close())
		}
		return c, nil
	})
	if s.User != "" {
		o.SetUsername(s.User).SetPassword(s.Password)
	}
	return o
}

// connectMQTT connects; it gives up when ctx ends.
func connectMQTT(ctx context.Context, o *mqtt.ClientOptions) (mqtt.Client, error) {
	client := mqtt.NewClient(o)
	t := client.Connect()
	select {
	case <-t.Done():
		return client, t.Error()
	case <-ctx.Done():
		client.Disconnect(0)
		return nil, ctx.Err()
	}
}

// quiet is the time for which a broker must send nothing before its retained messages count as complete.
const quiet = time.Second

// askMQTT calls each with every health message that the broker retains, one per board, until it returns an error or
// none has arrived for the time quiet. It ignores messages published in the meantime, which lack the RETAIN flag (MQTT
// 3.1.1, 3.3.1.3): on a busy bus they would never end.
func askMQTT(ctx context.Context, s Server, each func(subject string, data []byte) error) error {
	o := s.mqttOptions(ctx, fmt.Sprintf("tegracast-fleet-%016x", store.NewID()))
	client, err := connectMQTT(ctx, o)
	if err != nil {
		return err
	}
	defer client.Disconnect(0)
	got, ended := make(chan mqtt.Message), make(chan struct{})
	defer close(ended) // before Disconnect, which waits for the function below
	t := client.Subscribe(topic(prefix+"+"+health), 1, func(_ mqtt.Client, m mqtt.Message) {
		if !m.Retained() {
			return
		}
		select { // ends: askMQTT closes ended when it returns
		case got <- m:
		case <-ended:
		}
	})
	wait := time.NewTimer(quiet)
	defer wait.Stop()
	for confirmed := t.Done(); ; {
		select {
		case m := <-got:
			if err := each(strings.ReplaceAll(m.Topic(), "/", "."), m.Payload()); err != nil {
				return err
			}
			wait.Reset(quiet)
		case <-confirmed:
			if t.Error() != nil {
				return t.Error()
			}
			confirmed = nil
			wait.Reset(quiet)
		case <-wait.C:
			if confirmed == nil {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
