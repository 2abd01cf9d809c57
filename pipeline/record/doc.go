// SPDX-License-Identifier: Apache-2.0

// Package record records frames in MCAP files (docs/recording.md), and reads and repairs such files. Each frame is a
// message of type sensor_msgs/msg/Image (ROS 2), or of a type with the same fields if its samples are packed. Its
// pixels are written from the frame's memory to the disk without a copy, except those that do not fill a page, and
// except packed ones. A second message in the same chunk contains the frame's times, flags and results.
package record
