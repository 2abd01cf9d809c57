// SPDX-License-Identifier: Apache-2.0

// Package web serves the state of the appliance over HTTP: metrics for Prometheus, health and readiness.
package web
