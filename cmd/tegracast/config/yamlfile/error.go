// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"errors"
	"slices"
)

// An Error is a mistake of the configuration, or a configuration that this machine cannot have. Its text begins with file,
// line and column where it is about a part of the file. Further mistakes of the same file are behind it (All).
type Error struct {
	Err  error
	At   Place // line 0: the file as a whole
	more []*Error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// All are the mistakes that were found at once, in the order of the file.
func (e *Error) All() []*Error {
	all := append([]*Error{e}, e.more...)
	slices.SortStableFunc(all, func(a, b *Error) int {
		return (a.At.line-b.At.line)*(1<<16) + a.At.column - b.At.column
	})
	return all
}

// Join is the first of these errors, with the others behind it; nil if there is none.
func Join(errs ...error) error {
	var first *Error
	for _, err := range errs {
		var e *Error
		switch {
		case err == nil:
		case !errors.As(err, &e):
			return err
		case first == nil:
			first = e
		default:
			first.more = append(append(first.more, e), e.more...)
		}
	}
	if first == nil {
		return nil
	}
	return first
}
