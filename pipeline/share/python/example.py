# SPDX-License-Identifier: Apache-2.0
"""Takes so many frames of an output with share and prints them: example.py SOCKET [COUNT]."""

import sys

import tegracast_share

with tegracast_share.Client(sys.argv[1], tegracast_share.BLOCK, groups=True) as client:
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 10):
        with client.next() as frame:
            print(frame.sequence, "of", frame.group, f"{frame.width}x{frame.height}", "first", frame.buffer[0], "last", frame.buffer[-1], "lost", frame.lost, frame.results)
