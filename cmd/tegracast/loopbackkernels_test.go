package main

import (
	"log/slog"
	"testing"

	"tegracast/cudahost/cudatest"
)

// TestLoopbackCompiles has NVIDIA's own compiler make the kernels of the validation run for Orin.
func TestLoopbackCompiles(t *testing.T) {
	if _, _, err := cudatest.Compiler(t, 87, "", slog.New(slog.DiscardHandler)).Compile("loopback.cu", loopbackSource); err != nil {
		t.Fatal(err)
	}
}
