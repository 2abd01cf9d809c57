// SPDX-License-Identifier: Apache-2.0

// Package web serves the state of the appliance over HTTP: metrics for Prometheus, health and readiness, and a page with live pictures,
// for this machine, or by TLS and a password for others. openapi.json in its folder page describes the addresses.
package web
