// SPDX-License-Identifier: Apache-2.0

// Package resolvetest replaces the name server in tests by one that does not respond, or that sends chosen replies. It
// does not show TCP or IPv6 (docs/stand-ins.md).
package resolvetest
