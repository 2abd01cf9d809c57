// SPDX-License-Identifier: Apache-2.0

// Package onnx reads what a file with an ONNX model says of the model, without a library, and refuses files that ask for
// more than a model needs: files elsewhere, operators in libraries, memory without bounds. A file is read once from its
// beginning to its end, and its weights are not kept. The format is onnx.proto of https://github.com/onnx/onnx.
package onnx

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// ErrModel is wrapped by errors about the content of a model.
var ErrModel = errors.New("cannot be used")

// Limits bound what a model may have. Zeros stand for the defaults.
type Limits struct {
	Bytes int64 // of its files, and of its tensors in memory; default 1 GiB
	Parts int   // nodes with their outputs, tensors and functions, also after each call of a function has become its nodes; default 262144
	Depth int   // of graphs in the nodes of graphs, and of functions that call functions; default 32
}

// A Model describes a model by its file. It is shared, and must not be changed.
type Model struct {
	Inputs, Outputs []tensor.Info     // Dynamic: a dimension with a name, or with none; a nil Shape of an output: it is left open
	Dimensions      [][]string        // by input: the names of its dimensions; "": it has none
	OutputOperators map[string]string // by output: the operator of the node that makes it ("Softmax", "Gemm")
	Opsets          map[string]int64  // the versions of its operators by domain; "": ONNX's own
	Producer        string            // the program that wrote the file, with its version
	Digest          string            // SHA-256 of the file; if there are Files, of the listing of all that sha256sum writes
	Files           []string          // files with weights, in the model's folder
	Size            int64             // of all files, in bytes
}

// Open reads a model. Its errors name the file, and wrap ErrModel if its content is not that of a model which ONNX Runtime
// can load with no more than it has: the model's inputs and outputs are tensors of numbers, its weights have the sizes of
// their shapes and are in the file or in regular files of its folder, and its operators are ONNX's and Microsoft's, or
// functions that the file defines. A model whose files have not changed since is not read again.
func Open(path string, limits Limits) (*Model, error) {
	m, err := read.open(path, Limits{cmp.Or(limits.Bytes, 1<<30), cmp.Or(limits.Parts, 1<<18), cmp.Or(limits.Depth, 32)})
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	return m, nil
}

func open(path string, limits Limits) (*Model, error) {
	f, size, err := regular(os.Stat, os.OpenFile, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limits.Bytes {
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrModel, size, limits.Bytes)
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	digest := sha256.New()
	p := newParser(limits, root, size)
	if err := p.parse(io.TeeReader(f, digest), size); err != nil {
		return nil, err
	}
	p.model.Digest = hex.EncodeToString(digest.Sum(nil))
	return p.model, p.digestFiles(filepath.Base(path))
}

// regular opens a regular file, and returns its size. It opens nothing else: to open a FIFO or a device may wait, or do
// something.
func regular(stat func(string) (os.FileInfo, error), open func(string, int, os.FileMode) (*os.File, error), path string) (*os.File, int64, error) {
	info, err := stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%w: %s is no regular file", ErrModel, path)
	}
	f, err := open(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file", ErrModel, path)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// digestFiles makes the digest that of all files, if the model has more than the one with this name.
func (p *parser) digestFiles(name string) error {
	if len(p.model.Files) == 0 {
		return nil
	}
	listing := sha256.New()
	fmt.Fprintf(listing, "%s  %s\n", p.model.Digest, name)
	for _, file := range p.model.Files {
		f, _, err := regular(p.root.Stat, p.root.OpenFile, file)
		if err != nil {
			return err
		}
		content := sha256.New()
		_, err = io.Copy(content, io.LimitReader(f, p.limits.Bytes))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintf(listing, "%x  %s\n", content.Sum(nil), file)
	}
	p.model.Digest = hex.EncodeToString(listing.Sum(nil))
	return nil
}

// beginnings lists the first bytes of files that are taken for models.
var beginnings = []struct{ bytes, is string }{
	{"version https://git-lfs", "a pointer of Git LFS, not the model: git lfs pull fetches it"},
	{"PK\x03\x04", "a ZIP file, as PyTorch's models are: export it with torch.onnx.export"},
	{"ftrt", "an engine of TensorRT: use the model that it was made from"},
	{"\x89HDF", "an HDF5 file, as models of Keras are: export it with tf2onnx"},
}

// recognise returns an error if the beginning of the file is that of another kind of file.
func recognise(beginning []byte) error {
	for _, b := range beginnings {
		if bytes.HasPrefix(beginning, []byte(b.bytes)) {
			return fmt.Errorf("%w: it is %s", ErrModel, b.is)
		}
	}
	switch {
	case len(beginning) == 0:
		return fmt.Errorf("%w: it is empty", ErrModel)
	case len(beginning) >= 8 && bytes.HasPrefix(beginning[4:], []byte("ORTM")):
		return fmt.Errorf("%w: it is in ONNX Runtime's own format: use the model that it was made from", ErrModel)
	case !slices.ContainsFunc(beginning, func(b byte) bool { return b < ' ' && b != '\t' && b != '\n' && b != '\r' || b > '~' }):
		return fmt.Errorf("%w: it is text, not an ONNX model: %.40q", ErrModel, beginning)
	}
	return nil
}

// parse reads the file, which has size bytes.
func (p *parser) parse(file io.Reader, size int64) error {
	in := bufio.NewReaderSize(file, 1<<16)
	beginning, err := in.Peek(int(min(size, 512)))
	if err != nil {
		return (&reader{in: in}).failed(err)
	}
	if err := recognise(beginning); err != nil {
		return err
	}
	if err := p.read(&message{reader: &reader{in: in}, name: "ModelProto", end: size}); err != nil {
		return err
	}
	return p.finish()
}
