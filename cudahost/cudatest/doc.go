// SPDX-License-Identifier: Apache-2.0

// Package cudatest serves the tests of packages that use CUDA, on machines with a GPU and without.
package cudatest
