// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// keepAlive is the MQTT keep-alive interval.
const keepAlive = 10 * time.Second

// An mqttLink publishes over MQTT 3.1.1 with QoS 1, which NATS' MQTT listener and every broker support. It implements
// only what is needed: a client library uses channels and goroutines for each message, which cost several times as much
// as everything else.
type mqttLink struct {
	conn  net.Conn
	net   *prompted // below conn
	out   []byte    // packets not yet written
	last  uint64    // token of the latest message
	wrote time.Time // time of the last write to conn
	torn  bool      // a write failed and may have left half a packet on conn

	health string            // topic of the board's health
	seen   func(data []byte) // see calls

	watching atomic.Bool // watch has been called
	answered atomic.Bool // the broker has answered it

	mu    sync.Mutex
	acks  []uint16 // packet identifiers
	spare []uint16
	heart time.Time // when something last arrived
}

// identifiers is the number of packet identifiers of messages, 1 to 65534, which are used in turn.
const identifiers = subscription - 1

// subscription is the packet identifier of the subscription.
const subscription = 1<<16 - 1

func identifier(token uint64) uint16 { return uint16(token%identifiers) + 1 }

// topic returns the MQTT topic that corresponds to a subject.
func topic(subject string) string { return strings.ReplaceAll(subject, ".", "/") }

// encrypted returns plain, or a TLS connection over it if the server's URL asks for one.
func (s *Server) encrypted(ctx context.Context, plain net.Conn) (net.Conn, error) {
	_, address := s.address()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	secure, err := s.tls(host)
	if secure == nil || err != nil {
		return plain, err
	}
	c := tls.Client(plain, secure)
	return c, c.HandshakeContext(ctx)
}

func dialMQTT(ctx context.Context, c Config, id uint64, to calls) (link, error) {
	_, address := c.address()
	plain, err := plainly(ctx, address)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Now()) })() // unblocks reads and writes
	below := newPrompted(plain)
	conn, err := c.encrypted(ctx, &below)
	if err == nil {
		err = c.introduce(conn, fmt.Sprintf("tegracast-%s-%016x", c.Board, id))
	}
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	now := time.Now()
	l := &mqttLink{conn: conn, net: &below, wrote: now, heart: now, health: topic(prefix + c.Board + health), seen: to.seen}
	l.net.settled.Store(true)
	go func() { to.lost(l.listen()) }()
	return l, nil
}

// introduce sends the CONNECT packet and checks the reply. It asks for a clean session, so the broker keeps nothing
// after the connection ends.
func (s *Server) introduce(conn net.Conn, client string) error {
	p := &packets.ConnectPacket{
		FixedHeader: packets.FixedHeader{MessageType: packets.Connect}, ProtocolName: "MQTT", ProtocolVersion: 4, CleanSession: true,
		Keepalive: uint16(keepAlive / time.Second), ClientIdentifier: client,
		UsernameFlag: s.User != "", Username: s.User, PasswordFlag: s.User != "", Password: []byte(s.Password),
	}
	if err := p.Write(conn); err != nil {
		return err
	}
	var said [4]byte
	if _, err := io.ReadFull(conn, said[:]); err != nil {
		return fmt.Errorf("the broker does not answer: %w", err)
	}
	if said[0] != packets.Connack<<4 || said[1] != 2 {
		return errNoBroker
	}
	if said[3] != packets.Accepted {
		if err := packets.ConnErrors[said[3]]; err != nil {
			return err
		}
		return fmt.Errorf("the broker refuses the connection with code %d", said[3])
	}
	return nil
}

var errNoBroker = errors.New("the server does not speak MQTT")

// listen reads what the broker sends until the connection ends or the broker sends something unexpected. It always
// returns an error.
func (l *mqttLink) listen() error {
	in := bufio.NewReaderSize(l.conn, 16<<10)
	for {
		kind, err := l.read(in)
		switch {
		case err == nil:
			if kind == packets.Suback {
				l.answered.Store(true)
			}
		case l.unanswered() || l.watching.Load() && errors.Is(err, errNoBroker):
			return fmt.Errorf("%w: %w", errUnwatched, err)
		case errors.Is(err, errNoBroker):
			return err
		default:
			return fmt.Errorf("%w: %w", errLost, err)
		}
		l.mu.Lock()
		l.heart = time.Now()
		l.mu.Unlock()
	}
}

// read reads one packet and returns its type (MQTT 3.1.1, 2.2).
func (l *mqttLink) read(in *bufio.Reader) (kind byte, err error) {
	first, err := in.ReadByte()
	if err != nil {
		return 0, err
	}
	size, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, err
	}
	kind = first >> 4
	switch {
	case first == packets.Puback<<4 && size == 2:
		var id [2]byte
		if _, err := io.ReadFull(in, id[:]); err != nil {
			return 0, err
		}
		if id != [2]byte{} {
			l.mu.Lock()
			l.acks = append(l.acks, binary.BigEndian.Uint16(id[:]))
			l.mu.Unlock()
		}
	case first == packets.Pingresp<<4 && size == 0:
	case !l.watching.Load():
		return 0, errNoBroker
	case first == packets.Suback<<4 && size == 3:
		_, err = in.Discard(3) // whether the broker agrees or not
	case first&^1 == packets.Publish<<4 && size < 1<<28: // QoS 0, as watch asked for
		err = l.published(in, int(size), first&1 != 0)
	default:
		return 0, errNoBroker
	}
	return kind, err
}

// published reads the rest of a PUBLISH packet (3.3). It ignores a retained message, whose sender may have gone long ago,
// one that is too long, and one of another topic, since a broker may rewrite topics.
func (l *mqttLink) published(in *bufio.Reader, size int, retained bool) error {
	head := 2 + len(l.health)
	if retained || size < head || size > head+mostHealth {
		_, err := in.Discard(size)
		return err
	}
	packet := make([]byte, size)
	if _, err := io.ReadFull(in, packet); err != nil {
		return err
	}
	if int(binary.BigEndian.Uint16(packet)) == len(l.health) && string(packet[2:head]) == l.health {
		l.seen(packet[head:])
	}
	return nil
}

// unanswered reports whether the broker has not answered watch.
func (l *mqttLink) unanswered() bool { return l.watching.Load() && !l.answered.Load() }

// watch implements link. It subscribes with QoS 0, so that the messages need no acknowledgement (MQTT 3.1.1, 3.8).
func (l *mqttLink) watch() {
	l.watching.Store(true)
	l.out = append(l.out, packets.Subscribe<<4|1<<1, byte(2+2+len(l.health)+1))
	l.out = binary.BigEndian.AppendUint16(l.out, subscription)
	l.out = binary.BigEndian.AppendUint16(l.out, uint16(len(l.health)))
	l.out = append(append(l.out, l.health...), 0)
}

// send implements link. It asks the broker to retain health messages, so that clients that subscribe later get the
// latest one.
func (l *mqttLink) send(m *store.Message, token uint64) error {
	first := byte(packets.Publish<<4 | 1<<1) // QoS 1
	if strings.HasSuffix(m.Subject, health) && !strings.Contains(m.Subject, results) {
		first |= 1
	}
	l.out = binary.AppendUvarint(append(l.out, first), uint64(2+len(m.Subject)+2+len(m.Data)))
	l.out = binary.BigEndian.AppendUint16(l.out, uint16(len(m.Subject)))
	for i := range len(m.Subject) {
		if c := m.Subject[i]; c == '.' {
			l.out = append(l.out, '/')
		} else {
			l.out = append(l.out, c)
		}
	}
	l.out = append(binary.BigEndian.AppendUint16(l.out, identifier(token)), m.Data...)
	l.last = token
	if len(l.out) >= mostOut {
		return l.write(time.Now())
	}
	return nil
}

func (l *mqttLink) write(now time.Time) error {
	_ = l.conn.SetWriteDeadline(now.Add(writeTime)) // on a closed connection the write below fails
	_, err := l.conn.Write(l.out)
	l.out, l.wrote, l.torn = l.out[:0], now, err != nil
	if err != nil && l.unanswered() { // the connection was closed, which listen may see later
		err = fmt.Errorf("%w: %w", errUnwatched, err)
	}
	return err
}

// flush implements link. It also sends a ping on an idle connection and checks that the broker still answers.
func (l *mqttLink) flush(now time.Time) error {
	defer l.net.next()
	if now.Sub(l.wrote) > keepAlive/2 {
		l.out = append(l.out, packets.Pingreq<<4, 0)
	}
	if len(l.out) == 0 {
		return nil
	}
	l.mu.Lock()
	silent := now.Sub(l.heart)
	l.mu.Unlock()
	if silent > 2*keepAlive && now.Sub(l.wrote) <= keepAlive { // otherwise this process itself was stopped
		return errors.New("the broker is silent")
	}
	return l.write(now)
}

// heard implements link.
func (l *mqttLink) heard(tell func(token uint64, err error)) {
	l.mu.Lock()
	acks := l.acks
	l.acks, l.spare = l.spare[:0], acks
	l.mu.Unlock()
	for _, id := range acks {
		tell(l.last-uint64((identifiers+int(identifier(l.last))-int(id))%identifiers), nil)
	}
}

// close implements link.
func (l *mqttLink) close() {
	if l.out = append(l.out, packets.Disconnect<<4, 0); !l.torn {
		_ = l.write(time.Now()) // the connection closes now whether or not this arrives
	}
	_ = l.conn.Close()
}
