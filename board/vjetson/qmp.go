// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
)

// qmp is a client of QEMU's monitor (QEMU Machine Protocol specification, 2).
type qmp struct {
	conn   *net.UnixConn
	call   sync.Mutex // one command at a time
	answer chan qmpMessage
	ended  chan struct{} // closed when the monitor has ended

	mu      sync.Mutex
	waiting map[string]chan struct{} // waiters for DEVICE_DELETED, by the device's id
}

type qmpMessage struct {
	Return json.RawMessage
	Error  *struct{ Class, Desc string }
	Event  string
	Data   struct{ Device string }
}

func newQMP(conn *net.UnixConn) *qmp {
	q := &qmp{
		conn: conn, answer: make(chan qmpMessage, 1), ended: make(chan struct{}),
		waiting: make(map[string]chan struct{}),
	}
	go q.read()
	return q
}

func (q *qmp) read() {
	defer close(q.ended)
	for dec := json.NewDecoder(q.conn); ; {
		var m qmpMessage
		if dec.Decode(&m) != nil {
			return
		}
		switch {
		case m.Event == "DEVICE_DELETED":
			q.mu.Lock()
			if gone := q.waiting[m.Data.Device]; gone != nil {
				close(gone)
				delete(q.waiting, m.Data.Device)
			}
			q.mu.Unlock()
		case m.Return != nil || m.Error != nil:
			select {
			case q.answer <- m:
			default: // of an abandoned command
			}
		}
	}
}

func (q *qmp) execute(ctx context.Context, command string, args any) error {
	_, err := q.query(ctx, command, args)
	return err
}

// human executes a command of the human monitor and returns its output.
func (q *qmp) human(ctx context.Context, line string) (says string, err error) {
	answer, err := q.query(ctx, "human-monitor-command", map[string]string{"command-line": line})
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(answer, &says); err != nil {
		return "", fmt.Errorf("vjetson: monitor: %s: %w", line, err)
	}
	return says, nil
}

func (q *qmp) query(ctx context.Context, command string, args any) (json.RawMessage, error) {
	q.call.Lock()
	defer q.call.Unlock()
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return nil, err
	}
	select {
	case <-q.answer: // a late answer
	default:
	}
	_, err = q.conn.Write(b)
	switch {
	case portEnded(err):
		return nil, fmt.Errorf("vjetson: monitor: %s: %w", command, ErrEnded)
	case err != nil:
		return nil, fmt.Errorf("vjetson: monitor: %s: %w", command, err)
	}
	select {
	case m := <-q.answer:
		if m.Error != nil {
			return nil, fmt.Errorf("vjetson: monitor: %s: %s", command, m.Error.Desc)
		}
		return m.Return, nil
	case <-q.ended:
		return nil, fmt.Errorf("vjetson: monitor: %s: %w", command, ErrEnded)
	case <-ctx.Done():
		return nil, fmt.Errorf("vjetson: monitor: %s: %w", command, context.Cause(ctx))
	}
}

// unplug removes a device and waits until the guest has released it.
func (q *qmp) unplug(ctx context.Context, id string) error {
	gone := make(chan struct{})
	q.mu.Lock()
	q.waiting[id] = gone
	q.mu.Unlock()
	if err := q.execute(ctx, "device_del", map[string]string{"id": id}); err != nil {
		return err
	}
	select {
	case <-gone:
		return nil
	case <-q.ended:
		return fmt.Errorf("vjetson: unplug %s: %w", id, ErrEnded)
	case <-ctx.Done():
		return fmt.Errorf("vjetson: unplug %s: the guest keeps it: %w", id, context.Cause(ctx))
	}
}
