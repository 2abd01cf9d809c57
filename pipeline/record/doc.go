// SPDX-License-Identifier: Apache-2.0

// Package record keeps frames in MCAP files (docs/recording.md): each frame is a message of ROS 2's sensor_msgs/Image, whose
// pixels go from the frame's memory to the disk without a copy, with a message beside it that has its times, flags and results.
package record
