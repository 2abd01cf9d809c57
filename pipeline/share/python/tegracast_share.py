# SPDX-License-Identifier: Apache-2.0
"""Frames of tegracast in another process, without a copy (docs/share.md). It needs Python 3.8 and nothing else; NumPy where it is used."""

import fcntl
import json
import mmap
import os
import socket
import struct

LATEST, BLOCK = 0, 1
PADDED, UNVERIFIED, CRC, NO_RESULTS = 1, 2, 1 << 16, 1 << 17

_SUBSCRIBE, _READY, _WELCOME, _FRAME, _BYE = 1, 2, 17, 18, 19
_VERSION, _MAX = 1, 152 + (16 << 10)
_F_GET_SEALS, _F_SEAL_SHRINK = 1034, 2
_welcome = struct.Struct("<6I6I")
_frame = struct.Struct("<2I4Q6I7q4I2Q")


class Ended(Exception):
    """The program has ended the connection; the text says why."""


class Frame:
    """A frame, to read until release. Times are in ns since 1970; 0: not known. buffer is a memoryview of the program's own memory:
    it lies at offset in memory, which is the whole of the slot of that number, and is mapped once."""

    def __init__(self, client, text, slots):
        values = _frame.unpack_from(text)
        (_, self.slot, self.lease, self.sequence, self.offset, length, pixel, self.width, self.height, self.stride, self.color, _,
         self.exposure_start, self.exposure_end, self.uncertainty, self.captured, self.processed, self.replayed, self.sent,
         self.flags, self.crc, results, _, self.offered, self.lost) = values
        if len(text) != _frame.size + results or self.slot not in slots or self.offset + length > len(slots[self.slot]):
            raise ValueError("a message that cannot be")
        self.pixel = struct.pack("<I", pixel).decode("latin-1")
        self.results = json.loads(text[_frame.size:]) if results else []
        self.memory = slots[self.slot]
        self.buffer = self.memory[self.offset:self.offset + length]
        self._client = client

    def array(self):
        """The bytes as a NumPy array of height lines of stride bytes, read-only; 4:2:0 has half as many lines again."""
        import numpy
        return numpy.frombuffer(self.buffer, numpy.uint8).reshape(-1, self.stride)

    def release(self):
        """Gives the frame back. Its bytes must not be read any more."""
        self.buffer = self.memory = None
        self._client._release(self.lease)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Client:
    """Takes every n-th frame of an output: the newest one (LATEST), or each as long as the process keeps up (BLOCK)."""

    def __init__(self, path, policy=LATEST, every=1):
        self._slots, self._policy, self._asked, self._held = {}, policy, False, 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.socket.connect(path)
            self.socket.send(struct.pack("<I4s3I", _SUBSCRIBE, b"TGSH", _VERSION, policy, every))
            text, _ = self._receive()
            kind, version, self.holds, num, den, length = _welcome.unpack_from(text)[:6]
            if kind != _WELCOME or version != _VERSION:
                raise ValueError("a message that cannot be")
            self.rate, self.name = (num, den), text[_welcome.size:_welcome.size + length].decode()
            if policy == BLOCK:
                self._ready(self.holds, 0)
        except BaseException:
            self.socket.close()
            raise

    def next(self, timeout=None):
        """Waits for a frame; None when none came in so many seconds."""
        if self._held == self.holds:
            raise RuntimeError("as many frames are held as may be: release one")
        if self._policy == LATEST and not self._asked:
            self._ready(1, 0)
            self._asked = True
        self.socket.settimeout(timeout)
        try:
            text, fd = self._receive()
        except socket.timeout:
            return None
        finally:
            self.socket.settimeout(None)
        if len(text) < _frame.size or struct.unpack_from("<I", text)[0] != _FRAME:
            raise ValueError("a message that cannot be")
        if fd is not None:
            self._keep(struct.unpack_from("<I", text, 4)[0], fd)
        frame = Frame(self, text, self._slots)
        self._asked, self._held = False, self._held + 1
        return frame

    def _receive(self):
        text, rights, flags, _ = self.socket.recvmsg(_MAX + 1, socket.CMSG_SPACE(4))
        fd = None
        for level, kind, data in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fd = struct.unpack_from("i", data)[0]
        if len(text) >= 8 and struct.unpack_from("<I", text)[0] == _BYE:
            raise Ended(text[8:].decode(errors="replace"))
        if not text:
            raise Ended("the program has gone")
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a message that is cut: has this process as many open files as it may?")
        return text, fd

    def _keep(self, slot, fd):
        try:
            if slot in self._slots or not fcntl.fcntl(fd, _F_GET_SEALS) & _F_SEAL_SHRINK:
                raise ValueError("a slot that cannot be")
            self._slots[slot] = memoryview(mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ))
        finally:
            os.close(fd)

    def _ready(self, more, lease):
        self.socket.send(struct.pack("<2IQ", _READY, more, lease))

    def _release(self, lease):
        self._held -= 1
        self._ready(1 if self._policy == BLOCK else 0, lease)

    def close(self):
        """Ends the connection, which gives all frames back. Memory is unmapped when nothing refers to it any more."""
        self.socket.close()
        self._slots = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
