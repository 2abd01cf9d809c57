// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// TestUntilSignal: a signal ends the program as its own end does. With another cause serve took it for a fault, and ended with status 1.
func TestUntilSignal(t *testing.T) {
	ctx := untilSignal()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); cause.Error() != context.Canceled.Error() {
		t.Errorf("the cause is %v", cause)
	}
}
