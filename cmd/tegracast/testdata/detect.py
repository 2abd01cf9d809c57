# SPDX-License-Identifier: Apache-2.0
"""Runs a detector of torchvision, with random weights, on samples in CUDA memory, and returns its boxes and the number that is stamped in
the samples: detect.py SOCKET SECONDS. It prints a line when the model is ready, and at the end a line of JSON."""

import json
import sys
import time

import torch
import torchvision

import tegracast_share

torch.zeros(1, device="cuda")  # makes the context
model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).eval().cuda()
weights = 2 ** torch.arange(48, device="cuda")


def detect(samples):
    """Returns the boxes in a frame of RGGB samples of 10 bits."""
    quads = torch.stack((samples[0::2, 0::2], samples[0::2, 1::2], samples[1::2, 1::2])).float() / 1023
    return model([quads])[0]


with torch.inference_mode():
    detect(torch.zeros((1080, 1920), dtype=torch.int16, device="cuda"))
    print("ready", flush=True)
    client = tegracast_share.Client(sys.argv[1], results=True, cuda="libcuda.so.1")
    waits, end, first, frames = [], time.monotonic() + float(sys.argv[2]), 0, 0
    while time.monotonic() < end:
        with client.next() as frame:
            samples = torch.as_tensor(frame, device="cuda").view(torch.int16)
            assert samples.data_ptr() == frame.device and samples.shape == (1080, 1920), samples.shape
            assert torch.from_dlpack(frame).data_ptr() == frame.device
            stamp = int(((samples[0, :48] != 0) * weights).sum())
            found = detect(samples)
            boxes, scores = found["boxes"][:20].tolist(), found["scores"][:20].tolist()  # waits for the GPU
            frame.respond(numbers={"stamp": stamp}, regions=[
                {"x": 2 * a, "y": 2 * b, "width": 2 * (c - a), "height": 2 * (d - b), "score": s} for (a, b, c, d), s in zip(boxes, scores)])
            waits.append((time.time_ns() - frame.captured) / 1e6)
            first, frames, lost = first or frame.sequence, frames + 1, frame.lost
    waits.sort()
    print(json.dumps({"frames": frames, "lost": lost, "p50": waits[len(waits) // 2], "p99": waits[len(waits) * 99 // 100],
                      "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}))
