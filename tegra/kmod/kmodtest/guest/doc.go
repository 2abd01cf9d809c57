// SPDX-License-Identifier: Apache-2.0

// Package guest contains the tests of tegra_p2p.ko that run in the virtual Jetson, on its edu device. Package kmodtest
// builds them, boots the machine and runs them there.
package guest
