# SPDX-License-Identifier: Apache-2.0
"""Has GStreamer's filesink write frames that lie in slots of memory, as a camera's do: filesink.py FILE SIZE FRAMES SLOTS.
It prints the CPU seconds that its start took, waits for a line, writes, and ends when filesink has all frames."""
import ctypes
import mmap
import os
import resource
import sys

path, size, frames, slots = sys.argv[1], *map(int, sys.argv[2:])
PLAYING, FAILURE, EOS, ERROR, READ_ONLY = 4, 0, 1, 2, 2
gst, app = ctypes.CDLL("libgstreamer-1.0.so.0"), ctypes.CDLL("libgstapp-1.0.so.0")
pointer, number = ctypes.c_void_p, ctypes.c_size_t
for name in "gst_parse_launch", "gst_bin_get_by_name", "gst_element_get_bus", "gst_bus_timed_pop_filtered", "gst_buffer_new_wrapped_full":
    getattr(gst, name).restype = pointer

gst.gst_init(None, None)
pipeline = pointer(gst.gst_parse_launch(f"appsrc name=source block=true max-bytes={slots * size} ! filesink location={path}".encode(), None))
source = pointer(gst.gst_bin_get_by_name(pipeline, b"source"))
bus = pointer(gst.gst_element_get_bus(pipeline))
memory = mmap.mmap(-1, slots * size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(14)  # MADV_HUGEPAGE, as a recording's slots
memory.write(os.urandom(size) * slots)
begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
if gst.gst_element_set_state(pipeline, PLAYING) == FAILURE:
    sys.exit(f"filesink cannot write {path}")

used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, flush=True)
sys.stdin.readline()
for n in range(frames):
    at = pointer(begin + n % slots * size)
    frame = gst.gst_buffer_new_wrapped_full(READ_ONLY, at, number(size), number(0), number(size), None, None)
    if app.gst_app_src_push_buffer(source, pointer(frame)) != 0:
        sys.exit("filesink takes no more frames")
app.gst_app_src_end_of_stream(source)
end = gst.gst_bus_timed_pop_filtered(bus, ctypes.c_uint64(2**64 - 1), EOS | ERROR)
sys.exit(ctypes.c_int.from_address(end + 64).value != EOS)
