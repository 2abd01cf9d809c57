# SPDX-License-Identifier: Apache-2.0
"""detector.py PICTURE WIDTH HEIGHT TENSOR WIDTH HEIGHT MAP THRESHOLD: what OpenCV and NumPy make of an RGB24 picture and of a heat map.

Prints as JSON the largest difference of the tensor (float32, planes of R, G and B) from their own, in samples, and the regions of the map
(float32, as large as the tensor): [x, y, width, height, mean]."""

import json
import sys

import cv2
import numpy

picture, width, height, made, columns, lines, heat, threshold = sys.argv[1:]
columns, lines = int(columns), int(lines)
pixels = numpy.fromfile(picture, numpy.uint8).reshape(int(height), int(width), 3)
mean, scale = numpy.float32([123.675, 116.28, 103.53]), numpy.float32([0.01712475, 0.017507, 0.01742919])
own = (cv2.resize(pixels, (columns, lines), interpolation=cv2.INTER_LINEAR).astype(numpy.float32) - mean) * scale
tensor = numpy.fromfile(made, numpy.float32).reshape(3, lines, columns).transpose(1, 2, 0)
heat = numpy.fromfile(heat, numpy.float32).reshape(lines, columns)
above = (heat > numpy.float32(threshold)).astype(numpy.uint8)
contours, tree = cv2.findContours(above, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
count, labels = cv2.connectedComponents(above, connectivity=8)
regions = []
for i, contour in enumerate(contours):
    if tree[0][i][3] < 0:  # else the contour of a hole
        x, y = contour[0][0]
        regions.append([*cv2.boundingRect(contour), float(heat[labels == labels[y, x]].mean(dtype=float))])
print(json.dumps({"difference": float(numpy.abs((tensor - own) / scale).max()), "regions": regions}))
