// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost/headertest"
	"github.com/tegracast/tegracast/pipeline/infer/infertest"
)

// TestTable compares the places of functions, and the constants, with the header.
func TestTable(t *testing.T) {
	program, want := "#include <stddef.h>\n#include <stdio.h>\n#include <onnxruntime/onnxruntime_c_api.h>\nint main(void)\n{\n", ""
	show := func(name, c string, value int) {
		program += fmt.Sprintf("\tprintf(\"%s %%d\\n\", (int)(%s));\n", name, c)
		want += fmt.Sprintf("%s %d\n", name, value)
	}
	used := 0
	for place, name := range names {
		if name != "" {
			show(name, "offsetof(OrtApi, "+name+") / sizeof(void *)", place)
			used++
		}
	}
	show("last of 17", "offsetof(OrtApi, SessionOptionsAppendExecutionProvider_OpenVINO_V2) / sizeof(void *)", int(last17))
	show("GetVersionString", "offsetof(OrtApiBase, GetVersionString) / sizeof(void *)", 1)
	for c, value := range map[string]int{
		"ORT_LOGGING_LEVEL_WARNING": logWarning, "ORT_ENABLE_ALL": optimizeAll, "OrtDeviceAllocator": allocatorDevice,
		"OrtMemTypeDefault": memoryDefault, "sizeof(ONNXTensorElementDataType)": 4, "sizeof(OrtErrorCode)": 4, "sizeof(size_t)": 8,
	} {
		show(strings.ReplaceAll(c, "%", ""), c, value)
	}
	for code, name := range codes {
		show(name, name, code)
	}
	source := filepath.Join(t.TempDir(), "table.c")
	if err := os.WriteFile(source, []byte(program+"\treturn 0;\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := headertest.Output(t, source, "-I"+filepath.Join(infertest.Debian(t).Dir, "usr/include")); got != want || used < 50 {
		t.Errorf("the header has\n%s\nand the package, with %d functions,\n%s", got, used, want)
	}
}
