# SPDX-License-Identifier: Apache-2.0
"""Exports a detector of torchvision with random weights: export.py MODEL.onnx. With the RGB24 pixels of a frame, export.py MODEL.onnx FRAME
WIDTH HEIGHT prints as JSON what the detector itself finds in them: [x0, y0, x1, y1, label, score] in pixels of the frame, for scores from
0.3 on."""

import json
import sys

import torch
import torchvision

SIZE = 320
torch.manual_seed(1)
model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5,
                                                                    detections_per_img=60).eval()
with torch.no_grad():  # else every picture has the same features, and every box the same score
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the average of all calls
    model.train()
    for _ in range(4):
        model.head(list(model.backbone(torch.randn(8, 3, SIZE, SIZE)).values()))
    model.eval()
    for parameter in model.head.classification_head.parameters():
        torch.nn.init.normal_(parameter, std=0.2)

with torch.inference_mode():
    if len(sys.argv) == 2:
        torch.onnx.export(model, ([torch.rand(3, SIZE, SIZE)],), sys.argv[1], opset_version=17, dynamo=False, input_names=["picture"],
                          output_names=["boxes", "scores", "labels"])
        sys.exit()
    width, height = int(sys.argv[3]), int(sys.argv[4])
    pixels = torch.frombuffer(bytearray(open(sys.argv[2], "rb").read()), dtype=torch.uint8).reshape(height, width, 3).permute(2, 0, 1).float() / 255
    picture = torch.nn.functional.interpolate(pixels[None], (SIZE, SIZE), mode="bilinear", align_corners=False)[0]
    found = model([picture])[0]
    scale = torch.tensor([width / SIZE, height / SIZE, width / SIZE, height / SIZE])
    print(json.dumps([(box * scale).tolist() + [int(label), float(score)]
                      for box, label, score in zip(found["boxes"], found["labels"], found["scores"]) if score >= 0.3]))
