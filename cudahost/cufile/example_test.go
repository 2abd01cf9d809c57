// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
)

// The document's sample program, gds_helloworld (chapter 5), writes 16 MiB of memory that a GPU can access to a file.
func Example() {
	folder, err := os.MkdirTemp("", "gds")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	quiet := slog.New(slog.DiscardHandler)
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	testfile := filepath.Join(folder, "gds_test")
	if err := helloWorld(os.Stdout, Config{Logger: quiet}, memory, testfile); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Opening the driver.
	// Registering the file.
	// Allocating 16781312 bytes.
	// Registering the buffer.
	// Filling memory.
	// Writing the buffer to the file.
	// 16777216 bytes written.
}

// helloWorld is the sample. On an error it closes everything that was opened.
func helloWorld(out io.Writer, c Config, memory cudahost.Allocator, testfile string) (err error) {
	const (
		fileOffset   = 0x2000
		bufferOffset = 0x1000
		size         = 1 << 24
	)
	closing := func(f func() error) { err = errors.Join(err, f()) }
	f, err := os.OpenFile(testfile, os.O_CREATE|os.O_WRONLY|unix.O_DIRECT, 0o644)
	if err != nil {
		return err
	}
	defer closing(f.Close)

	fmt.Fprintln(out, "Opening the driver.")
	driver, err := Open(c)
	if err != nil {
		return err
	}
	defer closing(driver.Close)

	fmt.Fprintln(out, "Registering the file.")
	file, err := driver.RegisterFile(f)
	if err != nil {
		return err
	}
	defer closing(file.Deregister)

	fmt.Fprintf(out, "Allocating %d bytes.\n", size+bufferOffset)
	buffer, err := memory.AllocHost(size+bufferOffset, cudahost.Portable|cudahost.Mapped)
	if err != nil {
		return err
	}
	defer closing(buffer.Close)

	fmt.Fprintln(out, "Registering the buffer.")
	if err := driver.RegisterBuffer(buffer.Addr(), size+bufferOffset, 0); err != nil {
		return err
	}
	defer closing(func() error { return driver.DeregisterBuffer(buffer.Addr()) })

	fmt.Fprintln(out, "Filling memory.")
	copy(buffer.Bytes(), bytes.Repeat([]byte{0xab}, size+bufferOffset))

	fmt.Fprintln(out, "Writing the buffer to the file.")
	n, err := file.Write(buffer.Addr(), size, fileOffset, bufferOffset)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d bytes written.\n", n)
	return nil
}
