// SPDX-License-Identifier: Apache-2.0

// Package infer runs a model of deep learning (ONNX) on frames. A Stage is a share.Stage whose process it starts itself:
// the process gets the frames where they lie, makes the model's input of each (preprocess), runs the model with ONNX
// Runtime (onnxruntime), makes results of its outputs (postprocess), and returns these. A model that crashes, hangs or
// grows ends its process and nothing else: the process is started again, and meanwhile frames go on without results.
//
// Config says what the model is and how its input and outputs are to be read; NewPlan compares that with the model's file
// (onnx). Work is the process, which has the rights that package sandbox leaves it.
package infer
