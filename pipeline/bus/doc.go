// SPDX-License-Identifier: Apache-2.0

// Package bus publishes results of frames, events and the health of a board on a message bus: NATS with JetStream, or any broker that
// speaks MQTT (docs/bus.md). Each message has a number, by which a consumer sees what is missing. What the bus does not take now is kept
// on disk. Nobody who publishes waits for the bus or for the disk.
package bus
