// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// double compiles the double and opens it. calls returns what has been called since it was called last.
func double(t *testing.T, options ...string) (library string, calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	library, log := filepath.Join(dir, "libonnxruntime.so"), filepath.Join(dir, "log")
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Werror", "-I" + filepath.Join(infertest.Debian(t).Dir, "usr/include"), "-DLOG=\"" + log + "\""}, options...)
	if out, err := exec.Command("gcc", append(args, "-o", library, "testdata/double.c")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return library, func() []string {
		content, err := os.ReadFile(log)
		if err := errors.Join(err, os.Remove(log)); err != nil {
			t.Error(err)
		}
		return strings.Split(strings.ReplaceAll(strings.TrimSpace(string(content)), dir, "DIR"), "\n")
	}
}

func opened(t *testing.T, library string) *Runtime {
	t.Helper()
	r, err := Open(library)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// expect compares calls with the lines of want.
func expect(t *testing.T, what string, calls []string, want string) {
	t.Helper()
	if wanted := strings.Split(strings.TrimSpace(strings.ReplaceAll(want, "\t", "")), "\n"); !reflect.DeepEqual(calls, wanted) {
		t.Errorf("%s calls\n%s\nand not\n%s", what, strings.Join(calls, "\n"), strings.Join(wanted, "\n"))
	}
}

const beginning = `CreateSessionOptions
	SetSessionLogSeverityLevel 2
	SetSessionGraphOptimizationLevel 99
	SetIntraOpNumThreads 1
	SetInterOpNumThreads 1
	AddSessionConfigEntry session.intra_op.allow_spinning=0
	AddSessionConfigEntry session.inter_op.allow_spinning=0
	AddSessionConfigEntry session.load_model_format=ONNX
	`

// TestCallsOfCUDA shows the calls that set up CUDA, and that an input in the memory of the CPU is bound before each run.
func TestCallsOfCUDA(t *testing.T) {
	library, calls := double(t)
	r := opened(t, library)
	expect(t, "opening", calls(), "CreateEnv 2 tegracast\nDisableTelemetryEvents")
	s, err := r.NewSession(t.Context(), SessionConfig{Model: "m.onnx", Provider: CUDA})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "CUDA", calls(), beginning+`CreateCUDAProviderOptions
		UpdateCUDAProviderOptions device_id=0 arena_extend_strategy=kSameAsRequested
		SessionOptionsAppendExecutionProvider_CUDA_V2
		ReleaseCUDAProviderOptionsV2 2
		CreateSession m.onnx
		ReleaseTypeInfo 3
		ReleaseTypeInfo 3
		CreateRunOptions
		CreateCpuMemoryInfo 0 0
		CreateIoBinding
		BindOutputToDevice out
		ReleaseSessionOptions 5`)
	in := tensor.Info{Name: "in", Type: tensor.Float32, Shape: []int64{1, 4}}
	input, err := s.BindInput(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(input.Data) != 16 {
		t.Errorf("%d bytes", len(input.Data))
	}
	for range 2 {
		out, err := s.Run(t.Context())
		if err != nil || len(out) != 1 || out[0].String() != `"out" float32 [1 4]` || !reflect.DeepEqual(out[0].Float32s(), []float32{0, 1, 2, 3}) {
			t.Fatalf("%v %v", out, err)
		}
	}
	const run = `
		BindInput in
		SynchronizeBoundInputs
		RunWithBinding
		SynchronizeBoundOutputs
		ReleaseTensorTypeAndShapeInfo 7`
	expect(t, "running", calls(), "CreateTensorWithDataAsOrtValue 16 bytes [1 4] type 1\nBindInput in"+run+"\nReleaseValue 6"+run)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	expect(t, "closing", calls(), "ReleaseValue 6\nReleaseValue 5\nReleaseIoBinding 4\nReleaseMemoryInfo 3\nReleaseRunOptions 2\nReleaseSession 1")
	device, err := r.NewSession(t.Context(), SessionConfig{Model: "m.onnx", Provider: CUDA})
	if err != nil {
		t.Fatal(err)
	}
	calls()
	if err := device.BindDeviceInput(in, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := device.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, "memory of the GPU", calls(), "CreateMemoryInfo Cuda 0 0 0\nCreateTensorWithDataAsOrtValue 16 bytes [1 4] type 1"+strings.Replace(run, "7", "8", 1))
	if err := device.Close(); err != nil {
		t.Error(err)
	}
}

// TestCallsOfTensorRT shows the calls that set up TensorRT, and that they are repeated after engines that do not load.
func TestCallsOfTensorRT(t *testing.T) {
	cache := t.TempDir()
	old := filepath.Join(cache, "abc-1x4", "old.engine")
	library, calls := double(t, "-DMARKER=\""+old+"\"")
	r := opened(t, library)
	calls()
	if err := errors.Join(os.Mkdir(filepath.Dir(old), 0o700), os.WriteFile(old, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	c := SessionConfig{
		Model: "m.onnx", Digest: "abc", Provider: TensorRT, Cache: cache, Shape: []int64{1, 4},
		Dimensions: map[string]int64{"width": 4, "batch": 1}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	s, err := r.NewSession(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(calls(), "\n")
	set := strings.ReplaceAll(beginning, "\t", "") + `AddFreeDimensionOverrideByName batch=1
AddFreeDimensionOverrideByName width=4
CreateTensorRTProviderOptions
UpdateTensorRTProviderOptions device_id=0 trt_engine_cache_enable=1 trt_engine_cache_path=` +
		filepath.Dir(old) + ` trt_timing_cache_enable=1
SessionOptionsAppendExecutionProvider_TensorRT_V2
ReleaseTensorRTProviderOptionsV2 2
CreateCUDAProviderOptions
UpdateCUDAProviderOptions device_id=0 arena_extend_strategy=kSameAsRequested
SessionOptionsAppendExecutionProvider_CUDA_V2
ReleaseCUDAProviderOptionsV2 2
CreateSession m.onnx
`
	if strings.Count(all, set) != 2 || !strings.Contains(all, set+"ReleaseStatus\nReleaseSessionOptions 1\n") {
		t.Errorf("calls\n%s", all)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Error("the old engine is still there")
	}
	for _, want := range []string{"TensorRT's engines are removed and made again", "could not deserialize engine", "makes an engine for this GPU", "elapsed=0s"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	c.Digest = "../.."
	if _, err = r.NewSession(t.Context(), c); !errors.Is(err, ErrProvider) || !strings.Contains(err.Error(), "digest") {
		t.Error(err)
	}
}

// TestAProviderThatFails checks that its error names it and the cause, on one line, and that all is freed.
func TestAProviderThatFails(t *testing.T) {
	for refused, provider := range map[string]string{
		"SessionOptionsAppendExecutionProvider_CUDA_V2": TensorRT, "UpdateCUDAProviderOptions": CUDA, "CreateSession": CUDA, "CreateIoBinding": CUDA,
	} {
		library, calls := double(t, "-DREFUSED=\""+refused+"\"")
		r := opened(t, library)
		_, err := r.NewSession(t.Context(), SessionConfig{Model: "m.onnx", Provider: provider})
		var status *StatusError
		want := "ONNX Runtime's provider cannot be used: " + provider + ": ONNX Runtime: " + refused + ": ORT_EP_FAIL (11): no GPU?[2J?here"
		if !errors.Is(err, ErrProvider) || !errors.As(err, &status) || err.Error() != want {
			t.Errorf("%v, not %s", err, want)
		}
		said := calls()
		if said[len(said)-1] != "ReleaseSessionOptions 1" || strings.Count(strings.Join(said, "\n"), "ReleaseStatus") != 1 {
			t.Errorf("%s: %s", refused, strings.Join(said, "\n"))
		}
	}
	library, _ := double(t, "-DREFUSED=\"RunWithBinding\"")
	s, err := opened(t, library).NewSession(t.Context(), SessionConfig{Model: "m.onnx"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.BindInput(s.Inputs()[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "ONNX Runtime: RunWithBinding: ORT_EP_FAIL (11)") || errors.Is(err, ErrProvider) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoLibrary checks the errors for libraries that are missing, something else, or too old.
func TestNoLibrary(t *testing.T) {
	old, _ := double(t, "-DOLD")
	refusing, _ := double(t, "-DREFUSED=\"CreateEnv\"")
	for library, want := range map[string]string{
		"/missing/libonnxruntime.so": "cannot open shared object file", "libm.so.6": "libm.so.6 is not ONNX Runtime",
		old: "is release 1.16.3, and 1.17 or later is needed", refusing: "CreateEnv: ORT_EP_FAIL",
	} {
		if _, err := Open(library); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", library, err)
		}
	}
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "lib.so.1.2"), nil, 0o644), os.Symlink("lib.so.1.2", filepath.Join(dir, "lib.so"))); err != nil {
		t.Fatal(err)
	}
	if got := installed([]string{filepath.Join(dir, "lib.so*")}); len(got) != 1 || got[0] != filepath.Join(dir, "lib.so") {
		t.Error(got)
	}
}
