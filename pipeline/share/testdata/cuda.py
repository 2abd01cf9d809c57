# SPDX-License-Identifier: Apache-2.0
"""Takes so many frames as docs/share.md shows for CUDA and NumPy, and prints whether the device finds each: cuda.py SOCKET COUNT LIBCUDA."""

import ctypes
import sys

import numpy

sys.path.insert(0, "python")
import tegracast_share

cuda, slots = ctypes.CDLL(sys.argv[3]), {}
with tegracast_share.Client(sys.argv[1], tegracast_share.BLOCK) as client:
    for _ in range(int(sys.argv[2])):
        with client.next() as frame:
            if frame.slot not in slots:
                memory = numpy.frombuffer(frame.memory, numpy.uint8)
                pointer, at = ctypes.c_uint64(), ctypes.c_void_p(memory.ctypes.data)
                assert cuda.cuMemHostRegister_v2(at, ctypes.c_size_t(memory.size), 0x08 | 0x02) == 0
                assert cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(pointer), at, 0) == 0
                slots[frame.slot] = pointer.value, memory
                print("slot")
            address = slots[frame.slot][0] + frame.offset
            array = frame.array()
            assert array.shape == (48, 64) and array.ctypes.data == address and not array.flags.writeable and not array.flags.owndata
            assert array.min() == array.max() == array.mean()
            print("frame", frame.sequence, ctypes.c_uint8.from_address(address).value)
            del array
    for _, memory in slots.values():
        assert cuda.cuMemHostUnregister(ctypes.c_void_p(memory.ctypes.data)) == 0
    slots.clear()
