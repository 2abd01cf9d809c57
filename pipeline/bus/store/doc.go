// SPDX-License-Identifier: Apache-2.0

// Package store keeps messages on disk until they are safe elsewhere. It appends them to files as records, each with a
// CRC. Its size is limited: the oldest messages make room for new ones, and are counted. It also keeps the numbers
// given to messages, so that none is given twice.
package store
