# SPDX-License-Identifier: Apache-2.0
"""Makes tensors with OpenCV, and with NumPy alone. Each line of the input is a job in JSON, which a line answers: the
processor time in nanoseconds for a tensor, when "frames" tensors were made of the same frame."""
import json
import sys
import time

import cv2
import numpy as np

cv2.setNumThreads(1)
COLORS = {"UYVY": cv2.COLOR_YUV2RGB_UYVY, "NV12": cv2.COLOR_YUV2RGB_NV12, "YU12": cv2.COLOR_YUV2RGB_I420}


def lines(job, pixels):
    """The frame as an array, without its padding."""
    w, h, stride, kind = job["width"], job["height"], job["stride"], job["format"]
    if kind in ("NV12", "YU12"):
        return pixels.reshape(h * 3 // 2, w)
    channels = {"GREY": 1, "RGB3": 3, "UYVY": 2}[kind]
    array = pixels.reshape(h, stride)[:, : w * channels]
    return array if channels == 1 else array.reshape(h, w, channels)


def letterbox(job, crop):
    """The size of the picture in the tensor."""
    w, h = job["size"]
    if not job["letterbox"]:
        return w, h
    r = min(w / crop.shape[1], h / crop.shape[0])
    return max(1, int(crop.shape[1] * r + 0.5)), max(1, int(crop.shape[0] * r + 0.5))


def border(job, picture):
    w, h = job["size"]
    x, y = w - picture.shape[1], h - picture.shape[0]
    if x == 0 and y == 0:
        return picture
    fill = (job["fill"],) * 3
    return cv2.copyMakeBorder(picture, y // 2, y - y // 2, x // 2, x - x // 2, cv2.BORDER_CONSTANT, value=fill)


def frame(job, pixels):
    """The crop in R'G'B' or grey."""
    f = lines(job, pixels)
    if job["format"] in COLORS:
        f = cv2.cvtColor(f, COLORS[job["format"]])
    x0, y0, x1, y1 = job["crop"]
    f = f[y0:y1, x0:x1]
    return cv2.cvtColor(f, cv2.COLOR_RGB2GRAY) if f.ndim == 3 and job["channels"] == 1 else f


def blob(job, pixels):
    """blobFromImage, which has one scale."""
    f = frame(job, pixels)
    if job["letterbox"]:
        f = border(job, cv2.resize(f, letterbox(job, f), interpolation=cv2.INTER_LINEAR))
    return cv2.dnn.blobFromImage(f, job["scale"], tuple(job["size"]), tuple(job["mean"]), swapRB=job["bgr"])


def array(job, pixels):
    """OpenCV's resize, and NumPy for the rest."""
    f = frame(job, pixels)
    f = border(job, cv2.resize(f, letterbox(job, f), interpolation=cv2.INTER_LINEAR))
    f = f.reshape(f.shape[0], f.shape[1], -1)
    if job["bgr"]:
        f = f[:, :, ::-1]
    t = (f.astype(np.float32) - np.float32(job["mean"][: f.shape[2]])) * np.float32(job["scale"])
    return np.ascontiguousarray(t.transpose(2, 0, 1)[None])


def samples(job, pixels):
    """The crop's samples: R, G and B, or Y, Cb and Cr of every pixel."""
    f, w, h = lines(job, pixels), job["width"], job["height"]
    twice = lambda plane, down: plane.repeat(2, 1).repeat(down, 0)
    if job["format"] == "UYVY":
        f = np.dstack([f[:, :, 1], twice(f[:, 0::2, 0], 1), twice(f[:, 1::2, 0], 1)])
    elif job["format"] == "NV12":
        chroma = f[h:].reshape(h // 2, w // 2, 2)
        f = np.dstack([f[:h], twice(chroma[:, :, 0], 2), twice(chroma[:, :, 1], 2)])
    elif job["format"] == "YU12":
        chroma = f[h:].reshape(2, h // 2, w // 2)
        f = np.dstack([f[:h], twice(chroma[0], 2), twice(chroma[1], 2)])
    x0, y0, x1, y1 = job["crop"]
    return f[y0:y1, x0:x1].astype(np.float64).reshape(y1 - y0, x1 - x0, -1)


def colours(job, f):
    """R'G'B' or luma of scaled samples, by ITU-R BT.601."""
    luma = np.array([0.299, 0.587, 0.114])
    if job["format"] in COLORS:
        y, cb, cr = (f[:, :, 0] - 16) * 255 / 219, (f[:, :, 1] - 128) * 255 / 224, (f[:, :, 2] - 128) * 255 / 224
        r, b = y + 2 * (1 - luma[0]) * cr, y + 2 * (1 - luma[2]) * cb
        f = np.dstack([r, (y - luma[0] * r - luma[2] * b) / luma[1], b])
    if f.shape[2] == 3 and job["channels"] == 1:
        f = (f * luma).sum(2, keepdims=True)
    return np.clip(f, 0, 255)


def exact(job, pixels):
    """NumPy alone, in float64, by the definition."""
    f = samples(job, pixels)
    w, h = letterbox(job, f)

    def positions(side, n):
        at = np.clip((np.arange(n) + 0.5) * side / n - 0.5, 0, side - 1)
        first = np.floor(at).astype(int)
        return first, np.minimum(first + 1, side - 1), at - first

    x0, x1, p = positions(f.shape[1], w)
    y0, y1, q = positions(f.shape[0], h)
    p, q = p[None, :, None], q[:, None, None]
    upper = f[y0][:, x0] * (1 - p) + f[y0][:, x1] * p
    lower = f[y1][:, x0] * (1 - p) + f[y1][:, x1] * p
    picture = colours(job, upper * (1 - q) + lower * q)
    full = np.full((job["size"][1], job["size"][0], picture.shape[2]), float(job["fill"]))
    y, x = (full.shape[0] - h) // 2, (full.shape[1] - w) // 2
    full[y : y + h, x : x + w] = picture
    if job["bgr"]:
        full = full[:, :, ::-1]
    t = (full - np.float64(job["mean"][: full.shape[2]])) * job["scale"]
    return t.transpose(2, 0, 1)[None].astype(np.float32)


print(cv2.__version__, np.__version__, flush=True)
for text in sys.stdin:
    job = json.loads(text)
    pixels = np.fromfile(job["pixels"], np.uint8)
    way = {"blob": blob, "array": array, "exact": exact}[job["way"]]
    tensor = way(job, pixels)
    if job["frames"] == 0:
        tensor.astype(np.float32).tofile(job["tensor"])
    begin = time.process_time_ns()
    for _ in range(job["frames"]):
        way(job, pixels)
    print((time.process_time_ns() - begin) // max(1, job["frames"]), flush=True)
