// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// An mqttLink publishes by MQTT 3.1.1 with QoS 1, which NATS' listener and every broker speak.
type mqttLink struct {
	client mqtt.Client
	sent   chan sent
	ended  chan struct{}
}

type sent struct {
	number uint64
	token  mqtt.Token
}

// Topic is what a subject is called by MQTT.
func topic(subject string) string { return strings.ReplaceAll(subject, ".", "/") }

// keepAlive is how often a connection is looked after.
const keepAlive = 10 * time.Second

// mqttOptions are those of a connection, which is not made again by itself. The broker keeps nothing for it.
func (s *Server) mqttOptions(ctx context.Context, client string) (*mqtt.ClientOptions, error) {
	scheme, address := s.address()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	o := mqtt.NewClientOptions().AddBroker(scheme + "://" + address).SetClientID(client).SetProtocolVersion(4).SetCleanSession(true)
	o.SetAutoReconnect(false).SetConnectRetry(false).SetOrderMatters(false).SetKeepAlive(keepAlive).SetPingTimeout(keepAlive / 2)
	o.SetConnectTimeout(dialTime / 2).SetWriteTimeout(dialTime / 2)
	if deadline, is := ctx.Deadline(); is {
		o.SetConnectTimeout(max(time.Millisecond, min(dialTime/2, time.Until(deadline))))
	}
	secure, err := s.tls(host)
	o.SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (net.Conn, error) {
		plain, err := calmly(ctx, address)
		if err != nil {
			return nil, err
		}
		c := plain
		if secure != nil {
			encrypted := tls.Client(plain, secure)
			if err := encrypted.HandshakeContext(ctx); err != nil {
				return nil, errors.Join(err, plain.Close())
			}
			c = encrypted
		}
		return &buffered{c, bufio.NewReaderSize(c, 16<<10)}, nil
	})
	if s.User != "" {
		o.SetUsername(s.User).SetPassword(s.Password)
	}
	return o, err
}

// A buffered connection is read in large pieces: packets of MQTT are small.
type buffered struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements net.Conn.
func (b *buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }

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

func dialMQTT(ctx context.Context, c Config, id uint64, tell heard) (link, error) {
	o, err := c.mqttOptions(ctx, fmt.Sprintf("tegracast-%s-%016x", c.Board, id))
	if err != nil {
		return nil, err
	}
	o.SetConnectionLostHandler(func(_ mqtt.Client, err error) { tell(none, cmp.Or(err, errLost)) })
	client, err := connectMQTT(ctx, o)
	if err != nil {
		return nil, err
	}
	l := &mqttLink{client: client, sent: make(chan sent, most), ended: make(chan struct{})}
	go l.listen(tell)
	return l, nil
}

// listen tells what the broker has acknowledged, in the order of the messages.
func (l *mqttLink) listen(tell heard) {
	for {
		select {
		case s := <-l.sent:
			select {
			case <-s.token.Done():
				tell(s.number, s.token.Error())
			case <-l.ended:
				return
			}
		case <-l.ended:
			return
		}
	}
}

// send implements link. The broker keeps the latest health, for those who ask later.
func (l *mqttLink) send(m *store.Message, token uint64) error {
	l.sent <- sent{token, l.client.Publish(topic(m.Subject), 1, strings.HasSuffix(m.Subject, health), m.Data)}
	return nil
}

// close implements link.
func (l *mqttLink) close() {
	close(l.ended)
	l.client.Disconnect(100)
}
