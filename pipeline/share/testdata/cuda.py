# SPDX-License-Identifier: Apache-2.0
"""Takes so many frames for CUDA and NumPy, as docs/share.md shows, and prints what the device finds in each: cuda.py SOCKET COUNT LIBCUDA."""

import ctypes
import sys

sys.path.insert(0, "python")
import tegracast_share

with tegracast_share.Client(sys.argv[1], tegracast_share.BLOCK, cuda=sys.argv[3]) as client:
    slots = 0
    for _ in range(int(sys.argv[2])):
        with client.next() as frame:
            if len(client._devices) > slots:
                slots += 1
                print("slot")
            array, device = frame.array(), frame.__cuda_array_interface__
            assert array.shape == (48, 64) and array.ctypes.data == device["data"][0] and not array.flags.writeable and not array.flags.owndata
            assert device["shape"] == array.shape and device["strides"] == array.strides and frame.__dlpack_device__() == (2, 0)
            assert array.min() == array.max() == array.mean()
            print("frame", frame.sequence, ctypes.c_uint8.from_address(device["data"][0]).value)
            del array
