// SPDX-License-Identifier: Apache-2.0

// Package record records frames in MCAP files (docs/recording.md). Each frame is a message of ROS 2's
// sensor_msgs/Image, whose pixels are written from the frame's memory to the disk without a copy, except those of the
// last page and of packed frames. A second message next to it contains the frame's times, flags and results.
package record
