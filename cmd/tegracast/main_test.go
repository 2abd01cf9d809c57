// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// TestUntilSignal checks that a signal ends the program like its regular end. With another cause serve took it for a
// fault and ended with status 1.
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

// TestStatusOfWhatPasses checks that a temporary lack of resources is not reported as a mistake in the configuration,
// after which the service manager would not try again.
func TestStatusOfWhatPasses(t *testing.T) {
	placed := func(err error) error { return &yamlfile.Error{Err: fmt.Errorf("frame slot: memfd_create: %w", err)} }
	for _, tt := range []struct {
		err  error
		want int
	}{
		{placed(syscall.EMFILE), exitFailure},
		{placed(syscall.ENOMEM), exitFailure},
		{placed(syscall.EROFS), exitFailure},
		{placed(syscall.ESTALE), exitFailure},
		{placed(syscall.ENOENT), exitUsage},
		{placed(errors.New("x")), exitUsage},
		{terminal.UsageError{Err: syscall.EMFILE}, exitUsage},
		{errors.New("x"), exitFailure},
	} {
		if got := statusOf(tt.err); got != tt.want {
			t.Errorf("%v: status %d, want %d", tt.err, got, tt.want)
		}
	}
}
