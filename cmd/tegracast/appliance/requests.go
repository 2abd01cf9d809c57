// SPDX-License-Identifier: Apache-2.0

package appliance

import "context"

// requests passes functions to the appliance's main loop, which runs them between two reloads. An error of such a
// function means that the appliance cannot go on.
type requests chan func(context.Context) error

// run has the main loop call do between two reloads, and returns do's result, or ctx's error if ctx ends first; do may
// then be called later, or still run. If do returns a fatal error, the appliance cannot go on.
func (r requests) run(ctx context.Context, do func(context.Context) (result, fatal error)) error {
	answer := make(chan error, 1)
	select {
	case r <- func(ctx context.Context) error {
		result, fatal := do(ctx)
		answer <- result
		return fatal
	}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done(): // the client has closed the connection
		return ctx.Err()
	}
}
