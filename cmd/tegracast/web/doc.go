// SPDX-License-Identifier: Apache-2.0

// Package web serves the state of the appliance over HTTP: metrics for Prometheus, health and readiness, and a page
// with live pictures. It serves this machine, and, with TLS or behind a trusted proxy, other machines. The file
// page/openapi.json describes the interface.
package web
