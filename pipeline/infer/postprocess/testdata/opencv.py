# SPDX-License-Identifier: Apache-2.0
"""Answers each line of JSON with what OpenCV finds in a map, or leaves of boxes.

{"width", "height", "threshold", "map"}: regions [x, y, width, height, mean], the map is float32 in base64
{"boxes": [[x, y, width, height]], "scores", "threshold", "nms"}: indexes of the boxes that are kept
"""

import base64
import json
import sys

import cv2
import numpy

for line in sys.stdin:
    case = json.loads(line)
    if "boxes" in case:
        kept = cv2.dnn.NMSBoxes(case["boxes"], case["scores"], case["threshold"], case["nms"])
        print(json.dumps(numpy.array(kept).ravel().tolist()), flush=True)
        continue
    heat = numpy.frombuffer(base64.b64decode(case["map"]), numpy.float32).reshape(case["height"], case["width"])
    above = (heat > numpy.float32(case["threshold"])).astype(numpy.uint8)
    contours, tree = cv2.findContours(above, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    _, labels = cv2.connectedComponents(above, connectivity=8)
    sums, counts = numpy.bincount(labels.ravel(), heat.ravel().astype(float)), numpy.bincount(labels.ravel())
    regions = []
    for i, c in enumerate(contours):
        if tree[0][i][3] >= 0:
            continue  # a hole
        x, y = c[0][0]
        n = labels[y, x]
        regions.append([*cv2.boundingRect(c), sums[n] / counts[n]])
    print(json.dumps(regions), flush=True)
