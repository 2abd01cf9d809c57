// SPDX-License-Identifier: Apache-2.0

// Package nvp2ptest builds providers of nv-p2p for tests in the virtual Jetson: NVIDIA's own, whose sources $TEGRACAST_NVP2P
// names, and the stand-in of this tree.
package nvp2ptest
