// SPDX-License-Identifier: Apache-2.0

// Package guest holds the tests of tegra_p2p.ko that run inside the virtual Jetson, on its edu device. Package kmodtest
// builds them, boots the machine and runs them there.
package guest
