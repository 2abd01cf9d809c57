// SPDX-License-Identifier: Apache-2.0

// Package resolvetest is for tests of what happens when no name server answers.
package resolvetest

import (
	"context"
	"net"
	"testing"
)

// Silence replaces the process's name server by one that takes questions and never answers, until the test ends. The channel gets a value
// for questions, unless one waits there.
func Silence(t *testing.T) (asked <-chan struct{}) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	questions, before := make(chan struct{}, 1), net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Resolver: before}).DialContext(ctx, "udp", server.LocalAddr().String()) // look-ups may outlive the test
	}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(questions)
		for buffer := make([]byte, 512); ; {
			if _, _, err := server.ReadFrom(buffer); err != nil {
				return
			}
			select {
			case questions <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
		net.DefaultResolver = before
	})
	return questions
}
