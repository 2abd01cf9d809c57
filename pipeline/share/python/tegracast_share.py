# SPDX-License-Identifier: Apache-2.0
"""Frames of tegracast in another process, without a copy, and results for them (docs/share.md, docs/inference.md). It needs Python 3.8,
and NumPy for array() and tensors."""

import base64
import ctypes
import fcntl
import json
import mmap
import os
import socket
import struct
import time

LATEST, BLOCK = 0, 1
PADDED, UNVERIFIED, CRC, NO_RESULTS = 1, 2, 1 << 16, 1 << 17

_SUBSCRIBE, _READY, _ANSWER, _WELCOME, _FRAME, _BYE = 1, 2, 3, 17, 18, 19
_VERSION, _FLAGS, _MAX, _MAX_ANSWER = 1, 2, 160 + (16 << 10), 48 << 10
_TYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64")
_F_GET_SEALS, _F_SEAL_SHRINK = 1034, 2
_welcome = struct.Struct("<6I6I")
_frame = struct.Struct("<2I4Q6I7q4I2Q")


class Ended(Exception):
    """The program has ended the connection; the text says why."""


class Frame:
    """A frame, to read until release. Times are in ns since 1970; 0: not known. buffer is a memoryview of the program's own memory: it
    lies at offset in memory, which is the whole slot, mapped once. NumPy, PyTorch, CuPy and JAX take a frame as it is, without a copy
    (__array_interface__, DLPack; __cuda_array_interface__ if the client has cuda), and must not write to it."""

    def __init__(self, client, text, slots):
        values = _frame.unpack_from(text)
        (_, self.slot, self.lease, self.sequence, self.offset, length, pixel, self.width, self.height, self.stride, self.color, _,
         self.exposure_start, self.exposure_end, self.uncertainty, self.captured, self.processed, self.replayed, self.sent,
         self.flags, self.crc, results, _, self.offered, self.lost) = values
        size = _frame.size + 8 * client._groups
        if len(text) != size + results or self.slot not in slots or self.offset + length > len(slots[self.slot]):
            raise ValueError("an invalid message")
        self.pixel = struct.pack("<I", pixel).decode("latin-1")
        self.group = struct.unpack_from("<Q", text, _frame.size)[0] if client._groups else 0
        self.results = json.loads(text[size:]) if results else []
        self.memory = slots[self.slot]
        self.buffer = self.memory[self.offset:self.offset + length]
        self.device = client._devices[self.slot] + self.offset if self.slot in client._devices else None
        self.shape, self.typestr, self.strides = _layout(self.pixel, self.width, self.height, self.stride, length)
        self.taken = time.time_ns()
        self._client, self._mapping, self._released = client, self.memory, False  # arrays refer to the frame, and it to its memory

    def array(self):
        """The pixels as a read-only NumPy array: height x width of samples, x 3 of RGB, x 2 of UYVY. Packed samples, 10-bit 4:2:2 and
        4:2:0 are lines of stride bytes."""
        import numpy
        self._check()
        return numpy.ndarray(self.shape, self.typestr, self.buffer, strides=self.strides)

    def respond(self, regions=(), numbers=None, tags=None, tensors=None, bins=(), began=0, ended=0):
        """Returns the results of this frame to the stage that the client is connected to: once, before release. regions are dicts with x,
        y, width, height in pixels, and optionally label and score; numbers, tags and tensors are dicts by name. began and ended are in ns
        since 1970; by default when the frame was taken, and now."""
        self._check()
        text = {"regions": list(regions), "numbers": numbers or {}, "tags": tags or {}, "bins": list(bins), "tensors": [
            _tensor(name, value) for name, value in (tensors or {}).items()]}
        text = json.dumps({k: v for k, v in text.items() if v}, allow_nan=False, default=lambda v: v.item()).encode()
        if len(text) > _MAX_ANSWER:
            raise ValueError(f"results of {len(text)} bytes, and at most {_MAX_ANSWER} are allowed")
        head = struct.pack("<2IQ2q", _ANSWER, len(text), self.lease, began or self.taken, ended or time.time_ns())
        self._client._send(head + text)

    def _check(self):
        if self._released:
            raise ValueError("the frame was given back")

    @property
    def __array_interface__(self):
        self._check()
        return {"version": 3, "shape": self.shape, "typestr": self.typestr, "strides": self.strides, "data": (_address(self.buffer), True)}

    @property
    def __cuda_array_interface__(self):
        self._check()
        if self.device is None:
            raise AttributeError("the client has no cuda")
        # PyTorch takes no arrays that are marked as read-only.
        return {"version": 3, "shape": self.shape, "typestr": self.typestr, "strides": self.strides, "data": (self.device, False)}

    def __dlpack_device__(self):
        return (1, 0) if self.device is None else (2, self._client._ordinal)

    def __dlpack__(self, dl_device=None, copy=None, **_):
        self._check()
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a frame is not copied")
        return _capsule(self)

    def release(self):
        """Gives the frame back. Its bytes must not be read any more. If the connection has ended, the next next() raises Ended."""
        if self._released:
            return
        self._released, self.buffer, self.memory, self.device = True, None, None, None
        try:
            self._client._release(self.lease)
        except Ended:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Client:
    """Takes every n-th frame of an output: the newest one (LATEST), or each as long as the process keeps up (BLOCK). With results it
    connects to an external stage instead, and returns results for its frames. With groups, frames have the number of their group, 0 if
    there is none; an older program refuses that. cuda is the name of NVIDIA's library, libcuda.so.1: then
    frames have an address for the GPU of the calling thread's CUDA context, which must exist, as after torch.zeros(1, device="cuda")."""

    def __init__(self, path, policy=LATEST, every=1, results=False, cuda=None, groups=False):
        self._slots, self._policy, self._asked, self._held = {}, policy, False, 0
        self._devices, self._ordinal, self._cuda, self._reason, self._groups = {}, 0, None, None, bool(groups)
        if cuda:
            ordinal = ctypes.c_int()
            self._cuda = ctypes.CDLL(cuda)
            self._call("cuCtxGetDevice", ctypes.byref(ordinal))
            self._ordinal = ordinal.value
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.socket.connect(path)
            if results or groups:
                flags = bool(results) | self._groups << 1
                self.socket.send(struct.pack("<I4s4I", _SUBSCRIBE, b"TGSH", _FLAGS, policy, every, flags))
            else:
                self.socket.send(struct.pack("<I4s3I", _SUBSCRIBE, b"TGSH", _VERSION, policy, every))
            text, _ = self._receive()
            kind, version, self.holds, num, den, length = _welcome.unpack_from(text)[:6]
            if kind != _WELCOME or version != _VERSION:
                raise ValueError("an invalid message")
            self.rate, self.name = (num, den), text[_welcome.size:_welcome.size + length].decode()
            if policy == BLOCK:
                self._ready(self.holds, 0)
        except BaseException:
            self.socket.close()
            raise

    def next(self, timeout=None):
        """Waits for a frame; returns None after timeout seconds."""
        if self._held == self.holds:
            raise RuntimeError("all allowed frames are held: release one")
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
        if len(text) < _frame.size + 8 * self._groups or struct.unpack_from("<I", text)[0] != _FRAME:
            raise ValueError("an invalid message")
        if fd is not None:
            self._keep(struct.unpack_from("<I", text, 4)[0], fd)
        frame = Frame(self, text, self._slots)
        self._asked, self._held = False, self._held + 1
        return frame

    def _receive(self):
        if self._reason:
            raise Ended(self._reason)
        try:
            text, rights, flags, _ = self.socket.recvmsg(_MAX + 1, socket.CMSG_SPACE(4))
        except ConnectionResetError:  # it comes before the messages that are left
            text, rights, flags, _ = self.socket.recvmsg(_MAX + 1, socket.CMSG_SPACE(4))
        fd = None
        for level, kind, data in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fd = struct.unpack_from("i", data)[0]
        if len(text) >= 8 and struct.unpack_from("<I", text)[0] == _BYE:
            self._reason = text[8:].decode(errors="replace")
            raise Ended(self._reason)
        if not text:
            self._reason = "the program has gone"
            raise Ended(self._reason)
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a truncated message: is the limit of open files reached?")
        return text, fd

    def _keep(self, slot, fd):
        try:
            if slot in self._slots or not fcntl.fcntl(fd, _F_GET_SEALS) & _F_SEAL_SHRINK:
                raise ValueError("an invalid slot")
            memory = memoryview(mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ))
            if self._cuda:
                pointer, at = ctypes.c_uint64(), ctypes.c_void_p(_address(memory))
                self._call("cuMemHostRegister_v2", at, ctypes.c_size_t(len(memory)), 0x08 | 0x02)  # read-only, mapped for the device
                try:
                    self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), at, 0)
                except OSError:
                    self._cuda.cuMemHostUnregister(at)
                    raise
                self._devices[slot] = pointer.value
            self._slots[slot] = memory
        finally:
            os.close(fd)

    def _send(self, text):
        try:
            self.socket.send(text)
        except (BrokenPipeError, ConnectionResetError):
            while True:  # what was sent before the end, up to the reason
                _, fd = self._receive()
                if fd is not None:
                    os.close(fd)

    def _ready(self, more, lease):
        self._send(struct.pack("<2IQ", _READY, more, lease))

    def _release(self, lease):
        self._held -= 1
        self._ready(1 if self._policy == BLOCK else 0, lease)

    def _call(self, name, *arguments):
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise OSError(f"{name}: CUDA error {code}" + (": make a context first, such as by torch.zeros(1, device='cuda')" if code in (3, 201) else ""))

    def close(self):
        """Ends the connection, which gives all frames back. Neither this process nor its GPU may read them any more. Memory is unmapped
        when nothing refers to it."""
        self.socket.close()
        self._reason = self._reason or "the client is closed"
        for slot in self._devices:  # that fails in a thread without the context, and then the slot stays registered
            self._cuda.cuMemHostUnregister(ctypes.c_void_p(_address(self._slots[slot])))
        self._slots, self._devices = {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _layout(pixel, width, height, stride, length):
    """Returns shape, type and strides of the pixels, in NumPy's terms."""
    channels = {"UYVY": 2, "RGB3": 3}.get(pixel)
    if channels:
        return (height, width, channels), "|u1", (stride, channels, 1)
    if pixel in ("RGGB", "GRBG", "GBRG", "BA81", "GREY"):
        return (height, width), "|u1", (stride, 1)
    if pixel[0] == "p" or pixel[3] == "P" or pixel in ("YU12", "NV12"):
        return (length // stride, stride), "|u1", (stride, 1)
    return (height, width), "<u2", (stride, 2)


def _tensor(name, value):
    import numpy
    if hasattr(value, "detach"):  # PyTorch's
        value = value.detach().cpu()
    array = numpy.ascontiguousarray(value)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(numpy.shape(value))
    if array.dtype.name not in _TYPES:
        raise ValueError(f"tensor {name}: {array.dtype.name} must be one of {', '.join(_TYPES)}")
    return {"name": name, "type": array.dtype.name, "shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


class _Buffer(ctypes.Structure):  # Py_buffer
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("rest", ctypes.c_void_p * 8)]


def _address(memory):
    """Returns the address of a read-only memoryview, whose memory must stay referred to."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(memory), ctypes.byref(buffer), 0)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return buffer.buf


class _Tensor(ctypes.Structure):  # DLManagedTensor of dlpack.h, version 0.8
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


_exported = {}  # by address of a _Tensor: what it refers to


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address):
    _exported.pop(address, None)


_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_in_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule):  # which nobody has consumed
    if _is_capsule(capsule, b"dltensor"):
        _exported.pop(_in_capsule(capsule, b"dltensor"), None)


def _capsule(frame):
    size = int(frame.typestr[2])
    shape = (ctypes.c_int64 * len(frame.shape))(*frame.shape)
    strides = (ctypes.c_int64 * len(frame.shape))(*(n // size for n in frame.strides))
    kind, number = frame.__dlpack_device__()
    tensor = _Tensor(frame.device or _address(frame.buffer), kind, number, len(frame.shape), 1, 8 * size, 1, shape, strides, 0, None, _delete)
    _exported[ctypes.addressof(tensor)] = tensor, shape, strides, frame.buffer
    return _new_capsule(ctypes.addressof(tensor), b"dltensor", ctypes.cast(_drop, ctypes.c_void_p))
