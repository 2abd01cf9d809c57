// SPDX-License-Identifier: Apache-2.0

// Package store keeps messages on disk until somebody has them for sure: files to which records are appended, each with a CRC. It is
// bounded: the oldest messages make room for new ones, and are counted. It also keeps the numbers that messages have got, so that none
// is given twice.
package store
