// SPDX-License-Identifier: Apache-2.0

package resolvetest

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Silence replaces the process's name server with one that receives queries but never replies, until the test ends.
// Queries are signalled on the channel, which holds at most one value and is closed at the end.
func Silence(t *testing.T) (asked <-chan struct{}) {
	t.Helper()
	questions := make(chan struct{}, 1)
	serve(t, func([]byte) []byte {
		select {
		case questions <- struct{}{}:
		default:
		}
		return nil
	}, func() { close(questions) })
	return questions
}

// Answer replaces the process's name server, until the test ends, with one that answers a query for any host with the
// code and the IPv4 addresses from addrs. With a code other than success, addrs must return no addresses.
func Answer(t *testing.T, addrs func() (dnsmessage.RCode, []netip.Addr)) {
	t.Helper()
	serve(t, func(question []byte) []byte {
		code, list := addrs()
		return Reply(question, code, list...)
	}, func() {})
}

// Reply returns the reply to a query (RFC 1035). It has the given code and, if the query asks for IPv4 addresses,
// addrs. It is nil if question is not a message with exactly one question.
func Reply(question []byte, code dnsmessage.RCode, addrs ...netip.Addr) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.RecursionAvailable, m.RCode, m.Additionals = true, true, code, nil
	for _, a := range addrs {
		if m.Questions[0].Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func serve(t *testing.T, reply func(question []byte) []byte, end func()) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Resolver: before}).DialContext(ctx, "udp", server.LocalAddr().String()) // lookups may outlive the test
	}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer end()
		for buffer := make([]byte, 512); ; {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer := reply(buffer[:n]); answer != nil {
				_, _ = server.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
		net.DefaultResolver = before
	})
}
