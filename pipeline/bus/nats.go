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
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// Stream is the name of the JetStream stream created for the messages; the others are its limits. If another stream
// already takes the messages, that one is used and left unchanged.
const (
	Stream       = "tegracast"
	streamLimit  = 1 << 30 // bytes for all boards together; the oldest messages make room
	streamTime   = 7 * 24 * time.Hour
	streamRepeat = 2 * time.Minute // how long the server recognises duplicates
)

// A natsLink publishes over JetStream and receives its acknowledgements. The library connects, maintains the connection
// and reads from it. Messages bypass it where possible and are written directly to the connection: the library only
// ever writes whole lines or messages of the protocol (HPUB,
// https://docs.nats.io/reference/reference-protocols/nats-protocol), and takes three times as long to write a message.
type natsLink struct {
	conn  *nats.Conn
	net   *calm  // below conn
	inbox string // prefix of the subjects for acknowledgements; the token follows
	acks  chan *nats.Msg

	id, reply, packet []byte // buffers for the message being sent: its Nats-Msg-Id, its reply subject, and the whole packet

	health string            // subject of the board's health
	seen   func(data []byte) // see calls.seen

	watching *atomic.Bool // watch has been called

	encrypted bool // conn is encrypted: messages must go through the library
	msg       nats.Msg
}

// natsOptions returns the options of a connection to the configured server that does not reconnect by itself. Servers
// that this one advertises are ignored: they would get the token.
func (s *Server) natsOptions(ctx context.Context, name string) ([]nats.Option, error) {
	_, address := s.address()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	o := []nats.Option{
		nats.Name(name), nats.NoReconnect(), nats.IgnoreDiscoveredServers(),
		nats.Timeout(dialTime / 2), nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
	}
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

// A dialer opens connections for the NATS library and remembers the latest one.
type dialer struct {
	ctx       context.Context
	server    *Server
	net       *calm
	encrypted bool
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(_, address string) (net.Conn, error) {
	plain, err := plainly(d.ctx, address)
	if err != nil {
		return nil, err
	}
	d.net = &calm{prompted: newPrompted(plain)}
	c, encrypted, err := d.server.greeted(d.ctx, d.net)
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	d.encrypted = encrypted
	return c, nil
}

// SkipTLSHandshake returns true, so that the library does not encrypt connections: Dial has done so where necessary.
func (d *dialer) SkipTLSHandshake() bool { return true }

func dialNATS(ctx context.Context, c Config, to calls) (link, error) {
	o, err := c.natsOptions(ctx, "tegracast "+c.Board)
	if err != nil {
		return nil, err
	}
	scheme, address := c.address()
	d, buffer := &dialer{ctx: ctx, server: &c.Server}, 1 // everything goes to calm at once
	watching := new(atomic.Bool)
	if scheme == "tls" {
		buffer = 16 << 10 // size of a TLS record
	}
	o = append(o, nats.SetCustomDialer(d), nats.SkipSubjectValidation(), nats.WriteBufferSize(buffer), nats.NoEcho(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // of a subscription that the server refuses: watch goes without it
		nats.ClosedHandler(func(conn *nats.Conn) {
			err := cmp.Or(conn.LastError(), errLost)
			if watching.Load() && errors.Is(err, errBeyond) {
				err = fmt.Errorf("%w: %w", errUnwatched, err)
			}
			to.lost(err)
		}))
	conn, err := nats.Connect(scheme+"://"+address, o...)
	if err != nil {
		return nil, err
	}
	l := &natsLink{
		conn: conn, net: d.net, inbox: conn.NewInbox() + ".", acks: make(chan *nats.Msg, 4*most), // of two streams each message has two
		health: prefix + c.Board + health, seen: to.seen, watching: watching,
		msg: nats.Msg{Header: nats.Header{jetstream.MsgIDHeader: {""}}}, encrypted: d.encrypted, // a server of nats://, too, may ask for that
	}
	if err := l.open(ctx, c); err != nil {
		conn.Close()
		return nil, err
	}
	l.net.settled.Store(true)
	return l, nil
}

// open subscribes to the acknowledgements, and creates a stream if the server says that none takes the messages.
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
		c.Logger.Info("the bus has no stream for the messages: one is created", "stream", Stream, "bytes", streamLimit, "age", streamTime)
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: Stream, Subjects: []string{prefix + ">"}, MaxBytes: streamLimit, MaxAge: streamTime, Duplicates: streamRepeat,
		})
		if err != nil {
			return fmt.Errorf("no stream stores %s>, and none can be created: %w", prefix, err)
		}
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: start the server with JetStream (nats-server -js)", err)
	}
	return ctx.Err() // a client that may not query streams may still publish
}

// apiTooLarge is JetStream's error code for a message larger than its stream accepts.
const apiTooLarge = 10054

// acknowledged parses JetStream's acknowledgement of a message. It returns nil if the message was stored, and an error
// that wraps errRefused if it never will be.
func acknowledged(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return errors.New("no stream of JetStream stores the message: create one, or allow this user to create one")
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

// send implements link. The message's number is its Nats-Msg-Id, by which the server recognises duplicates.
func (l *natsLink) send(m *store.Message, token uint64) error {
	if int64(len(m.Data))+1024 > l.conn.MaxPayload() { // room for the headers
		return fmt.Errorf("%w: its limit is %d bytes", errRefused, l.conn.MaxPayload())
	}
	id := strconv.AppendUint(l.id[:0], m.ID, 16)
	id = strconv.AppendUint(append(id, '-'), m.Epoch, 10)
	id = strconv.AppendUint(append(id, '-'), m.Sequence, 10)
	l.id = append(append(id, '-'), m.Subject...)
	l.reply = strconv.AppendUint(append(l.reply[:0], l.inbox...), token, 36)
	if l.encrypted { // the library encrypts, and retains nothing of the message
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

// watch implements link.
func (l *natsLink) watch() {
	l.watching.Store(true)
	s, err := l.conn.Subscribe(l.health, func(m *nats.Msg) { l.seen(m.Data) })
	if err == nil {
		_ = s.SetPendingLimits(mostNamesakes, 2*mostHealth) // the default stays
	}
}

// close implements link.
func (l *natsLink) close() { l.conn.Close() }
