// SPDX-License-Identifier: Apache-2.0

package share

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/accept"
)

// defaultPatience is the time within which a process that has connected must subscribe. Tests set another one
// (Config.patience).
const defaultPatience = 5 * time.Second

// A consumer is a connected process. The sink's lock guards it.
type consumer struct {
	sink *Sink
	conn *net.UnixConn // until it has subscribed
	fd   int           // the connection from then on
	cred *unix.Ucred
	who  string

	patience time.Duration // time limit for the subscription; 0: none

	wants   subscribe
	turn    uint32 // frames to skip before the next one that it wants
	credits uint32
	last    uint64 // number of the last lease given
	held    []lease
	waiting message // the newest frame, waiting for a Latest consumer to become ready
	armed   bool    // the watch reports the consumer's messages, because a frame waits
	known   [maxSlots / 64]uint64

	offered, sent, lost uint64

	header header
	text   []byte
}

// A lease is a frame held by a consumer.
type lease struct {
	id    uint64
	frame *pipeline.Frame
	job   *job // what waits for the frame's results; nil if they have come, or if nothing does
}

// A message is a frame to be sent, and where other processes find it.
type message struct {
	frame  *pipeline.Frame
	file   *os.File
	offset uint64
	job    *job // what waits for the frame's results; nil: nothing
}

func newConsumer(k *Sink, conn *net.UnixConn) (*consumer, error) {
	cred, err := accept.Credentials(conn)
	if err != nil {
		return nil, err
	}
	who := fmt.Sprintf("process %d of user %d", cred.Pid, cred.Uid)
	return &consumer{sink: k, conn: conn, fd: -1, cred: cred, who: who, patience: k.cfg.patience, text: make([]byte, 0, frameSize+groupSize)}, nil
}

// serve waits for the subscription. After that, the sink reads the consumer's messages.
func (c *consumer) serve() {
	if why := c.first(); why != nil {
		c.sink.drop(c, *why)
	}
}

func (c *consumer) first() *bye {
	var room [flagsSize + 1]byte // one byte more than the longest message, to detect longer ones
	if c.patience > 0 {
		if err := c.conn.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
			return &bye{CodeEnd, err.Error()}
		}
	}
	n, err := c.conn.Read(room[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &bye{CodeSlow, fmt.Sprintf("no subscription in %s", c.patience)}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		return &bye{CodeEnd, "the consumer has closed the connection"}
	case err != nil:
		return &bye{CodeEnd, err.Error()}
	}
	return c.subscribe(room[:n])
}

// subscribe handles the first message. It returns nil, or the reason why the connection must end.
func (c *consumer) subscribe(b []byte) *bye {
	k := c.sink
	wants, err := parseSubscribe(b)
	switch {
	case !k.cfg.may(c.cred):
		return &bye{CodeRefused, fmt.Sprintf("user %d and group %d may not have the frames: see users and groups in the configuration", c.cred.Uid, c.cred.Gid)}
	case err != nil:
		return &bye{CodeBroken, err.Error()}
	case wants.answers && k.answers == nil:
		return &bye{CodeRefused, "this output takes no results: connect to the socket of an external stage"}
	case !wants.answers && k.answers != nil:
		return &bye{CodeRefused, "this is the socket of a stage, which needs results: subscribe with them, or connect to an output with share"}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hearAll() // one may have gone
	switch {
	case len(k.consumers) < k.cfg.Consumers:
	case k.answers != nil:
		return &bye{CodeBusy, "another process works for this stage already"}
	default:
		return &bye{CodeBusy, fmt.Sprintf("there are %d consumers already: see consumers of the output", k.cfg.Consumers)}
	}
	c.wants = wants
	if _, there := k.connected[c]; !there {
		return &bye{CodeEnd, "the output ends"}
	}
	if c.fd, err = k.watch.add(c.conn); err == nil {
		err = errors.Join(c.conn.Close(), c.sendMessage(welcome{uint32(k.cfg.Frames), k.cfg.Name, k.format}.append(nil), nil))
	}
	if err != nil {
		return &bye{CodeEnd, err.Error()}
	}
	k.consumers = append(k.consumers, c)
	c.arm()
	k.visits.Info("share: a consumer has connected", "output", k.cfg.Name, "consumer", c.who, "policy", wants.policy, "every", wants.every)
	return nil
}

// hear handles a message after the subscription. It returns nil, or the reason why the connection must end. The lock must
// be held.
func (c *consumer) hear(b []byte) *bye {
	if c.wants.answers && len(b) >= 4 && le.Uint32(b) == kindAnswer {
		return c.answer(b)
	}
	return c.ready(b)
}

// answer handles results. The lock must be held.
func (c *consumer) answer(b []byte) *bye {
	a, err := parseAnswer(b)
	if err != nil {
		return &bye{CodeBroken, err.Error()}
	}
	i := slices.IndexFunc(c.held, func(l lease) bool { return l.id == a.lease })
	if i < 0 || c.held[i].job == nil {
		return &bye{CodeBroken, fmt.Sprintf("results for lease %d, which it does not have, or which has results already", a.lease)}
	}
	if err := c.sink.answers.take(c.held[i].job, &a); err != nil {
		return &bye{CodeBroken, fmt.Sprintf("results of frame %d: %v", c.held[i].frame.Sequence, err)}
	}
	c.held[i].job = nil
	return nil
}

// ready handles a request for frames, or a return. It returns nil, or the reason why the connection must end. The lock must be held.
func (c *consumer) ready(b []byte) *bye {
	r, err := parseReady(b)
	if err != nil {
		return &bye{CodeBroken, err.Error()}
	}
	if r.lease != 0 {
		i := slices.IndexFunc(c.held, func(l lease) bool { return l.id == r.lease })
		if i < 0 {
			return &bye{CodeBroken, fmt.Sprintf("lease %d is given back, which it does not have", r.lease)}
		}
		c.held[i].end()
		c.held = slices.Delete(c.held, i, i+1)
	}
	if most := uint64(c.sink.cfg.Frames); uint64(c.credits)+uint64(r.more)+uint64(len(c.held)) > most {
		return &bye{CodeBroken, fmt.Sprintf("it asks for %d frames, has %d and has asked for %d, and may have %d", r.more, len(c.held), c.credits, most)}
	}
	c.credits += r.more
	if m := c.waiting; m.frame != nil && c.credits > 0 {
		c.waiting = message{}
		c.sendFrame(m)
		m.frame.Release()
	}
	return nil
}

// offer offers a frame to the consumer. The lock must be held.
func (c *consumer) offer(m message) {
	if c.turn > 0 {
		c.turn--
		m.job.end(nil)
		return
	}
	c.turn = c.wants.every - 1
	c.offered++
	switch {
	case c.credits > 0:
		c.sendFrame(m)
	case c.wants.policy == pipeline.Latest:
		c.forget()
		m.frame.Retain()
		c.waiting = m
		c.arm()
	default:
		c.lost++
		m.job.end(nil)
	}
}

// forget drops the waiting frame, if there is one, which the consumer loses. The lock must be held.
func (c *consumer) forget() {
	if c.waiting.frame == nil {
		return
	}
	c.lost++
	c.waiting.job.end(nil)
	c.waiting.frame.Release()
	c.waiting = message{}
}

// end gives the frame back. If its results have not come, they will not.
func (l *lease) end() {
	l.job.end(nil)
	l.frame.Release()
}

// sendFrame sends a frame, which gets a lease. If the consumer's socket is full, the consumer loses the frame. The lock
// must be held.
func (c *consumer) sendFrame(m message) {
	f := m.frame
	h := &c.header
	*h = header{
		slot: uint32(f.Slot()), lease: c.last + 1, sequence: f.Sequence, offset: m.offset, length: uint64(f.Format.Size()), format: f.Format,
		times: f.Times, sent: time.Now(), flags: uint32(f.Flags), crc: f.CRC, offered: c.offered, lost: c.lost,
		grouped: c.wants.groups, group: f.Group,
	}
	if f.CRC != 0 {
		h.flags |= flagCRC
	}
	if len(f.Results) > 0 {
		var err error
		if h.results, err = json.Marshal(f.Results); err != nil || len(h.results) > maxResults {
			h.results, h.flags = nil, h.flags|flagNoResults
		}
	}
	c.text = h.append(c.text[:0])
	var file *os.File
	word, bit := &c.known[h.slot/64], uint64(1)<<(h.slot%64)
	if *word&bit == 0 {
		file = m.file
	}
	if err := c.sendMessage(c.text, file); err != nil {
		c.lost++ // it keeps its credit
		m.job.end(nil)
		return
	}
	*word |= bit
	f.Retain()
	c.last++
	c.held = append(c.held, lease{c.last, f, m.job})
	c.credits--
	c.sent++
}

// arm makes the watch report the consumer's messages if a frame waits for the consumer, or if it returns results, and
// not report them otherwise. If that fails, the messages are read with the next frame or the sweep. The sink's lock must be held.
func (c *consumer) arm() {
	wants := c.waiting.frame != nil || c.wants.answers
	if wants == c.armed {
		return
	}
	events := uint32(unix.EPOLLRDHUP)
	if wants {
		events |= unix.EPOLLIN
	}
	if c.sink.watch.control(unix.EPOLL_CTL_MOD, c.fd, events) == nil {
		c.armed = wants
	}
}

// sendMessage sends a message, with a descriptor if file is not nil. It never waits: a consumer that does not read
// misses messages. If the connection is broken, the next read reports it.
func (c *consumer) sendMessage(text []byte, file *os.File) error {
	if c.fd < 0 { // not subscribed yet
		return c.refuse(text)
	}
	if file != nil {
		_, err := unix.SendmsgN(c.fd, text, unix.UnixRights(int(file.Fd())), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return err
	}
	return send(c.fd, text)
}

// refuse is sendMessage for a consumer that has not subscribed.
func (c *consumer) refuse(text []byte) error {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	controlled := raw.Control(func(fd uintptr) {
		_, err = unix.SendmsgN(int(fd), text, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return errors.Join(controlled, err)
}

func (c *consumer) close() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
		return
	}
	_ = c.conn.Close()
}

// releaseAll takes all frames back. The lock must be held.
func (c *consumer) releaseAll() {
	for _, l := range c.held {
		l.end()
	}
	c.held, c.credits = nil, 0
	c.forget()
}
