// SPDX-License-Identifier: Apache-2.0

// Package bus publishes the results of frames, the events and the health of a board on a message bus: NATS with
// JetStream, or any broker that speaks MQTT (docs/bus.md). Every message has a number, so consumers notice missing
// ones. Messages that the bus does not accept now are stored on disk. Publishing never waits for the bus or the disk.
package bus
