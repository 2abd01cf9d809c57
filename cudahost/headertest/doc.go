// SPDX-License-Identifier: Apache-2.0

// Package headertest lets tests compare what Go code passes to a C library with the library's header. That does not
// show how the library behaves.
package headertest
