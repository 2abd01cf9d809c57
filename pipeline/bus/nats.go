// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// Stream is what JetStream keeps the messages in, unless somebody has made another stream for them. Then it is left alone.
const (
	Stream       = "tegracast"
	streamLimit  = 1 << 30 // bytes, of all boards together; the oldest messages make room
	streamTime   = 7 * 24 * time.Hour
	streamRepeat = 2 * time.Minute // in which the server knows a message again
)

// A natsLink publishes by JetStream, and hears its acknowledgements. The library connects, looks after the connection and reads. Messages
// are written beside it, where that can be done: everything that it writes is a whole line or message of the protocol (HPUB,
// https://docs.nats.io/reference/reference-protocols/nats-protocol), and to write a message itself takes it three times as long.
type natsLink struct {
	conn  *nats.Conn
	net   *calm  // of conn
	inbox string // what acknowledgements are sent to, below which is the token
	acks  chan *nats.Msg

	id, reply, packet []byte // of the message that is sent: its Nats-Msg-Id, where it is acknowledged, all of it

	encrypted bool // conn encrypts: messages have to go through it
	msg       nats.Msg
}

// natsOptions are those of a connection, which is not made again by itself.
func (s *Server) natsOptions(ctx context.Context, name string) ([]nats.Option, error) {
	_, address := s.address()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	o := []nats.Option{nats.Name(name), nats.NoReconnect(), nats.Timeout(dialTime / 2), nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2)}
	if deadline, is := ctx.Deadline(); is {
		o = append(o, nats.Timeout(max(time.Millisecond, min(dialTime/2, time.Until(deadline)))))
	}
	switch {
	case s.User != "":
		o = append(o, nats.UserInfo(s.User, s.Password))
	case s.Token != "":
		o = append(o, nats.Token(s.Token))
	case s.Credentials != "":
		o = append(o, nats.UserCredentials(s.Credentials))
	}
	secure, err := s.tls(host)
	if secure != nil {
		o = append(o, nats.Secure(secure))
	}
	return o, err
}

// A dialer makes a connection for NATS.
type dialer struct {
	ctx context.Context
	net *calm
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(_, address string) (net.Conn, error) {
	c, err := plainly(d.ctx, address)
	if err != nil {
		return nil, err
	}
	d.net = &calm{prompted: newPrompted(c)}
	return d.net, nil
}

func dialNATS(ctx context.Context, c Config, lost func(error)) (link, error) {
	o, err := c.natsOptions(ctx, "tegracast "+c.Board)
	if err != nil {
		return nil, err
	}
	scheme, address := c.address()
	d, buffer := &dialer{ctx: ctx}, 1 // everything goes to calm at once
	if scheme == "tls" {
		buffer = 16 << 10 // that of a record
	}
	o = append(o, nats.SetCustomDialer(d), nats.SkipSubjectValidation(), nats.WriteBufferSize(buffer),
		nats.ClosedHandler(func(conn *nats.Conn) { lost(cmp.Or(conn.LastError(), errLost)) }))
	conn, err := nats.Connect(scheme+"://"+address, o...)
	if err != nil {
		return nil, err
	}
	l := &natsLink{
		conn: conn, net: d.net, inbox: conn.NewInbox() + ".", acks: make(chan *nats.Msg, 4*most), // of two streams each message has two
		msg: nats.Msg{Header: nats.Header{jetstream.MsgIDHeader: {""}}},
	}
	_, plain := conn.TLSConnectionState()
	l.encrypted = plain == nil // a server of nats://, too, may ask for that
	if err := l.open(ctx, c); err != nil {
		conn.Close()
		return nil, err
	}
	l.net.settled.Store(true)
	return l, nil
}

// open listens for acknowledgements, and sees to it that a stream takes the messages.
func (l *natsLink) open(ctx context.Context, c Config) error {
	if !l.conn.HeadersSupported() {
		return nats.ErrHeadersNotSupported
	}
	if _, err := l.conn.ChanSubscribe(l.inbox+"*", l.acks); err != nil {
		return err
	}
	js, err := jetstream.New(l.conn)
	if err != nil {
		return err
	}
	_, err = js.StreamNameBySubject(ctx, prefix+c.Board+health)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.Logger.Info("the bus has no stream for the messages: one is made", "stream", Stream, "bytes", streamLimit, "age", streamTime)
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: Stream, Subjects: []string{prefix + ">"}, MaxBytes: streamLimit, MaxAge: streamTime, Duplicates: streamRepeat,
		})
		if err != nil {
			return fmt.Errorf("no stream takes %s>, and none can be made: %w", prefix, err)
		}
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: start the server with JetStream (nats-server -js)", err)
	}
	return ctx.Err() // who may not ask for streams may still publish
}

// apiTooLarge is JetStream's code for a message that is larger than its stream takes.
const apiTooLarge = 10054

// acknowledged is what JetStream says of a message; nil: it has it.
func acknowledged(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return errors.New("no stream of JetStream takes the message: make one, or let this user make one")
	}
	if bytes.HasPrefix(m.Data, []byte(`{"stream":`)) && !bytes.Contains(m.Data, []byte(`"error"`)) {
		return nil
	}
	var said struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &said); {
	case err != nil:
		return fmt.Errorf("the server's acknowledgement: %w", err)
	case said.Error != nil && said.Error.ErrorCode == apiTooLarge:
		return fmt.Errorf("%w: %w", errRefused, said.Error)
	case said.Error != nil:
		return said.Error
	case said.Stream == "":
		return errors.New("the server's acknowledgement names no stream")
	}
	return nil
}

// send implements link. The server knows a message again by its number.
func (l *natsLink) send(m *store.Message, token uint64) error {
	if int64(len(m.Data))+1024 > l.conn.MaxPayload() { // with its headers
		return fmt.Errorf("%w: it takes %d bytes", errRefused, l.conn.MaxPayload())
	}
	id := strconv.AppendUint(l.id[:0], m.ID, 16)
	id = strconv.AppendUint(append(id, '-'), m.Epoch, 10)
	id = strconv.AppendUint(append(id, '-'), m.Sequence, 10)
	l.id = append(append(id, '-'), m.Subject...)
	l.reply = strconv.AppendUint(append(l.reply[:0], l.inbox...), token, 36)
	if l.encrypted { // the library encrypts, and keeps nothing of it
		l.msg.Header[jetstream.MsgIDHeader][0] = string(l.id)
		l.msg.Subject, l.msg.Reply, l.msg.Data = m.Subject, string(l.reply), m.Data
		return l.conn.PublishMsg(&l.msg)
	}
	const begin, end = "NATS/1.0\r\n" + jetstream.MsgIDHeader + ": ", "\r\n\r\n"
	head := len(begin) + len(l.id) + len(end)
	b := append(append(l.packet[:0], "HPUB "...), m.Subject...)
	b = append(append(append(b, ' '), l.reply...), ' ')
	b = append(strconv.AppendInt(b, int64(head), 10), ' ')
	b = append(strconv.AppendInt(b, int64(head+len(m.Data)), 10), "\r\n"+begin...)
	b = append(append(b, l.id...), end...)
	l.packet = append(append(b, m.Data...), "\r\n"...)
	_, err := l.net.Write(l.packet)
	return err
}

// flush implements link.
func (l *natsLink) flush(time.Time) error {
	err := l.net.flush()
	l.net.next()
	return err
}

// heard implements link.
func (l *natsLink) heard(tell func(token uint64, err error)) {
	for {
		select {
		case m := <-l.acks:
			if token, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, l.inbox), 36, 64); err == nil {
				tell(token, acknowledged(m))
			}
		default:
			return
		}
	}
}

// close implements link.
func (l *natsLink) close() { l.conn.Close() }
