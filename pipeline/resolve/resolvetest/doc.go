// SPDX-License-Identifier: Apache-2.0

// Package resolvetest replaces the name server in tests by one that does not respond, or that sends chosen replies. It
// supports neither TCP nor IPv6 (docs/stand-ins.md).
package resolvetest
