// SPDX-License-Identifier: Apache-2.0

//go:build !race

package cuda

// raced is true under the race detector, with which comparisons of pictures take several times as long.
const raced = false
