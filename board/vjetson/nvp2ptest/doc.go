// SPDX-License-Identifier: Apache-2.0

// Package nvp2ptest builds providers of nv-p2p for tests in the virtual Jetson: NVIDIA's own, with sources in the
// folder $TEGRACAST_NVP2P, and the stand-in of this tree. The stand-in does not show memory of nvmap
// (docs/stand-ins.md).
package nvp2ptest
