// SPDX-License-Identifier: Apache-2.0

package infertest

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// Python returns the path of Debian's Python, which has OpenCV and NumPy. Without these it skips the test.
func Python(t testing.TB) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import cv2").CombinedOutput(); err != nil {
		t.Skipf("NEEDS OpenCV for Python: python3-opencv of Debian (make setup-test): %s", out)
	}
	return python
}

// StartPython starts a program in Python, with OpenCV and NumPy, and returns its input and output. It ends with the test,
// when its input does.
func StartPython(t testing.TB, program string) (in io.Writer, out io.Reader) {
	t.Helper()
	c := exec.CommandContext(t.Context(), Python(t), "-B", program)
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = c.Wait() // it has been ended with the test's context
	})
	return stdin, stdout
}
