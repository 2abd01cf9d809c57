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
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// Boards asks a server for the latest health of every board, ordered by name. foreign counts messages that no board of this version has
// sent. ctx must have a deadline.
func Boards(ctx context.Context, s Server) (list []Health, foreign int, err error) {
	ask := askNATS
	if s.MQTT() {
		ask = askMQTT
	}
	err = ask(ctx, s, func(data []byte) {
		h, err := parseHealth(data)
		if err != nil {
			foreign++
			return
		}
		list = append(list, h)
	})
	newer := map[string]Health{} // a board may tell while it is asked
	for _, h := range list {
		if h.At.After(newer[h.Board].At) {
			newer[h.Board] = h
		}
	}
	list = slices.Collect(maps.Values(newer))
	slices.SortFunc(list, func(a, b Health) int { return cmp.Compare(a.Board, b.Board) })
	return list, foreign, err
}

// parseHealth reads a message that anybody may have sent.
func parseHealth(data []byte) (h Health, err error) {
	if err := json.Unmarshal(data, &h); err != nil {
		return h, err
	}
	if h.Version != Version {
		return h, fmt.Errorf("version %d of the message, want %d", h.Version, Version)
	}
	return h, CheckBoard(h.Board)
}

// askNATS takes the last message of each board from the stream that has them.
func askNATS(ctx context.Context, s Server, each func([]byte)) error {
	o, err := s.natsOptions(ctx, "tegracast fleet")
	if err != nil {
		return err
	}
	scheme, address := s.address()
	conn, err := nats.Connect(scheme+"://"+address, o...)
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
	case errors.Is(err, jetstream.ErrStreamNotFound): // no board has been there yet
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
		case errors.Is(err, jetstream.ErrMsgNotFound): // it has just made room
		case err != nil:
			return err
		default:
			each(m.Data)
		}
	}
	return nil
}

// mqttOptions are those of a connection, which is not made again by itself. The broker keeps nothing for it.
func (s *Server) mqttOptions(ctx context.Context, client string) *mqtt.ClientOptions {
	scheme, address := s.address()
	o := mqtt.NewClientOptions().AddBroker(scheme + "://" + address).SetClientID(client).SetProtocolVersion(4).SetCleanSession(true)
	o.SetAutoReconnect(false).SetConnectRetry(false).SetOrderMatters(false).SetKeepAlive(keepAlive).SetPingTimeout(keepAlive / 2)
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

// connectMQTT connects, or gives up with ctx.
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

// quiet is how long nothing comes when a broker has sent all that it keeps.
const quiet = time.Second

// askMQTT takes the messages that the broker keeps, one of each board.
func askMQTT(ctx context.Context, s Server, each func([]byte)) error {
	o := s.mqttOptions(ctx, fmt.Sprintf("tegracast-fleet-%016x", store.NewID()))
	got, ended := make(chan []byte), make(chan struct{})
	defer close(ended)
	client, err := connectMQTT(ctx, o)
	if err != nil {
		return err
	}
	defer client.Disconnect(0)
	t := client.Subscribe(topic(prefix+"+"+health), 1, func(_ mqtt.Client, m mqtt.Message) {
		select { // ends: Boards closes ended when it returns
		case got <- m.Payload():
		case <-ended:
		}
	})
	wait := time.NewTimer(quiet)
	defer wait.Stop()
	for confirmed := t.Done(); ; {
		select {
		case data := <-got:
			each(data)
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
