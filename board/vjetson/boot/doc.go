// SPDX-License-Identifier: Apache-2.0

// Command boot boots the virtual Jetson with tegracast inside and logs in on its console, or runs one command in it.
package main
