// SPDX-License-Identifier: Apache-2.0

// Package infertest fetches releases of ONNX Runtime, and models that others have made, for tests. They stand for the
// libraries and models of users. They run on the CPU: they do not show what CUDA or TensorRT do. It also starts programs in
// Python with OpenCV, to which tests compare results.
package infertest
