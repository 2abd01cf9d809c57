// SPDX-License-Identifier: Apache-2.0

// Command boot boots the virtual Jetson with tegracast inside, and connects this terminal to its console or runs one
// command in it.
package main
