// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// standInStorage makes programs that the test starts use the stand-ins for a GPU and for libcufile. It returns two
// folders: libcufile refuses the second one.
func standInStorage(t *testing.T) (accepted, refused string) {
	t.Helper()
	standInGPU(t)
	cudatest.LibCUfile(t, os.Getenv("LD_LIBRARY_PATH"), "../../cudahost/cufile")
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	folder := t.TempDir()
	accepted, refused = filepath.Join(folder, "accepted"), filepath.Join(folder, "refused")
	for _, dir := range []string{accepted, refused} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return accepted, refused
}

const storageYAML = `
memory: cuda
web: {listen: "127.0.0.1:%[3]d"}
sources: [{name: camera, model: {width: 640, height: 480, rate: 10}}]
outputs:
  - {name: taken, from: camera, policy: block, record: {directory: %[1]q}}
  - {name: plain, from: camera, policy: block, record: {directory: %[1]q, storage: compatibility}}
  - {name: refused, from: camera, policy: block, record: {directory: %[2]q, storage: auto}}
`

// TestServeStorage checks whether libcufile writes the recordings of outputs with different values of storage, also in one
// folder: by the log, the metrics and the files. A reload that changes the memory changes that. Then it plays the files.
func TestServeStorage(t *testing.T) {
	accepted, refused := standInStorage(t)
	web := rtptest.EvenPorts(t, 2)
	yaml := fmt.Sprintf(storageYAML, accepted, refused, web[0])
	configuration := programtest.Write(t, "storage.yaml", yaml)
	serve := programtest.StartProgram(t, "serve", "--config", configuration)
	var files []string
	for name, dir := range map[string]string{"taken": accepted, "plain": accepted, "refused": refused} {
		awaitFiles(t, dir, name, 1)
		all, err := record.Files(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, all[0])
	}
	_, metrics := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", web[0]))
	inHost := strings.Replace(yaml, "memory: cuda", "memory: host", 1)
	if err := errors.Join(os.WriteFile(configuration, []byte(inHost), 0o600), serve.Process.Signal(syscall.SIGHUP)); err != nil {
		t.Fatal(err)
	}
	awaitFiles(t, accepted, "taken", 2)
	_, later := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", web[0]))
	serve.Stop(t)
	holdsAll(t, later, `tegracast_output_storage_info{output="taken",storage="compatibility"} 1`)
	holdsAll(t, metrics, `tegracast_output_storage_info{output="taken",storage="library"} 1`,
		`tegracast_output_storage_info{output="plain",storage="compatibility"} 1`, `tegracast_output_storage_info{output="refused",storage="compatibility"} 1`)
	log := serve.Err.String()
	holdsAll(t, log, `output=taken folder=`+accepted+` storage=library reason="it accepts files there"`,
		`output=plain folder=`+accepted+` storage=compatibility reason="as configured"`,
		`output=refused folder=`+refused+` storage=compatibility reason="cuFileHandleRegister: `+refused,
		"(5027): libcufile does not support its file system", `output=taken folder=`+accepted+` storage=compatibility reason="memory is not CUDA's"`)
	if n := strings.Count(log, "the recording is written"); n != 6 {
		t.Errorf("%d lines tell what writes:\n%s", n, log)
	}
	for _, path := range files {
		r, err := record.Inspect(t.Context(), path, true, func(float64) {})
		if err != nil || !r.Good() || !r.Finished || r.Frames == 0 || r.Traced != r.Frames {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
		if filepath.Dir(path) == refused {
			failsToServe(t, fmt.Sprintf(playYAML, web[1], path, ", storage: library", web[1]), "sources[0]", path, "(5027)", "correct that, or leave storage out")
		}
		plays(t, path, map[bool]string{true: "compatibility", false: "library"}[filepath.Dir(path) == refused], web[1])
	}
}

const playYAML = `
memory: cuda
web: {listen: "127.0.0.1:%d"}
sources: [{name: camera, recording: {files: [%q], repeat: true%s}}]
isp: [{name: isp}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}]
`

// plays plays a recording, repeatedly, and checks whether libcufile reads it.
func plays(t *testing.T, path, storage string, web int) {
	t.Helper()
	yaml := fmt.Sprintf(playYAML, web, path, "", web)
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "play.yaml", yaml), "--sdp-dir", t.TempDir())
	_, metrics := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", web))
	serve.Stop(t)
	holdsAll(t, metrics, `tegracast_source_storage_info{source="camera",storage="`+storage+`"} 1`)
	holdsAll(t, serve.Err.String(), "the recording is read", "source=camera storage="+storage)
	if strings.Contains(serve.Err.String(), "damaged") {
		t.Errorf("it is not whole:\n%s", serve.Err.String())
	}
}

// failsToServe checks that serve ends with an error whose last line has these words.
func failsToServe(t *testing.T, yaml string, words ...string) {
	t.Helper()
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "fails.yaml", yaml), "--sdp-dir", t.TempDir())
	if status := serve.Wait(t, time.Minute); status == exitOK {
		t.Error("status 0")
	}
	lines := strings.Split(strings.TrimSpace(serve.Err.String()), "\n")
	holdsAll(t, lines[len(lines)-1], words...)
}

func holdsAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("there is no %s in\n%s", p, text)
		}
	}
}

// TestStorageLibrary checks that storage: library fails with a remedy where the library cannot be used.
func TestStorageLibrary(t *testing.T) {
	accepted, refused := standInStorage(t)
	library := filepath.Join(os.Getenv("LD_LIBRARY_PATH"), "libcufile.so.0")
	for _, tt := range []struct {
		name, memory, folder string
		installed            bool
		words                []string
	}{
		{"refused", "cuda", refused, true, []string{"outputs[0]", refused, "(5027)", "/run/udev", "correct that, or leave storage out"}},
		{"in host memory", "host", accepted, true, []string{"output samples", "storage: library needs frames in CUDA memory", "leave storage out"}},
		{"not installed", "cuda", accepted, false, []string{"output samples", "GPUDirect Storage is not installed", "correct that, or leave storage out"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.installed {
				if err := os.Remove(library); err != nil {
					t.Fatal(err)
				}
			}
			failsToServe(t, fmt.Sprintf(`
memory: %s
web: {listen: none}
sources: [{name: camera, model: {width: 640, height: 480, rate: 10}}]
outputs: [{name: samples, from: camera, record: {directory: %q, storage: library}}]
`, tt.memory, tt.folder), tt.words...)
		})
	}
}
