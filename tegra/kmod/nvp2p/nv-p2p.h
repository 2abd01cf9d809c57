/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The name that NVIDIA's header has. NVP2P=FOLDER/OF/THIS builds with tegra_p2p's own declarations.
 */
#include "../nvp2p_interface.h"
