// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	peerVariable = "TEGRACAST_UCX_PEER"

	idEcho  = 1 // the peer sends the header and data back
	idSum   = 2 // the peer replies with the CRC of the data
	idStall = 3 // the peer keeps the message and never fetches its data
	idMeet  = 4 // the peer connects to the worker whose address is the data
	idSink  = 5 // the peer fetches the data, always to the same place
)

// peer is the other process: it listens, prints its address, and replies until its input ends.
func peer() int {
	c, err := Open(Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w, err := c.NewWorker()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	join := func(m *Message) {
		if _, err := w.Connect(m.Data, EndpointOptions{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	place := [][]byte{make([]byte, 8<<20)}
	sink := func(m *Message) {
		if m.Rendezvous {
			if err := m.Receive(place, nil, nil); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	for id, f := range map[uint16]func(*Message){idEcho: echo, idSum: sum, idStall: stall, idMeet: join, idSink: sink} {
		if err := w.Handle(id, f); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	var endpoints []*Endpoint
	l, err := w.Listen(loopback, func(r *ConnRequest) {
		e, err := r.Accept(EndpointOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		endpoints = append(endpoints, e)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	address, err := w.Address()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("%v %x\n", l.Addr(), address)
	io.Copy(io.Discard, os.Stdin)
	c.Close() // whatever is still open
	return 0
}

// stall leaves a message as Receive does whose data does not come.
func stall(m *Message) { m.fetched = true }

func echo(m *Message) {
	if err := m.Endpoint.Send(&Outgoing{ID: idEcho, Header: m.Header, Data: [][]byte{bytes.Clone(m.Data)}}, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func sum(m *Message) {
	e := m.Endpoint
	answer := func(b []byte) {
		crc := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b))
		if err := e.Send(&Outgoing{ID: idSum, Header: crc, Protocol: Eager}, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if !m.Rendezvous {
		answer(m.Data)
		return
	}
	b := make([]byte, m.Length)
	if err := m.Receive([][]byte{b}, nil, func(n int, err error) { answer(b[:n]) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// A process is a running peer.
type process struct {
	*exec.Cmd
	addr    netip.AddrPort
	address []byte
}

// start starts a peer in a separate process, which ends with the test.
func start(t testing.TB, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(append(os.Environ(), peerVariable+"=1"), env...), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the peer says %q: %v", line, err)
	}
	p := &process{Cmd: cmd}
	where, address, _ := strings.Cut(strings.TrimSpace(line), " ")
	p.addr = netip.MustParseAddrPort(where)
	if _, err := fmt.Sscanf(address, "%x", &p.address); err != nil {
		t.Fatal(err)
	}
	return p
}

// stop stops the peer, and waits until none of its threads runs.
func (p *process) stop(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		running := 0
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Process.Pid))
		if err != nil || len(files) == 0 {
			t.Fatal("the peer has no threads: ", err)
		}
		for _, f := range files {
			b, _ := os.ReadFile(f)
			if _, state, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(state, "T") {
				running++
			}
		}
		if running == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the peer does not stop")
}
